"""Values that will be computed: placeholders, and what functions make of them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.dtype import DType, from_numpy

from tile_runtime.arguments import input_type
from tile_runtime.arrays import Array, dtype_of, kept
from tile_runtime.names import checked_name
from tile_runtime.operators import Operators
from tile_runtime.provenance import current_label
from tile_runtime.signature import Signature
from tile_runtime.tensor import checked_shape

if TYPE_CHECKING:
    from tile_ir.program.nodes import Program


class Application:
    """One call of a function on symbols, tensors and arrays."""

    def __init__(self, function: Signature, arguments: Mapping[str, Any]) -> None:
        self.function = function
        self.arguments = dict(arguments)
        self.label = current_label()
        self.program: Program = function.bind({n: input_type(n, v) for n, v in self.arguments.items()})


class Symbol(Operators):
    """A value in a composition: a placeholder, an output of an application, or a constant."""

    symbolic = True

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        name: str,
        source: tuple[Application, str] | None = None,
        known: Array | None = None,
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.name = name
        self.source = source
        """The application that makes it, and the name of its output; None of placeholders and constants."""
        self.known = known
        """The elements of a constant, which nobody writes to."""
        self.depth = 0
        """How many operators stand behind it, where somebody has counted (see `pending`)."""

    @property
    def is_placeholder(self) -> bool:
        return self.source is None and self.known is None

    def __repr__(self) -> str:
        return f"Symbol({self.name!r}, {self.dtype}{list(self.shape)})"

    def __bool__(self) -> bool:
        raise _no_value(self, "choose with tile_runtime.numpy.where; what Python decides must not depend on elements")

    def _number(self) -> Any:
        raise _no_value(self, "return it, and look at the result; shapes and dtypes are known now")

    __int__ = __float__ = __index__ = item = numpy = _number

    def __array__(self, *_: Any, **__: Any) -> np.ndarray[Any, Any]:
        raise _no_value(self, "use tile_runtime.numpy for NumPy's functions; compose it and call that to see elements")


class SymbolValueError(TileTypeError, TypeError):
    """Somebody asks for elements of what is yet to be computed."""


def _no_value(symbol: Symbol, hint: str) -> SymbolValueError:
    return SymbolValueError(Diagnostic("TILE-E542", f"{symbol!r} has no values yet", hint=hint))


making: ContextVar[bool] = ContextVar("making", default=False)
"""Whether a Python function is being traced."""


@contextmanager
def tracing() -> Generator[None]:
    """While a Python function is traced: what `tile_runtime.numpy` makes of nothing are constants of its program."""
    token = making.set(True)
    try:
        yield
    finally:
        making.reset(token)


def placeholder(dtype: npt.DTypeLike | DType, shape: Sequence[int], name: str) -> Symbol:
    """An input of a composition.

    `name`, any text, is how the composed function's input is called, in errors too. One called `device`, `out` or
    `donate` is passed by position.
    """
    return Symbol(checked_shape(shape), dtype_of(dtype), checked_name("a placeholder", name))


def constant(array: npt.ArrayLike, name: str = "Const") -> Symbol:
    """An array as a symbol: what functions make of it belongs to a composition instead of being computed at once.

    `array` is anything that a call takes as an argument. It is copied, unless it is read-only and nothing writable
    shares its memory: make large arrays read-only (``a.flags.writeable = False``). `name`, any text, is for people.
    """
    known = kept(checked_name("a constant", name), array)
    return Symbol(known.shape, from_numpy(known.dtype), name, known=known)


def apply(function: Signature, arguments: Mapping[str, Any]) -> Symbol | tuple[Symbol, ...]:
    """`function` on symbols: its outputs as symbols, type-checked now."""
    if function.updates:
        hint = "compose the functions inside it, and give `updates` to the outermost composition"
        raise composition_error(f"{function!r} updates tensors, so it cannot be part of a composition", hint)
    application = Application(function, arguments)
    types = application.program.types()
    results = [
        Symbol(types[value].shape, types[value].dtype, public, (application, public))
        for public, value in application.program.outputs
    ]
    return results[0] if len(results) == 1 else tuple(results)


def roots(symbols: Iterable[Symbol]) -> list[Symbol]:
    """The placeholders that symbols are computed from."""
    found: dict[int, Symbol] = {}
    seen: set[int] = set()
    stack = list(symbols)
    while stack:
        symbol = stack.pop()
        if id(symbol) in seen:
            continue
        seen.add(id(symbol))
        if symbol.is_placeholder:
            found[id(symbol)] = symbol
        elif symbol.source is not None:
            stack += [a for a in symbol.source[0].arguments.values() if isinstance(a, Symbol)]
    return list(found.values())


class Origin(NamedTuple):
    """What a value is computed from."""

    own: bool
    """Of certain placeholders."""
    others: bool
    """Of other ones."""


class Origins:
    """Whether values depend on `own` placeholders, and on others."""

    def __init__(self, own: Sequence[Symbol]) -> None:
        self._known = {id(s): Origin(own=True, others=False) for s in own}
        self._kept: list[Any] = list(own)
        """Identities are of living objects."""

    def outside(self, value: Any) -> bool:
        """It is computed from none of the own placeholders."""
        return not self.of(value).own

    def foreign(self, value: Any) -> bool:
        """It belongs to a composition around: it is computed from other placeholders alone."""
        found = self.of(value)
        return found.others and not found.own

    def of(self, value: Any) -> Origin:
        """Of a symbol, and all that it is made of; what is no symbol depends on nothing."""
        stack = [value]
        while stack:
            item = stack[-1]
            if id(item) in self._known:
                stack.pop()
                continue
            parts = list(item.source[0].arguments.values()) if isinstance(item, Symbol) and item.source else []
            waiting = [p for p in parts if id(p) not in self._known]
            if waiting:
                stack += waiting
                continue
            found = [self._known[id(p)] for p in parts]
            other = isinstance(item, Symbol) and item.is_placeholder
            self._known[id(item)] = Origin(any(f.own for f in found), other or any(f.others for f in found))
            self._kept.append(item)
        return self._known[id(value)]


def composition_error(message: str, hint: str | None = None) -> TileTypeError:
    return TileTypeError(Diagnostic("TILE-E509", message, hint=hint))
