"""The first few of long lines: blocks of a line are put in order by what comes first in each, and few of them are looked into.

Of `k` elements that come first none lies in a block behind the first `k` blocks: each of these has an element that comes
before all of that one. So a line is walked once, for the first elements of its blocks; the sorts are of those, and of what
the chosen blocks hold. Blocks are looked into from left to right, so that equal elements keep the order they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import isqrt

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import (
    Argsort,
    Constraint,
    Contraction,
    Gather,
    IndexOf,
    Lookup,
    Op,
    Poly,
    Reshape,
    TensorLoad,
    TensorType,
    coordinates,
)

from tile_opt.program.base import OpRewrite
from tile_opt.program.float_bits import FORMATS, Ordered
from tile_opt.program.steps import Scalar, Steps

PLACE = DType.INT32
LANES = 16
"""Elements of a block are a multiple of so many, which fill vectors."""


@frozen
class LongOrders(OpRewrite):
    """Choose among blocks where lines have at least `least` elements, and `share` for each that is wanted."""

    least: int = 1 << 12
    share: int = 48

    def instead(self, types: Mapping[str, TensorType], taken: set[str], op: Op) -> Iterable[Op]:
        if not isinstance(op, Argsort) or not self._suits(op, types[op.arg].shape[op.axis]):
            return (op,)
        return _Blocks(op, Steps(op.name, types, taken, op.origin)).ops()

    def _suits(self, op: Argsort, length: int) -> bool:
        return op.type.size > 0 and max(self.least, self.share * op.type.shape[op.axis]) <= length


@dataclass(frozen=True, slots=True)
class _Blocks:
    """About as many blocks of each line as elements of those that are chosen."""

    op: Argsort
    steps: Steps

    @property
    def given(self) -> TensorType:
        return self.steps.type(self.op.arg)

    @property
    def length(self) -> int:
        return self.given.shape[self.op.axis]

    @property
    def wanted(self) -> int:
        return self.op.type.shape[self.op.axis]

    @property
    def size(self) -> int:
        """Elements of a block: near the root, and such that the last block is whole, if that can be."""
        best = isqrt(self.length // self.wanted)
        return min(range(LANES, 2 * best + LANES, LANES), key=lambda n: (self.length % n != 0, abs(n - best)))

    @property
    def agg(self) -> Aggregation:
        """What finds the key that comes first."""
        return Aggregation.MAX if self.op.descending else Aggregation.MIN

    def ops(self) -> list[Op]:
        """The operations in place of the sort."""
        chosen = self._in_order(self._first(self._of_blocks()))
        places = self._places(chosen)
        near = self._first(self._flat(self._near(places)))
        self._taken(self._flat(places), near)
        return [*self.steps.ops[:-1], replace(self.steps.ops[-1], name=self.op.name)]

    def _along(self, *sizes: int) -> tuple[int, ...]:
        """The shape with these in place of the line's length."""
        shape, axis = self.given.shape, self.op.axis
        return (*shape[:axis], *sizes, *shape[axis + 1 :])

    @property
    def _plain(self) -> bool:
        """Elements are their own keys: aggregations take NaN for the first, which it is where the order descends."""
        return self.op.descending or not self.given.dtype.is_float

    # --- keys -------------------------------------------------------------------------------------------

    def _key(self, value: Scalar) -> Scalar:
        """Of each element a number in its order: where it ascends NaN is behind all numbers, and 0.0 and -0.0 are alike."""
        if self._plain:
            return value
        format = FORMATS[DType.FLOAT64 if value.dtype is DType.FLOAT64 else DType.FLOAT32]
        value = value.cast(format.dtype)
        value = value.is_(0.0).choose(value.number(0.0, value.dtype), value)
        return Ordered(format, smallest=False).key(value)

    def _of_blocks(self) -> str:
        """The key of each block that comes first; the last block may be shorter."""
        cells = self.steps.cells(self.given.shape)
        keys = self.op.arg if self._plain else cells.store(self._key(cells.load(self.op.arg)))
        shape, axis = self._along(-(-self.length // self.size)), self.op.axis
        output, step = coordinates(len(shape)), Poly.of({"step": 1})
        element = output[axis].scaled(self.size) + step
        limits = [*zip(output, shape, strict=True), (step, self.size), (element, self.length)]
        dtype = self.steps.type(keys).dtype
        return self.steps.add(
            Contraction(
                self.steps.name(),
                TensorType(dtype, shape),
                self.agg,
                (*(f"i{d}" for d in range(len(shape))), "step"),
                output,
                tuple(Constraint(f, n, self.op.origin) for f, n in limits),
                (TensorLoad("$0", keys, (*output[:axis], element, *output[axis + 1 :])),),
                (),
                "$0",
                dtype,
                origin=self.op.origin,
            )
        )

    def _near(self, places: str) -> str:
        """The keys at these places; what is behind a line's end comes last."""
        shape, cell = self.steps.type(places).shape, coordinates(len(self.given.shape) + 1)
        subscripts = (*cell[: self.op.axis], Lookup(places, cell), *cell[self.op.axis + 2 :])
        type = TensorType(self.given.dtype, shape)
        near = self.steps.add(Gather(self.steps.name(), type, self.op.arg, subscripts, self.op.origin))
        cells = self.steps.cells(shape)
        key = self._key(cells.load(near))
        if self.length % self.size:
            key = (cells.load(places) < self.length).choose(key, self.agg.identity(key.dtype))
        return cells.store(key)

    # --- order ------------------------------------------------------------------------------------------

    def _first(self, keys: str) -> str:
        """The places of as many as are wanted."""
        return self.steps.add(replace(self.op, name=self.steps.name(), arg=keys))

    def _in_order(self, places: str) -> str:
        """The same places from left to right."""
        order = replace(self.op, name=self.steps.name(), arg=places, descending=False)
        return self._taken(places, self.steps.add(order))

    def _taken(self, data: str, order: str) -> str:
        """Of each line the elements at places."""
        cell, axis = coordinates(len(self.op.type.shape)), self.op.axis
        subscripts = (*cell[:axis], Lookup(order, cell), *cell[axis + 1 :])
        return self.steps.add(Gather(self.steps.name(), self.op.type, data, subscripts, self.op.origin))

    def _places(self, blocks: str) -> str:
        """Those of all elements of blocks, along a dimension of their own."""
        axis, type = self.op.axis, TensorType(PLACE, self._along(self.wanted, self.size))
        cell = coordinates(len(type.shape))
        number = Gather(self.steps.name(), type, blocks, (*cell[: axis + 1], *cell[axis + 2 :]), self.op.origin)
        start = self.steps.add(number)
        step = self.steps.add(IndexOf(self.steps.name(), type, axis + 1, self.op.origin))
        cells = self.steps.cells(type.shape)
        return cells.store(cells.load(start) * self.size + cells.load(step))

    def _flat(self, tensor: str) -> str:
        """Lines of what all chosen blocks hold."""
        type = TensorType(self.steps.type(tensor).dtype, self._along(self.wanted * self.size))
        return self.steps.add(Reshape(self.steps.name(), type, tensor, self.op.origin))
