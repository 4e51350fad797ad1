"""Scatters of floats and of the last value, as scatters of integers whose result no order of values changes.

A device whose integers in memory can be changed by many items at once then needs no order between the rows that meet:
- the largest and the smallest of floats by keys in their order;
- sums of floats in fixed point;
- ``=`` by the number of the last row, which is then looked up;
- narrow integers in 32 bits, where what is never a value says that a cell has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.program.liveness import defined_by
from tile_ir.program.nodes import Gather, Op, Program, Scatter, TensorType

from tile_opt.program.base import OpRewrite, with_each
from tile_opt.program.float_bits import FORMATS, WORD, FixedPoint, Format, Ordered
from tile_opt.program.literals import rests_at_identity
from tile_opt.program.scatter_rows import ScatterRows
from tile_opt.program.steps import Cells, Scalar, Steps

MOST = 1 << 31
"""Values that may fall on a cell, so that 32 bits count them."""
SUMMED, MERGED = 24, 8
"""Bytes that are written and read for a cell beside the result, of sums and of others."""
SPARE = 1 << 28
"""Bytes whose traffic takes longer than the kernels that find the rows of cells."""
EXTREMES = (Aggregation.MAX, Aggregation.MIN)
UNSIGNED = {
    DType.INT32: DType.UINT32, DType.INT64: DType.UINT64, DType.UINT32: DType.UINT32, DType.UINT64: DType.UINT64,
}  # fmt: skip


@frozen
class IntegerScatters(OpRewrite):
    """Scatters as scatters of 32 and 64 bit integers; products of floats, and what is boolean, stay as they are."""

    widest: int = 64
    """Bits of the widest integers that items may change at once."""

    def apply(self, program: Program) -> Program:
        makers = {name: op for op in program.ops for name in defined_by(op)}
        types = program.types()
        taken = set(types)

        def made(op: Op) -> Iterable[Op]:
            kept = isinstance(op, Scatter) and _needs_nothing(op, makers)
            return (op,) if kept else self.instead(types, taken, op)

        return with_each(program, made)

    def instead(self, types: Mapping[str, TensorType], taken: set[str], op: Op) -> Iterable[Op]:
        made = self._made(op, Steps(op.name, types, taken, op.origin)) if isinstance(op, Scatter) else None
        return (op,) if made is None else made

    def _made(self, op: Scatter, steps: Steps) -> list[Op] | None:
        """The operations in place of a scatter; None where it stays."""
        if not (0 < steps.type(op.updates).size < MOST and op.type.size and self._has(op)):
            return None
        rows = ScatterRows.of(op, steps.type(op.updates).shape)
        if op.agg is Aggregation.ASSIGN:
            result = _last(op, steps, rows) if rows.numbered else None
        elif op.type.dtype.is_float:
            sparse = rows.numbered and _is_sparse(op, steps)
            result = _among_rows(op, steps, rows) if sparse else _floats(op, steps)
        else:
            result = _narrow(op, steps, rows) if op.type.dtype.bits < 32 else _wide(op, steps, rows)
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


def _needs_nothing(op: Scatter, makers: Mapping[str, Op]) -> bool:
    """Integers of 32 and 64 bits whose cells need no flags."""
    return op.type.dtype.is_integer and op.type.dtype.bits >= 32 and rests_at_identity(op, makers)


def _is_sparse(op: Scatter, steps: Steps) -> bool:
    """So many cells get nothing that a pass over all of them takes longer than finding those that do."""
    nothing = op.type.size - steps.type(op.updates).size
    return nothing * (SUMMED if op.agg is Aggregation.SUM else MERGED) >= SPARE


def _floats(op: Scatter, steps: Steps) -> str:
    format = FORMATS[DType.FLOAT64 if op.type.dtype is DType.FLOAT64 else DType.FLOAT32]
    if op.agg is Aggregation.SUM:
        return _sum(op, steps, format)
    smallest = op.agg is Aggregation.MIN
    given = steps.cells(steps.type(op.updates).shape)
    value = given.load(op.updates).cast(format.dtype)
    found = _scatter(op, steps, given.store(Ordered(format, smallest).key(value)), Aggregation.MAX)
    cells = steps.cells(op.type.shape)
    key = cells.load(found)
    return _settled(op, cells, key, Ordered(format, smallest).value(key))


def _sum(op: Scatter, steps: Steps, format: Format) -> str:
    type = steps.type(op.updates)
    fixed, cells = FixedPoint(format, type.size), steps.cells(type.shape)
    exponents = cells.store(fixed.exponent(cells.load(op.updates).cast(format.dtype)))
    largest = _scatter(op, steps, exponents, Aggregation.MAX)
    there = steps.add(Gather(steps.name(), TensorType(DType.UINT32, type.shape), largest, op.subscripts, op.origin))
    words: list[str] = []
    for k in range(format.words):
        cells = steps.cells(type.shape)
        word = fixed.words(cells.load(op.updates).cast(format.dtype), cells.load(there))[k]
        words.append(_scatter(op, steps, cells.store(word), Aggregation.SUM))
    cells = steps.cells(op.type.shape)
    exponent = cells.load(largest)
    return _settled(op, cells, exponent, fixed.value([cells.load(w) for w in words], exponent))


def _wide(op: Scatter, steps: Steps, rows: ScatterRows) -> str | None:
    """Integers of 32 and 64 bits from 0 on, extremes as unsigned ones, and which cells have some."""
    dtype, extreme = op.type.dtype, op.agg in EXTREMES
    given, cells = steps.cells(steps.type(op.updates).shape), steps.cells(op.type.shape)
    value, least = given.load(op.updates), _least(op)
    numbers = given.store((value ^ least).bits(UNSIGNED[dtype])) if extreme else op.updates
    found = cells.load(_scatter(op, steps, numbers, Aggregation.MAX if extreme else op.agg))
    return _where_there(op, steps, rows, cells, found.bits(dtype) ^ least if extreme else found)


def _least(op: Scatter) -> int:
    """From what all values of a cell are counted, up or down, by the bits in which they differ from it."""
    dtype = op.type.dtype
    return int(dtype.min_value if op.agg is Aggregation.MAX else dtype.max_value)


def _narrow(op: Scatter, steps: Steps, rows: ScatterRows) -> str | None:
    """Integers of 8 and 16 bits, in 32."""
    given, cells = steps.cells(steps.type(op.updates).shape), steps.cells(op.type.shape)
    wide = given.load(op.updates).cast(DType.INT32)
    if op.agg not in EXTREMES:
        found = cells.load(_scatter(op, steps, given.store(wide), op.agg)).cast(op.type.dtype)
        unset = op.default is None and op.agg is Aggregation.SUM
        return cells.store(found) if unset else _where_there(op, steps, rows, cells, found)
    # From 1 on, so that 0 is a cell without a value.
    low, high = int(op.type.dtype.min_value), int(op.type.dtype.max_value)
    smallest, none = op.agg is Aggregation.MIN, high + 1 if op.agg is Aggregation.MIN else 1 - low
    number = wide.number(none, wide.dtype) - wide if smallest else wide + none
    found = cells.load(_scatter(op, steps, given.store(number.cast(DType.UINT32)), Aggregation.MAX))
    number = found.cast(DType.INT32)
    return _settled(op, cells, found, number.number(none, number.dtype) - number if smallest else number - none)


def _where_there(op: Scatter, steps: Steps, rows: ScatterRows, cells: Cells, value: Scalar) -> str | None:
    """`value` for the cells that rows fall on; None where no two fall on one."""
    return _settled(op, cells, cells.load(rows.there(op, steps)), value) if rows.numbered else None


def _scatter(op: Scatter, steps: Steps, values: str, agg: Aggregation) -> str:
    """The same scatter of other values; cells without any are at the identity."""
    type = TensorType(steps.type(values).dtype, op.type.shape)
    identity = type.dtype.number(agg.identity(type.dtype))
    default = steps.constant(identity, type.dtype) if identity else None
    return steps.add(Scatter(steps.name(), type, values, op.subscripts, agg, default, op.origin))


def _settled(op: Scatter, cells: Cells, found: Scalar, value: Scalar) -> str:
    """The result: `value` in its dtype where `found` is not 0; elsewhere the default, or 0."""
    otherwise = 0 if op.default is None else cells.load(op.default)
    return cells.store(found.is_not(0).choose(value.cast(op.type.dtype), otherwise))


# --- by the last row -------------------------------------------------------------------------------


def _last(op: Scatter, steps: Steps, rows: ScatterRows) -> str:
    """The number of the last row that falls on a cell, and then the value of that row."""
    return _looked_up(op, steps, rows, rows.last(op, steps), op.updates)


def _among_rows(op: Scatter, steps: Steps, rows: ScatterRows) -> str:
    """Values merge with those of the last row that falls on the same cell, of whom there are fewer than cells."""
    last = rows.last(op, steps)
    type = TensorType(op.type.dtype, steps.type(op.updates).shape)
    inner = Scatter("", type, op.updates, rows.meeting(op, steps, last), op.agg, None, op.origin)
    return _looked_up(op, steps, rows, last, _floats(inner, steps))


def _looked_up(op: Scatter, steps: Steps, rows: ScatterRows, last: str, values: str) -> str:
    """For each cell the value of the last row, where there is one."""
    value = steps.add(Gather(steps.name(), op.type, values, rows.found(steps, last), op.origin))
    cells = steps.cells(op.type.shape)
    return _settled(op, cells, cells.load(last), cells.load(value))
