"""Arithmetic of dimensions and literals at bind time: integers are exact and of any size.

Division of integers truncates as in C, also in sizes, so ``(N + 1) / 2`` rounds half up. ``ceil``, ``floor``, ``trunc``,
``round`` and ``round_even`` give integers, so that they may stand in a size. Math functions are computed in float64.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tile_ir import numerics
from tile_ir.diagnostics import Span
from tile_ir.dtype import DType
from tile_ir.ops import OPS, Signature

from tile_lang.limits import Limits
from tile_lang.values import BindFailure, Number, fail


def fold(fn: str, args: Sequence[Number], limits: Limits, span: Span | None) -> Number:
    """The constant ``fn(args…)``; BindFailure for a division by zero or a result beyond the limits."""
    if fn not in FOLDABLE:
        fail("TILE-E129", f"{fn} needs a tensor: it is not defined on constants alone", span)
    try:
        _check_growth(fn, args, limits, span)
        value: Number = _FOLDS[fn](*args) if fn in _FOLDS else _float(fn, *args)
    except ZeroDivisionError:
        fail("TILE-E133", "division by zero in a constant expression", span)
    except (OverflowError, ValueError):
        fail("TILE-E125", f"the constant result of {fn} is out of range", span)
    except TypeError:
        fail("TILE-E128", f"{fn} needs integers, not {', '.join(map(str, args))}", span)
    _check_bits(value.bit_length() if isinstance(value, int) else 0, limits, span)
    return value


def _check_growth(fn: str, args: Sequence[Number], limits: Limits, span: Span | None) -> None:
    """Refuse results with too many digits before they are computed."""
    if not all(isinstance(a, int) for a in args):
        return
    if fn == "bit_left" and args[0]:
        _check_bits(max(0, int(args[1])), limits, span)
    if fn == "pow" and args[1] > 0:
        _check_bits(max(0, int(args[0]).bit_length() - 1) * int(args[1]), limits, span)


def _check_bits(bits: int, limits: Limits, span: Span | None) -> None:
    if bits > limits.max_constant_bits:
        raise BindFailure(limits.diagnostic("max_constant_bits", bits, span))


def truncating_divide(a: int, b: int) -> int:
    """C's integer division, exact; ZeroDivisionError for b == 0."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _divide(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return truncating_divide(a, b)
    return _float("div", a, b)


def _remainder(a: Number, b: Number) -> Number:
    """C's: with the sign of `a`."""
    if isinstance(a, int) and isinstance(b, int):
        return a - b * truncating_divide(a, b)
    return math.fmod(a, b)


def _float(fn: str, *args: Number) -> float:
    return float(numerics.apply(fn, [np.float64(a) for a in args], DType.FLOAT64))


def _power(a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int) and b >= 0:
        return int(a) ** int(b)
    return _float("pow", a, b)


def _whole(a: Number) -> int:
    if isinstance(a, float):
        raise TypeError
    return a


def _shift_left(a: Number, b: Number) -> Number:
    value, count = _whole(a), _whole(b)
    return value << count if count >= 0 else 0


def _shift_right(a: Number, b: Number) -> Number:
    value, count = _whole(a), _whole(b)
    return value >> count if count >= 0 else (-1 if value < 0 else 0)


def _bits(fn: Callable[[int, int], int]) -> Callable[[Number, Number], Number]:
    return lambda a, b: fn(_whole(a), _whole(b))


def _bit_not(a: Number) -> Number:
    return not a if isinstance(a, bool) else ~_whole(a)


def _round(a: Number) -> int:
    """Halves away from zero."""
    return int(a) if not isinstance(a, float) else int(math.copysign(math.floor(abs(a) + 0.5), a))


def _extreme(pick: Callable[..., Any]) -> Callable[[Number, Number], Number]:
    def choose(a: Number, b: Number) -> Number:
        return next((x for x in (a, b) if math.isnan(x)), pick(a, b))

    return choose


def _relu(a: Number) -> Number:
    return 0 * a if a < 0 else a


def _sign(a: Number) -> Number:
    return type(a)((a > 0) - (a < 0)) if a and not math.isnan(a) else a


def _ident(a: Number) -> Number:
    return a


_FOLDS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _divide,
    "mod": operator.mod,
    "fmod": _remainder,
    "neg": operator.neg,
    "abs": operator.abs,
    "max": _extreme(max),
    "min": _extreme(min),
    "ident": _ident,
    "cmp_eq": operator.eq,
    "cmp_ne": operator.ne,
    "cmp_lt": operator.lt,
    "cmp_gt": operator.gt,
    "cmp_le": operator.le,
    "cmp_ge": operator.ge,
    "bit_and": _bits(lambda a, b: a & b),
    "bit_or": _bits(lambda a, b: a | b),
    "bit_xor": _bits(lambda a, b: a ^ b),
    "bit_not": _bit_not,
    "bit_left": _shift_left,
    "bit_right": _shift_right,
    "pow": _power,
    "ceil": math.ceil,
    "floor": math.floor,
    "round": _round,
    "round_even": round,
    "trunc": math.trunc,
    "relu": _relu,
    "sign": _sign,
}
FOLDABLE = frozenset(_FOLDS) | {n for n, op in OPS.items() if op.signature is Signature.MATH}
"""Functions of constants alone."""


def as_integer(value: Number) -> int | None:
    """The integer that a constant is, or None: floats are none, not even 3.0, and neither is True."""
    return None if isinstance(value, bool | float) else value
