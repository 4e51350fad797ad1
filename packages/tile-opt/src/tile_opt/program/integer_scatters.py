"""Scatters of floats and of the last value, as scatters of integers whose result no order of values changes.

A device whose integers in memory can be changed by many items at once then needs no order between the rows that meet:
- the largest and the smallest of floats by keys in their order;
- sums of floats in fixed point;
- ``=`` by the number of the last row, which is then looked up;
- narrow integers in 32 bits, where what is never a value says that a cell has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.macros import literal
from tile_ir.program.nodes import (
    Gather,
    IndexOf,
    Lookup,
    Op,
    Poly,
    Program,
    Scatter,
    Subscript,
    TensorType,
    coordinates,
)

from tile_opt.program.base import Rewrite
from tile_opt.program.float_bits import FORMATS, WORD, FixedPoint, Format, Ordered
from tile_opt.program.steps import Cells, Steps

MOST = 1 << 31
"""Values that may fall on a cell, so that 32 bits count them."""
EXTREMES = (Aggregation.MAX, Aggregation.MIN)


@dataclass(frozen=True)
class IntegerScatters(Rewrite):
    """Scatters as scatters of 32 and 64 bit integers; products of floats, and what is boolean, stay as they are."""

    name: ClassVar[str] = "integer_scatters"
    widest: int = 64
    """Bits of the widest integers that items may change at once."""

    def apply(self, program: Program) -> Program:
        types = program.types()
        taken = set(types)
        ops: list[Op] = []
        for op in program.ops:
            made = self._made(op, Steps(op.name, types, taken, op.origin)) if isinstance(op, Scatter) else None
            ops += (op,) if made is None else made
        return program if len(ops) == len(program.ops) else replace(program, ops=tuple(ops))

    def _made(self, op: Scatter, steps: Steps) -> list[Op] | None:
        """The operations in place of a scatter; None where it stays."""
        if not (0 < steps.type(op.updates).size < MOST and op.type.size and self._has(op)):
            return None
        if op.agg is Aggregation.ASSIGN:
            result = _last(op, steps)
        elif op.type.dtype.is_float:
            result = _floats(op, steps, _format(op.type.dtype))
        else:
            result = _narrow(op, steps)
        # The last operation gets the name that all others know.
        return None if result is None else [*steps.ops[:-1], replace(steps.ops[-1], name=op.name)]

    def _has(self, op: Scatter) -> bool:
        """The device has what the scatter would need."""
        dtype = op.type.dtype
        if op.agg is Aggregation.ASSIGN:
            return True
        if dtype is DType.BOOL or (dtype.is_float and op.agg is Aggregation.PROD):
            return False
        words = WORD.bits if dtype.is_float and op.agg is Aggregation.SUM else 32
        return self.widest >= max(words, dtype.bits)


def _format(dtype: DType) -> Format:
    return FORMATS[DType.FLOAT64 if dtype is DType.FLOAT64 else DType.FLOAT32]


def _floats(op: Scatter, steps: Steps, format: Format) -> str:
    if op.agg is Aggregation.SUM:
        return _sum(op, steps, format)
    smallest = op.agg is Aggregation.MIN
    given = steps.cells(steps.type(op.updates).shape)
    value = given.cast(given.load(op.updates), format.dtype)
    found = _scatter(op, steps, given.store(Ordered(given, format, smallest).key(value)), Aggregation.MAX)
    cells = steps.cells(op.type.shape)
    key = cells.load(found)
    return _settled(op, cells, key, Ordered(cells, format, smallest).value(key))


def _sum(op: Scatter, steps: Steps, format: Format) -> str:
    type = steps.type(op.updates)

    def given() -> tuple[FixedPoint, Cells, str]:
        cells = steps.cells(type.shape)
        return FixedPoint(cells, format, type.size), cells, cells.cast(cells.load(op.updates), format.dtype)

    fixed, cells, value = given()
    largest = _scatter(op, steps, cells.store(fixed.exponent(value)), Aggregation.MAX)
    there = steps.add(Gather(steps.name(), TensorType(DType.UINT32, type.shape), largest, op.subscripts, op.origin))
    words: list[str] = []
    for k in range(format.words):
        fixed, cells, value = given()
        word = fixed.words(value, cells.load(there))[k]
        words.append(_scatter(op, steps, cells.store(word), Aggregation.SUM))
    cells = steps.cells(op.type.shape)
    exponent = cells.load(largest)
    total = FixedPoint(cells, format, type.size).value([cells.load(w) for w in words], exponent)
    return _settled(op, cells, exponent, total)


def _narrow(op: Scatter, steps: Steps) -> str | None:
    """Integers of 8 and 16 bits; those of 32 and 64 stay."""
    if op.type.dtype.bits >= 32:
        return None
    given, cells = steps.cells(steps.type(op.updates).shape), steps.cells(op.type.shape)
    wide = given.cast(given.load(op.updates), DType.INT32)
    if op.agg not in EXTREMES:
        default = None if op.default is None else _widened(op.default, steps)
        found = _scatter(op, steps, given.store(wide), op.agg, default)
        return cells.store(cells.cast(cells.load(found), op.type.dtype))
    # From 1 on, so that 0 is a cell without a value.
    low, high = int(op.type.dtype.min_value), int(op.type.dtype.max_value)
    smallest, none = op.agg is Aggregation.MIN, literal(high + 1 if op.agg is Aggregation.MIN else 1 - low, DType.INT32)
    number = given.cast(given.do("sub", none, wide) if smallest else given.do("add", wide, none), DType.UINT32)
    found = cells.load(_scatter(op, steps, given.store(number), Aggregation.MAX))
    number = cells.cast(found, DType.INT32)
    return _settled(op, cells, found, cells.do("sub", *((none, number) if smallest else (number, none))))


def _widened(tensor: str, steps: Steps) -> str:
    cells = steps.cells(steps.type(tensor).shape)
    return cells.store(cells.cast(cells.load(tensor), DType.INT32))


def _scatter(op: Scatter, steps: Steps, values: str, agg: Aggregation, default: str | None = None) -> str:
    """The same scatter of other values."""
    type = TensorType(steps.type(values).dtype, op.type.shape)
    return steps.add(Scatter(steps.name(), type, values, op.subscripts, agg, default, op.origin))


def _settled(op: Scatter, cells: Cells, found: str, value: str) -> str:
    """The result: `value` in its dtype where `found` is not 0; elsewhere the default, or 0."""
    otherwise = literal(0, op.type.dtype) if op.default is None else cells.load(op.default)
    return cells.store(cells.where(cells.do("cmp_ne", found, 0), cells.cast(value, op.type.dtype), otherwise))


# --- the last value --------------------------------------------------------------------------------


def _last(op: Scatter, steps: Steps) -> str | None:
    """The number of the last row that falls on a cell, from 1 on, and then the value of that row."""
    places = _Places.of(op, steps.type(op.updates).shape)
    if not places.rows:
        return None
    last = places.last(op, steps)
    value = steps.add(Gather(steps.name(), op.type, op.updates, places.found(steps, last), op.origin))
    cells = steps.cells(op.type.shape)
    return _settled(op, cells, cells.load(last), cells.load(value))


@dataclass(frozen=True, slots=True)
class _Places:
    """Coordinates of the updates: those that a coordinate of the result shows as they are, and all others, the rows."""

    cells: tuple[int, ...]
    shown: dict[int, int]
    """Coordinate of the updates -> that of the result."""
    beside: frozenset[int]
    """Of the shown ones those that nothing else depends on: one row is written along all of them."""

    @staticmethod
    def of(op: Scatter, cells: tuple[int, ...]) -> _Places:
        data = [n for s in op.subscripts for f in (s.formulas if isinstance(s, Lookup) else (s,)) for n in f.names]
        plain = {f: k for k, f in enumerate(coordinates(len(cells)))}
        shown = {
            plain[s]: k
            for k, (s, n) in enumerate(zip(op.subscripts, op.type.shape, strict=True))
            if isinstance(s, Poly) and s in plain and cells[plain[s]] == n
        }
        return _Places(cells, shown, frozenset(d for d in shown if data.count(f"i{d}") == 1))

    @property
    def rows(self) -> list[int]:
        """Coordinates that number the rows."""
        return [d for d in range(len(self.cells)) if d not in self.shown]

    @property
    def kept(self) -> list[int]:
        """Coordinates that rows are found by."""
        return [d for d in range(len(self.cells)) if d not in self.beside]

    def last(self, op: Scatter, steps: Steps) -> str:
        """For each cell the number of the last row, of those that agree in all shown coordinates; 1 along the others."""
        numbers = self._numbers(steps)
        along = {self.shown[d] for d in self.beside}
        subscripts = tuple(Poly() if k in along else self._renamed(s) for k, s in enumerate(op.subscripts))
        cells = tuple(1 if k in along else n for k, n in enumerate(op.type.shape))
        type = TensorType(DType.UINT32, cells)
        return steps.add(Scatter(steps.name(), type, numbers, subscripts, Aggregation.MAX, None, op.origin))

    def _numbers(self, steps: Steps) -> str:
        """The number of each row among those that agree in all shown coordinates, from 1 on."""
        type = TensorType(DType.INT32, tuple(self.cells[d] for d in self.kept))
        indexes = [steps.add(IndexOf(steps.name(), type, self.kept.index(d), steps.origin)) for d in self.rows]
        cells = steps.cells(type.shape)
        total = literal(1, DType.INT32)
        for d, index in zip(self.rows, indexes, strict=True):
            total = cells.do("add", cells.do("mul", cells.load(index), self._step(d)), total)
        return cells.store(cells.do("cast", total, dtype=DType.UINT32))

    def found(self, steps: Steps, last: str) -> tuple[Subscript, ...]:
        """Where in the updates the rows of these numbers are."""
        sizes = steps.type(last).shape
        cell = tuple(f if n > 1 else Poly() for f, n in zip(coordinates(len(sizes)), sizes, strict=True))
        rows = {d: Lookup(self._coordinate(steps, last, d), cell) for d in self.rows}
        return tuple(rows[d] if d in rows else coordinates(len(sizes))[self.shown[d]] for d in range(len(self.cells)))

    def _coordinate(self, steps: Steps, last: str, row: int) -> str:
        """The coordinate of the rows of these numbers."""
        cells, step, size = steps.cells(steps.type(last).shape), self._step(row), self.cells[row]
        # Where no row is, 0 becomes the largest number, and the gather takes what it likes.
        number = cells.do("sub", cells.load(last), 1)
        above = cells.do("div", number, step) if step > 1 else number
        if row != self.rows[0]:
            above = cells.do("sub", above, cells.do("mul", cells.do("div", above, size), size))
        return cells.store(above)

    def _step(self, row: int) -> int:
        return prod(self.cells[d] for d in self.rows if d > row)

    def _renamed(self, subscript: Subscript) -> Subscript:
        """In the coordinates of the kept ones alone."""
        names = {f"i{d}": f"i{k}" for k, d in enumerate(self.kept)}
        if isinstance(subscript, Lookup):
            return replace(subscript, formulas=tuple(_with_names(f, names) for f in subscript.formulas))
        return _with_names(subscript, names)


def _with_names(formula: Poly, names: Mapping[str, str]) -> Poly:
    return Poly.of({names[n]: c for n, c in formula.terms}, formula.const)
