"""Tensors of which only the expression is known: nothing is computed until somebody looks.

``(a + b) * c`` of Tensors makes two of them. Looking at one (its numbers, its buffer, a call that takes it) composes all
that it was made from into one program, so that kernels fuse; the others that somebody still holds, and that it was made
from, are results of the same program. Programs are kept by their structure: the next expression of the same form, on
tensors of the same types, compiles nothing. Python numbers are inputs, not part of the structure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

import numpy as np
from tile_hal.interfaces import Buffer, Device, Event
from tile_ir import forking
from tile_ir.dtype import from_numpy
from tile_ir.recent import Recent

from tile_runtime import hazards
from tile_runtime.arrays import Array
from tile_runtime.symbols import Symbol
from tile_runtime.tensor import Tensor, asarray, same_device

if TYPE_CHECKING:
    from tile_runtime.compose import Composition

DEPTH = 64
"""So many operators, one after the other, wait at most."""
_COMPUTED = ("_buffer", "host", "pending_write", "pending_reads", "writes")
"""The slots of what a tensor has once it is computed."""
PROGRAMS = 256
"""Programs that are kept."""
WHOLE = 4096
"""Bytes up to which an array that an operator brings along (a table of cells) stands in a structure; of others, a digest."""

_lock = forking.rlock()
_pending: WeakValueDictionary[int, Pending] = WeakValueDictionary()
"""What waits, by the id of the symbol that it will hold."""
_programs: Recent[Hashable, Composition] = Recent(PROGRAMS)


class Leaf(Symbol):
    """A Tensor, or a number, in an expression."""

    def __init__(self, value: Tensor | Array) -> None:
        super().__init__(value.shape, value.dtype if isinstance(value, Tensor) else from_numpy(value.dtype), "X")
        self.value = value

    def read(self) -> None:
        """The tensor is about to change: what was made of it is computed now."""
        with _lock:
            for waiting in list(_pending.values()):
                # Whoever was interrupted may have left one that is computed.
                if type(waiting) is Pending and any(item is self for item in _Graph((waiting.expression,)).leaves):
                    waiting.settle()


class Pending(Tensor):
    """A Tensor that is yet to be computed; it becomes an ordinary one when it is."""

    __slots__ = ()

    expression: Symbol  # a slot of Tensor's, which ordinary ones leave empty

    def settle(self) -> None:
        """Compute it, unless that has happened."""
        with _lock:
            if type(self) is Pending:
                _compute(self)

    @property
    def host(self) -> Array | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.settle()
        return self.host

    @property
    def buffer(self) -> Buffer:
        self.settle()
        return self.buffer

    @property
    def pending_write(self) -> Event | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.settle()
        return self.pending_write

    @property
    def pending_reads(self) -> list[Event] | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.settle()
        return self.pending_reads

    @property
    def writes(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.settle()
        return self.writes


def through(operator: Callable[..., Any], *operands: Any) -> Any:
    """`operator`, made for Symbols, on Tensors: Pending tensors for each of its results.

    Where a Symbol is among the operands the result is one, too: it belongs to the composition that is being made.
    """
    if any(isinstance(v, Symbol) for v in operands):
        return operator(*operands)
    tensors = [v for v in operands if isinstance(v, Tensor)]
    device = tensors[0].device
    same_device(((f"operand {k}", t) for k, t in enumerate(tensors)), device, "the tensor")
    with _lock:
        return _held(operator(*(_symbol(v, device) for v in operands)), device)


def _symbol(value: Any, device: Device) -> Any:
    """An operand in an expression: arrays are copied to the device now, since they may change."""
    if isinstance(value, Pending):
        return value.expression
    if isinstance(value, np.ndarray) and cast("Array", value).ndim:
        value = asarray(cast("Array", value), device)
    if isinstance(value, Tensor):
        found = hazards.unread.get(id(value))
        if found is None:
            found = hazards.unread[id(value)] = Leaf(value)
        return found
    return Leaf(cast("Array", value)) if isinstance(value, np.ndarray) else value


def _held(result: Any, device: Device) -> Any:
    if isinstance(result, (tuple, list)):
        return tuple(_held(r, device) for r in cast("Sequence[Any]", result))
    if isinstance(result, Leaf):
        return result.value
    if not isinstance(result, Symbol):
        return asarray(result, device)
    found = _pending.get(id(result))
    return _waiting(result, device) if found is None else found


def _waiting(symbol: Symbol, device: Device) -> Tensor:
    tensor = object.__new__(Pending)
    tensor.device, tensor.dtype, tensor.shape, tensor.expression = device, symbol.dtype, symbol.shape, symbol
    _pending[id(symbol)] = tensor
    if _depth(symbol) >= DEPTH:
        tensor.settle()
    return tensor


def _depth(symbol: Symbol) -> int:
    """How many operators stand behind one another, counted once for each symbol."""
    if symbol.source is None:
        return 0
    if not symbol.depth:
        symbol.depth = 1 + max(
            (_depth(v) for v in symbol.source[0].arguments.values() if isinstance(v, Symbol)), default=0
        )
    return symbol.depth


# --- computing -----------------------------------------------------------------------------------------


def _compute(wanted: Pending) -> None:
    graph = _Graph((wanted.expression,))
    results = [t for s in graph.symbols if (t := _pending.get(id(s))) is not None]
    values = _program(graph, results)(*(leaf.value for leaf in graph.leaves), device=wanted.device)
    several = cast("tuple[Tensor, ...]", values if isinstance(values, tuple) else (values,))
    for tensor, value in zip(results, several, strict=True):
        _become(tensor, value)


def _become(tensor: Pending, value: Tensor) -> None:
    """The tensor is `value` from now on, which nobody else has; in one step, since whoever does this may be interrupted."""
    for name in _COMPUTED:
        getattr(Tensor, name).__set__(tensor, getattr(value, name))
    tensor.__class__ = Tensor  # pyright: ignore[reportAttributeAccessIssue]
    _pending.pop(id(tensor.expression), None)
    del tensor.expression


def _program(graph: _Graph, results: Sequence[Pending]) -> Composition:
    places = {id(s): n for n, s in enumerate(graph.symbols)}
    key = (graph.key, tuple(places[id(t.expression)] for t in results))

    def made() -> Composition:
        from tile_runtime.compose import compose

        return compose(graph.leaves, {f"R{k}": t.expression for k, t in enumerate(results)})

    return _programs.get(key, made)


@dataclass(slots=True)
class _Graph:
    """What symbols are made from: everything before what needs it."""

    roots: Sequence[Symbol]
    symbols: list[Symbol] = field(default_factory=list[Symbol])
    """Results of operators."""
    leaves: list[Leaf] = field(default_factory=list["Leaf"])
    _parts: list[Hashable] = field(default_factory=list[Hashable])
    _places: dict[int, Hashable] = field(default_factory=dict[int, Hashable])

    def __post_init__(self) -> None:
        stack: list[Any] = list(self.roots)
        while stack:
            item = stack[-1]
            waiting = [v for v in _operands(item) if id(v) not in self._places]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            if id(item) not in self._places:
                self._places[id(item)] = self._entered(item)

    @property
    def key(self) -> Hashable:
        """Equal for graphs of the same structure and the same types."""
        return tuple(self._parts)

    def _entered(self, item: Any) -> Hashable:
        """What stands for the item in the structure."""
        if isinstance(item, Leaf):
            self.leaves.append(item)
            self._parts.append((item.dtype, item.shape))
        elif isinstance(item, Symbol) and item.source is not None:
            application, output = item.source
            self.symbols.append(item)
            operands = tuple(self._places[id(v)] for v in application.arguments.values())
            self._parts.append((application.function.key, output, operands))
        else:
            self._parts.append(_contents(item.known if isinstance(item, Symbol) else item))
        return len(self._places)


def _operands(item: Any) -> Iterator[Any]:
    if isinstance(item, Symbol) and item.source is not None:
        yield from item.source[0].arguments.values()


def _contents(value: Any) -> Hashable:
    array = np.asarray(value)
    data = array.tobytes()
    return (array.dtype.str, array.shape, data if len(data) <= WHOLE else hashlib.blake2b(data).digest())
