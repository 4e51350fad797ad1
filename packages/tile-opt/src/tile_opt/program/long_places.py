"""Places of extremes in long rows: the block that has it is found first, then the place in that block.

`argmax` as the language writes it walks each row twice: for the largest element, and for the first place that has it. The
largest elements of blocks are partial results on the way to that of a row; the first block that has the row's is the only
one that is walked again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import isqrt

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import (
    Constraint,
    Contraction,
    Elementwise,
    Gather,
    IndexOf,
    Literal,
    Lookup,
    Op,
    Poly,
    Program,
    TensorLoad,
    TensorType,
    coordinates,
)

from tile_opt.program.base import Rewrite
from tile_opt.program.steps import Cells, Scalar, Steps

Made = Mapping[str, Contraction | Elementwise | IndexOf]
LONGER = 4
"""Times as many elements that a block has as there are blocks: it is walked again element by element."""
Hit = tuple[str, Contraction, bool]
"""What is compared, the extreme that it is compared with, and whether NaN counts as equal."""


@frozen
class LongPlaces(Rewrite):
    """Search rows of at least `least` elements, or `halves` of floats of 16 bits, along the last dimension, in blocks."""

    least: int = 1 << 11
    halves: int = 1 << 13
    """Each walk converts them, which takes longer than the comparisons that blocks save."""

    def apply(self, program: Program) -> Program:
        made: Made = {op.name: op for op in program.ops if isinstance(op, Contraction | Elementwise | IndexOf)}
        types, taken = program.types(), set(program.types())
        found = {op.name: s for op in program.ops if isinstance(op, Contraction) and (s := _search(op, made, types))}
        long = {name: s for name, s in found.items() if self._is_long(types[s.data])}
        if not long:
            return program
        extremes = {s.extreme.name: s for s in long.values()}
        blocks: dict[str, _Blocks] = {}
        ops: list[Op] = []
        for op in program.ops:
            if isinstance(op, Contraction) and (search := extremes.get(op.name)) is not None:
                blocks[op.name] = _Blocks.of(search, Steps(op.name, types, taken))
                ops += blocks[op.name].extreme()
            elif isinstance(op, Contraction) and (search := long.get(op.name)) is not None:
                ops += blocks[search.extreme.name].place(search)
            else:
                ops.append(op)
        return replace(program, ops=tuple(ops))

    def _is_long(self, data: TensorType) -> bool:
        half = data.dtype in (DType.FLOAT16, DType.BFLOAT16)
        return data.shape[-1] >= (self.halves if half else self.least)


@dataclass(frozen=True, slots=True)
class _Search:
    """The first place in each row of `data` that holds the row's extreme: the row's last place less the largest distance from it."""

    place: Contraction
    data: str
    extreme: Contraction
    undefined: bool
    """NaN counts as extreme."""


def _search(op: Contraction, made: Made, types: Mapping[str, TensorType]) -> _Search | None:
    """What an aggregation searches; None where it does something else."""
    if op.agg is not Aggregation.MAX or not _takes_rows(op, types):
        return None
    match made.get(str(op.loads[0].tensor)):
        case Elementwise(fn="cond", args=(str(test), str(back), Literal(value=-1))):
            hit, distance = _hit(test, made), made.get(back)
        case _:
            return None
    if hit is None or not _is_distance(distance, made) or not _takes_rows(hit[1], types):
        return None
    data, extreme, undefined = hit
    row = types[data].shape == types[back].shape and extreme.loads[0].tensor == data
    return _Search(op, data, extreme, undefined) if row else None


def _hit(test: str, made: Made) -> Hit | None:
    """``x == extreme``, perhaps ``| (x != x)``."""
    match made.get(test):
        case Elementwise(fn="bit_or", args=(str(equal), str(other))):
            inner, undefined = _hit(equal, made), made.get(other)
            if inner is None or not isinstance(undefined, Elementwise) or undefined.fn != "cmp_ne":
                return None
            return (inner[0], inner[1], True) if undefined.args == (inner[0], inner[0]) else None
        case Elementwise(fn="cmp_eq", args=(str(data), str(name))):
            extreme = made.get(name)
            if not isinstance(extreme, Contraction) or extreme.agg not in (Aggregation.MAX, Aggregation.MIN):
                return None
            return data, extreme, False
        case _:
            return None


def _is_distance(op: Contraction | Elementwise | IndexOf | None, made: Made) -> bool:
    """How far each element of a row is from its last one."""
    match op:
        case Elementwise(fn="sub", args=(Literal(value=last), str(name))):
            index, shape = made.get(name), op.type.shape
            along = isinstance(index, IndexOf) and index.axis == len(shape) - 1 and index.type.shape == shape
            return along and last == shape[-1] - 1
        case _:
            return False


def _takes_rows(op: Contraction, types: Mapping[str, TensorType]) -> bool:
    """It aggregates the elements of each row of one tensor, and keeps the dimension."""
    if op.body or op.default is not None or len(op.loads) != 1 or not isinstance(op.loads[0].tensor, str):
        return False
    shape, forms = types[op.loads[0].tensor].shape, op.loads[0].formulas
    names = {f.index for f in forms}
    whole = dict(zip(forms, shape, strict=True))
    inside = all(not c.formula.names or whole.get(c.formula) == c.size for c in op.constraints)
    plain = None not in names and len(names) == len(forms) > 0 and op.result == op.loads[0].dst
    kept = op.output == (*forms[:-1], Poly()) and op.type.shape == (*shape[:-1], 1)
    return plain and inside and kept


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The extremes of the blocks of each row: the last one ends with the row, and each overlaps the next a little."""

    search: _Search
    count: int
    step: int
    size: int
    steps: Steps
    name: str

    @staticmethod
    def of(search: _Search, steps: Steps) -> _Blocks:
        length = steps.type(search.data).shape[-1]
        few = max(1, isqrt(length) // LONGER)
        count = min(range(few, 2 * few), key=lambda n: length % n)
        return _Blocks(search, count, length // count, length // count + length % count, steps, steps.name())

    def row(self, dtype: DType, length: int) -> TensorType:
        return TensorType(dtype, (*self.steps.type(self.search.data).shape[:-1], length))

    def extreme(self) -> Iterator[Op]:
        """Those of the blocks, and of the rows out of them."""
        op = self.search.extreme
        rows, (block, step) = op.loads[0].formulas[:-1], (Poly.of({n: 1}) for n in ("block", "step"))
        element, limits = block.scaled(self.step) + step, ((block, self.count), (step, self.size))
        kept = tuple(c for c in op.constraints if c.formula in rows)
        yield replace(
            op,
            name=self.name,
            type=self.row(op.type.dtype, self.count),
            indexes=(*(n for n in op.indexes if any(n == f.index for f in rows)), "block", "step"),
            output=(*rows, block),
            constraints=(*kept, *(Constraint(f, n, op.origin) for f, n in limits)),
            loads=(TensorLoad(op.loads[0].dst, self.search.data, (*rows, element)),),
        )
        yield _over(op, op.name, self.name, self.count)

    def place(self, search: _Search) -> list[Op]:
        """The first block that has the extreme, and the first place in it."""
        known = {**self.steps.types, self.name: self.row(search.extreme.type.dtype, self.count)}
        steps = Steps(search.place.name, known, self.steps.taken, search.place.origin)
        length, rows = steps.type(search.data).shape[-1], self.row(DType.INT32, self.size)
        cells, number = self._cells(steps, self.count)
        found = self._distances(search, cells, self.name, cells.number(self.count - 1, DType.INT32) - number)
        block = steps.add(_over(search.place, steps.name(), found, self.count))
        cells, number = self._cells(steps, self.size)
        start = (cells.number(self.count - 1, DType.INT32) - cells.load(block)) * self.step
        at = cells.store(start + number)
        cell = coordinates(len(rows.shape))
        near = Gather(
            steps.name(), self.row(search.extreme.type.dtype, self.size), search.data, (*cell[:-1], Lookup(at, cell))
        )
        cells = steps.cells(rows.shape)
        element, back = steps.add(near), cells.number(length - 1, DType.INT32) - cells.load(at)
        found = self._distances(search, cells, element, back)
        return [*steps.ops, _over(search.place, search.place.name, found, self.size)]

    def _cells(self, steps: Steps, length: int) -> tuple[Cells, Scalar]:
        """Those of as many rows of another length, and the number of each in its row."""
        type = self.row(DType.INT32, length)
        cells = steps.cells(type.shape)
        return cells, cells.load(steps.add(IndexOf(steps.name(), type, len(type.shape) - 1, steps.origin)))

    def _distances(self, search: _Search, cells: Cells, tensor: str, back: Scalar) -> str:
        """The tensor of the distances `back` from the row's end where a tensor holds the extreme, of -1 elsewhere."""
        element = cells.load(tensor)
        hit = element.is_(cells.load(search.extreme.name))
        hit = hit | element.is_not(element) if search.undefined else hit
        return cells.store(hit.choose(back, -1))


def _over(op: Contraction, name: str, tensor: str, length: int) -> Contraction:
    """The aggregation over the rows of another tensor, of so many elements."""
    last = op.loads[0].formulas[-1]
    limits = tuple(replace(c, size=length) if c.formula == last else c for c in op.constraints)
    return replace(op, name=name, constraints=limits, loads=(replace(op.loads[0], tensor=tensor),))
