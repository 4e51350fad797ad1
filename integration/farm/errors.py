"""By how much two correct implementations of a program may differ, proved from its operations and the data at hand.

Every value has an interval, a grid (all elements are multiples of `step`) and an error: 0 where the language demands the same
bits everywhere, else a bound on the absolute difference from the reference evaluator's element, infinite where the text
leaves the result open (a comparison of two rounded sums). Sums on a grid are exact in any order; what rounds follows the
standard model of floating-point arithmetic. Infinite and undefined elements do not count: they go their own way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_hal.conformance.tolerance import SUM_FACTOR, eps, ulp_bound
from tile_ir.dtype import DType
from tile_ir.ops import ROUNDINGS, Aggregation
from tile_ir.program.macros import expand
from tile_ir.program.nodes import (
    Argsort,
    ConstantTensor,
    Contraction,
    Elementwise,
    Gather,
    IndexOf,
    Literal,
    Op,
    Operand,
    Prng,
    Program,
    Reshape,
    ScalarStatement,
    Scatter,
    Subscript,
    lookups,
)
from tile_lang.domain import evaluate_form, tuples

MANTISSA = {DType.FLOAT16: 11, DType.BFLOAT16: 8, DType.FLOAT32: 24, DType.FLOAT64: 53}
GREATEST = {DType.FLOAT16: 65504.0, DType.BFLOAT16: 3.38e38, DType.FLOAT32: 3.4e38, DType.FLOAT64: 1.79e308}
OPEN = math.inf
FALLING = 4096
"""Values that may fall on one cell."""


@dataclass(frozen=True, slots=True)
class Range:
    """What is known of a value's elements: bounds, the grid (0: none), and the error."""

    low: float
    high: float
    step: float = 0.0
    error: float = 0.0
    signless: bool = False
    """Zeros among them may have either sign: the language leaves that open."""

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def open_zero(self) -> bool:
        return self.signless and self.low <= 0 <= self.high

    @property
    def smallest(self) -> float:
        """Distance from zero."""
        return 0.0 if self.low <= 0 <= self.high else min(abs(self.low), abs(self.high))

    def joined(self, other: Range) -> Range:
        """Elements of either."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        return Range(low, high, _grid(self, other), max(self.error, other.error), self.signless or other.signless)


ZERO = Range(0.0, 0.0, math.inf)
Ranges = dict[str, Range]


def bounds(program: Program, inputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, float]:
    """For each output by public name: the absolute error allowed, 0 for the same bits, infinity for anything."""
    known: Ranges = {p.name: _of_array(inputs[p.name], p.type.dtype) for p in program.inputs}
    with np.errstate(all="ignore"):
        for op in program.ops:
            _RULES[type(op)](op, known)
    return {public: known[name].error for public, name in program.outputs}


def _of_array(array: npt.NDArray[Any], dtype: DType) -> Range:
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if not finite.size:
        return ZERO
    step = 1.0 if np.all(finite == np.floor(finite)) else 0.0
    return _settled(Range(float(finite.min()), float(finite.max()), step), dtype)


def _grid(*ranges: Range) -> float:
    return 0.0 if any(not r.step for r in ranges) else min(r.step for r in ranges)


def _settled(found: Range, dtype: DType) -> Range:
    """What remains of a range when its elements are held in `dtype`."""
    if not dtype.is_float:
        low, high = float(dtype.min_value), float(dtype.max_value)
        error = OPEN if found.error else 0.0
        inside = low <= found.low and found.high <= high
        return Range(found.low, found.high, 1.0, error) if inside else Range(low, high, 1.0, error)
    signless = found.signless
    error = found.error + eps(dtype) * found.largest if found.error else 0.0
    if not found.largest <= GREATEST[dtype]:
        return Range(-GREATEST[dtype], GREATEST[dtype], 0.0, OPEN if error else 0.0, signless)
    fits = found.step and found.largest / found.step <= 2.0 ** MANTISSA[dtype]
    return Range(found.low, found.high, found.step if fits else 0.0, error, signless)


# --- scalar operations -------------------------------------------------------------------------------


def _hull(error: float, step: float, *ends: float) -> Range:
    return Range(min(ends), max(ends), step, error)


def _add(a: Range, b: Range) -> Range:
    return Range(a.low + b.low, a.high + b.high, _grid(a, b), a.error + b.error)


def _neg(a: Range) -> Range:
    return replace(a, low=-a.high, high=-a.low)


def _mul(a: Range, b: Range) -> Range:
    error = _times(a.error, b.largest) + _times(b.error, a.largest) + _times(a.error, b.error)
    step = 0.0 if not (a.step and b.step) else _times(a.step, b.step)
    return _hull(error, step, *(_times(x, y) for x in (a.low, a.high) for y in (b.low, b.high)))


def _times(x: float, y: float) -> float:
    return x * y if x and y else 0.0


def _max(a: Range, b: Range) -> Range:
    return replace(a.joined(b), low=max(a.low, b.low))


def _min(a: Range, b: Range) -> Range:
    return replace(a.joined(b), high=min(a.high, b.high))


def _abs(a: Range) -> Range:
    return Range(a.smallest, a.largest, a.step, a.error)


def _choice(test: Range, a: Range, b: Range) -> Range:
    return replace(a.joined(b), error=OPEN) if test.error else a.joined(b)


def _test(*operands: Range) -> Range:
    return Range(0, 1, 1.0, OPEN if any(r.error for r in operands) else 0.0)


def _whole(a: Range) -> Range:
    return Range(math.floor(a.low), math.ceil(a.high), 1.0, OPEN if a.error else 0.0)


def _fmod(a: Range, b: Range) -> Range:
    size = min(a.largest, b.largest)
    return Range(-size, size, _grid(a, b), OPEN if a.error or b.error else 0.0)


def _anything(*operands: Range) -> Range:
    """Bits of integers."""
    return Range(-OPEN, OPEN, 1.0, OPEN if any(r.error for r in operands) else 0.0)


def _divided(a: Range, b: Range) -> Range:
    least = b.smallest - b.error
    if not least > 0:
        return Range(-OPEN, OPEN, 0.0, OPEN)
    high = a.largest / least
    return Range(-high if a.low < 0 or b.low < 0 else 0.0, high, 0.0, (a.error + high * b.error) / least)


SIMPLE: Mapping[str, Callable[..., Range]] = {
    "add": _add, "sub": lambda a, b: _add(a, _neg(b)), "mul": _mul, "neg": _neg, "abs": _abs, "max": _max, "min": _min,
    "ident": lambda a: a, "cond": _choice, **dict.fromkeys(ROUNDINGS, _whole),
    "cmp_eq": _test, "cmp_ne": _test, "cmp_lt": _test, "cmp_gt": _test, "cmp_le": _test, "cmp_ge": _test,
    "bit_and": _anything, "bit_or": _anything, "bit_xor": _anything, "bit_not": _anything, "bit_left": _anything,
    "bit_right": _anything, "fmod": _fmod,
}  # fmt: skip
"""Operations that every implementation does bit by bit."""


def _exp(a: Range) -> Range:
    if a.high > 80 or a.error > 1:
        return Range(0, OPEN, 0.0, OPEN)
    return Range(math.exp(max(a.low - a.error, -700)), math.exp(a.high), 0.0, math.exp(a.high) * math.expm1(a.error))


def _log(a: Range) -> Range:
    least = a.low - a.error
    if not least > 0:
        return Range(-OPEN, OPEN, 0.0, OPEN)
    return Range(math.log(least), math.log(max(a.high, least)), 0.0, a.error / least)


def _sqrt(a: Range) -> Range:
    least = a.low - a.error
    if least < 0 or (a.error and not least):
        return Range(0, OPEN, 0.0, OPEN)
    return Range(math.sqrt(least), math.sqrt(a.high), 0.0, a.error and a.error / (2 * math.sqrt(least)))


def _pow(a: Range, b: Range) -> Range:
    least, power = a.low - a.error, b.largest
    if b.low == b.high == 2:
        return _mul(a, a)
    if not least > 0 or b.error or power * math.log(max(a.high, 1 / least, 2)) > 80:
        return Range(-OPEN, OPEN, 0.0, OPEN)
    high = max(a.high, 1 / least, 1.0) ** power
    return Range(1 / high, high, 0.0, power * high * a.error / least)


def _expm1(a: Range) -> Range:
    return _add(_exp(a), Range(-1, -1))


def _log1p(a: Range) -> Range:
    return _log(_add(a, Range(1, 1)))


def _atan2(a: Range, b: Range) -> Range:
    jumps = (a.open_zero and b.low <= 0) or (b.open_zero and a.low <= 0 <= a.high)
    return Range(-3.2, 3.2, 0.0, OPEN if a.error or b.error or jumps else 0.0)


def _bounded(low: float, high: float) -> Callable[[Range], Range]:
    return lambda a: Range(low, high, 0.0, a.error)


ROUNDED: Mapping[str, Callable[..., Range]] = {
    "div": _divided, "recip": lambda b: _divided(Range(1, 1, 1.0), b), "exp": _exp, "log": _log, "sqrt": _sqrt, "pow": _pow,
    "sin": _bounded(-1, 1), "cos": _bounded(-1, 1), "tanh": _bounded(-1, 1), "atan": _bounded(-1.6, 1.6),
    "expm1": _expm1, "log1p": _log1p, "erf": lambda a: Range(-1, 1, 0.0, 1.13 * a.error),
    "erfc": lambda a: Range(0, 2, 0.0, 1.13 * a.error), "asinh": lambda a: replace(a, step=0.0),
    "atan2": _atan2,
}  # fmt: skip
"""Operations that may be some units in the last place off."""


def _scalar(s: ScalarStatement, known: Mapping[str, Range]) -> Range:
    args = [_operand(a, known) for a in s.args]
    found = _computed(s, args)
    return replace(found, signless=s.fn in ("max", "min") or any(r.signless for r in args))


def _computed(s: ScalarStatement, args: Sequence[Range]) -> Range:
    if s.fn == "cast":
        return _settled(args[0] if s.dtype.is_float else _whole(args[0]), s.dtype)
    if s.fn in SIMPLE or (s.fn == "div" and not s.dtype.is_float):
        rule = SIMPLE.get(s.fn, _anything)
        return _settled(rule(*args), s.dtype)
    if s.fn not in ROUNDED:
        return Range(-OPEN, OPEN, 0.0, OPEN)
    found = ROUNDED[s.fn](*args)
    off = max(ulp_bound(s.fn, s.dtype), 1.0) * eps(s.dtype) * max(found.largest, 1e-30)
    return _settled(replace(found, error=found.error + 2 * off), s.dtype)


def _operand(operand: Operand, known: Mapping[str, Range]) -> Range:
    if not isinstance(operand, Literal):
        return known[operand]
    value = float(operand.value)
    if not math.isfinite(value):
        return Range(-OPEN, OPEN)
    shifted = math.ldexp(value, 10)
    return _settled(
        Range(value, value, 1.0 if value == int(value) else 2.0**-10 if shifted == int(shifted) else 0.0), operand.dtype
    )


def _statements(statements: Sequence[ScalarStatement], known: Ranges) -> Ranges:
    local = dict(known)
    for s in statements:
        local[s.dst] = _scalar(s, local)
    return local


# --- whole operations ----------------------------------------------------------------------------------


def _elementwise(op: Elementwise, known: Ranges) -> None:
    statements = expand(op.fn, op.args, op.type.dtype)
    known[op.name] = _settled(_statements(statements, known)[statements[-1].dst], op.type.dtype)


def _contraction(op: Contraction, known: Ranges) -> None:
    local = {load.dst: _operand(load.tensor, known) for load in op.loads}
    each = _settled(_operand(op.result, _statements(op.body, local)), op.acc)
    least, most, covered = _terms(op)
    found = _AGGREGATED[op.agg](each, least, most, op.acc) if most else ZERO
    found = found if covered else found.joined(ZERO)
    found = found if op.default is None else found.joined(known[op.default])
    signless = each.signless or op.agg is not Aggregation.ASSIGN
    known[op.name] = _settled(replace(found, signless=signless or found.signless), op.type.dtype)


def _terms(op: Contraction) -> tuple[int, int, bool]:
    """Fewest and most index tuples that reach a cell that any reaches, and whether each cell is reached."""
    table = tuples(op.constraints, op.indexes)
    cells = np.zeros(len(table), np.int64)
    for formula, extent in zip(op.output, op.type.shape, strict=True):
        cells = cells * extent + evaluate_form(formula, op.indexes, table)[0].astype(np.int64)
    if not len(cells):
        return 0, 0, op.type.size == 0
    counts = np.bincount(cells)
    reached = counts[counts > 0]
    return int(reached.min()), int(reached.max()), len(reached) == op.type.size


def _sum(each: Range, least: int, most: int, acc: DType) -> Range:
    low, high = min(each.low * least, each.low * most), max(each.high * least, each.high * most)
    found = Range(low, high, each.step, most * each.error)
    total = most * each.largest
    exact = not acc.is_float or (each.step and total / each.step <= 2.0 ** MANTISSA[acc])
    if not each.error and exact:
        return found
    return replace(found, error=found.error + SUM_FACTOR * (most + 1) * eps(acc) * total)


def _product(each: Range, least: int, most: int, acc: DType) -> Range:
    size = max(each.largest, 1.0)
    high = size**most if most * math.log(size) < 80 else OPEN
    fewest = least if each.low >= 1 else most
    low = 1.0 if fewest * math.log(max(each.low, 1.0)) > 80 else each.low**fewest if each.low >= 0 else -high
    if not each.error and (not acc.is_float or (each.step == 1 and high <= 2.0 ** MANTISSA[acc])):
        return Range(low, high, 1.0)
    return Range(low, high, 0.0, most * _times(high, each.error) + 2 * (most + 1) * eps(acc) * high)


def _kept(each: Range, least: int, most: int, acc: DType) -> Range:
    return each


_AGGREGATED: Mapping[Aggregation, Callable[[Range, int, int, DType], Range]] = {
    Aggregation.SUM: _sum, Aggregation.PROD: _product, Aggregation.MAX: _kept, Aggregation.MIN: _kept, Aggregation.ASSIGN: _kept,
}  # fmt: skip


def _index_of(op: IndexOf, known: Ranges) -> None:
    known[op.name] = Range(0, max(op.type.shape[op.axis] - 1, 0), 1.0)


def _reshape(op: Reshape, known: Ranges) -> None:
    known[op.name] = known[op.arg]


def _constant(op: ConstantTensor, known: Ranges) -> None:
    known[op.name] = _of_array(np.frombuffer(op.data, op.type.dtype.numpy.newbyteorder("<")), op.type.dtype)


def _gather(op: Gather, known: Ranges) -> None:
    known[op.name] = _chosen(known[op.data].joined(ZERO), op.subscripts, known)


def _scatter(op: Scatter, known: Ranges) -> None:
    found = _AGGREGATED[op.agg](known[op.updates], 1, FALLING, op.acc).joined(ZERO)
    found = found if op.default is None else found.joined(known[op.default])
    found = replace(found, signless=found.signless or op.agg is not Aggregation.ASSIGN)
    known[op.name] = _settled(_chosen(found, op.subscripts, known), op.type.dtype)


def _chosen(found: Range, subscripts: tuple[Subscript, ...], known: Ranges) -> Range:
    """What is found at data: anything, where the data may differ."""
    return replace(found, error=OPEN) if any(known[name].error for name in lookups(subscripts)) else found


def _argsort(op: Argsort, known: Ranges) -> None:
    found = Range(0, 1 << 20, 1.0)
    known[op.name] = replace(found, error=OPEN) if known[op.arg].error else found


def _prng(op: Prng, known: Ranges) -> None:
    known[op.value] = Range(0, 1)
    known[op.state] = Range(0, float(DType.UINT32.max_value), 1.0)


_RULES: Mapping[type[Op], Callable[[Any, Ranges], None]] = {
    Elementwise: _elementwise, Contraction: _contraction, IndexOf: _index_of, Reshape: _reshape, ConstantTensor: _constant,
    Gather: _gather, Scatter: _scatter, Argsort: _argsort, Prng: _prng,
}  # fmt: skip
