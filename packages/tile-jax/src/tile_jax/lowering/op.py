"""What a converter sees: an operation with its values, attributes and regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_runtime.ops.unsupported import Unsupported
from tile_runtime.ops.values import Array, Value, dtype_of, is_known

from tile_jax.lowering.mlir import Block, Operation, ir
from tile_jax.lowering.scope import Pair, Row, Scope
from tile_jax.lowering.tensors import is_complex, tensor_type

Shape = tuple[int, ...]


class Walking(Protocol):
    """What a converter may ask of the walk over its module."""

    functions: dict[str, Operation]
    """Of the module, by name."""
    devices: int
    """How many devices run the module in step."""
    tracing: int
    """Loops of the device that are being traced, one inside of the other: their bodies cannot end a program."""
    streams: int
    """Operations so far that draw random numbers without a state."""
    apart: bool
    """Whether the operations at hand are those of one part of complex numbers."""
    pairs: dict[int, Pair]
    """Of complex values whose parts are known, by the identity of the value."""
    rows: dict[int, Row]
    """Of updates that replace one row of a value, by the identity of their result."""

    def block(self, block: Block, values: Sequence[Value], scope: Scope, *, lifted: bool = False) -> list[Value]:
        """What a block gives, walked inside of `scope`."""
        ...

    def enter(self, block: Block, values: Sequence[Value], scope: Scope) -> list[Value]:
        """What a block gives, walked in a scope of its own."""
        ...

    def call(self, name: str, values: Sequence[Value], scope: Scope) -> list[Value]:
        """What a function of the module gives; it sees nothing of its caller's values."""
        ...

    def converted(self, op: Op) -> Any:
        """What an operation gives: one value, or a tuple of them."""
        ...

    def attempt(self, function: Callable[[], Any]) -> Any:
        """What `function` gives, which traces a loop of the device; None where its body cannot be one."""
        ...


class Op:
    """One operation with the values of its operands.

    In the region of a reduction, sort or scatter (`lifted`), scalars stand for whole tensors: operands and results then
    have other shapes than the text says.
    """

    def __init__(
        self,
        operation: Operation,
        values: Sequence[Value],
        walk: Walking,
        scope: Scope,
        name: str = "",
        attributes: Any = None,
    ) -> None:
        """`name` and `attributes` are those of the operation itself, unless it stands for another one."""
        self.operation = operation
        self.name: str = name or operation.name
        self._attributes: Any = operation.attributes if attributes is None else attributes
        self.values = values
        self.walk = walk
        self.scope = scope

    # --- operands and results -------------------------------------------------------------------------

    def shape(self, k: int = 0) -> Shape:
        """The shape of operand `k`."""
        return tuple(self.values[k].shape)

    def dtype(self, k: int = 0) -> DType:
        """The dtype of operand `k`."""
        return dtype_of(self.values[k])

    @property
    def lifted(self) -> bool:
        """Whether scalars stand for tensors here."""
        return self.scope.lifted

    def result(self, k: int = 0) -> TensorType:
        """Dtype and shape of result `k`, as the text says."""
        return tensor_type(self.operation.results[k].type)

    @property
    def results(self) -> list[TensorType]:
        """Dtypes and shapes of all results."""
        return [tensor_type(r.type) for r in self.operation.results]

    def numbers(self, k: int) -> Array:
        """The numbers of operand `k`, which the program must state."""
        value = self.values[k]
        if not is_known(value):
            raise self.unsupported(f"operand {k} is computed, and sizes depend on it", "state sizes as constants")
        return value

    def ints(self, k: int) -> Shape:
        """The numbers of operand `k` as integers."""
        return tuple(int(n) for n in self.numbers(k).reshape(-1))

    @property
    def complex(self) -> bool:
        """Whether an operand or a result is of complex numbers."""
        return any(is_complex(v.type) for v in (*self.operation.operands, *self.operation.results))

    # --- attributes -----------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether the attribute is stated."""
        return name in self._attributes

    def attribute(self, name: str) -> Any:
        """An attribute, as MLIR's bindings give it."""
        return self._attributes[name]

    def list(self, name: str, default: Sequence[int] = ()) -> Shape:
        """An array of integers or truth values."""
        return tuple(int(n) for n in self.attribute(name)) if self.has(name) else tuple(default)

    def pairs(self, name: str, rank: int) -> tuple[Shape, Shape]:
        """Two numbers for each of `rank` axes, as padding has them: the first of each, and the second; else zeros."""
        if not self.has(name):
            return (0,) * rank, (0,) * rank
        table = np.array(self.attribute(name)).reshape(-1, 2) if rank else np.zeros((0, 2), np.int64)
        table = np.broadcast_to(table, (rank, 2))
        return tuple(table[:, 0].tolist()), tuple(table[:, 1].tolist())

    def number(self, name: str, default: int = 0) -> int:
        """An integer or truth value."""
        return int(self.attribute(name).value) if self.has(name) else default

    def number_of(self, name: str) -> float:
        """A float."""
        return float(self.attribute(name).value)

    def text(self, name: str, default: str = "") -> str:
        """A string, or the word of an enumeration: ``LT`` of ``#stablehlo<comparison_direction LT>``."""
        if not self.has(name):
            return default
        found = self.attribute(name)
        return found.value if isinstance(found, ir.StringAttr) else str(found).rstrip(">").split()[-1]

    # --- regions --------------------------------------------------------------------------------------

    def region(self, k: int = 0) -> Block:
        """The block of region `k`."""
        return self.operation.regions[k].blocks[0]

    def lift(self, block: Block, values: Sequence[Value]) -> list[Value]:
        """What a region of scalars gives for whole tensors, element by element."""
        return self.walk.block(block, values, self.scope, lifted=True)

    def lift_all(self, block: Block, values: Sequence[Value]) -> Scope:
        """The scope of such a walk, in which every value of the region can be found."""
        scope = Scope(self.scope.recorder, self.scope, True)
        self.walk.enter(block, values, scope)
        return scope

    # --- ways out -------------------------------------------------------------------------------------

    def unsupported(self, why: str, hint: str | None = None) -> Unsupported:
        """The error to raise where it cannot be converted; all of them are reported together."""
        return Unsupported(why, hint)
