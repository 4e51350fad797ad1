"""Dtype inference: promotion with weakly typed literals, and exact comparisons with them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
from tile_ir import numerics
from tile_ir.diagnostics import Span
from tile_ir.dtype import DType, promote
from tile_ir.program.nodes import Literal

from tile_lang.values import Const, Number, Tensor, fail


def weak_dtype(value: Number) -> DType:
    """The dtype of a constant that meets no tensor."""
    if isinstance(value, bool):
        return DType.BOOL
    return DType.INT32 if isinstance(value, int) else DType.FLOAT32


def unify(operands: Iterable[Tensor | Const]) -> DType:
    """The dtype in which an operation on these operands is computed.

    Tensors promote by `tile_ir.dtype.promote`; a constant takes that dtype, except: an integer beside bool
    gives int32, a float beside bool or integers gives float32. Only constants: int32, float32 or bool.
    """
    items = list(operands)
    tensors = [x.type.dtype for x in items if isinstance(x, Tensor)]
    consts = [x.value for x in items if isinstance(x, Const)]
    if not tensors:
        return reduce(promote, map(weak_dtype, consts))
    return reduce(_beside, consts, reduce(promote, tensors))


def _beside(dtype: DType, value: Number) -> DType:
    if dtype.is_float or isinstance(value, bool):
        return dtype
    if isinstance(value, float):
        return DType.FLOAT32
    return DType.INT32 if dtype is DType.BOOL else dtype


def math_dtype(operands: Iterable[Tensor | Const]) -> DType:
    """The dtype of a math function: float32 for integers and bool."""
    dtype = unify(operands)
    return dtype if dtype.is_float else DType.FLOAT32


def literal(value: Number, dtype: DType, span: Span | None) -> Literal:
    """The constant as a literal of `dtype`, rounded to it; TILE-E125 when the dtype cannot hold it."""
    if dtype is DType.BOOL:
        return Literal(bool(value), dtype)
    if dtype.is_float:
        rounded = rounded_to(value, dtype)
        if math.isinf(rounded) and not (isinstance(value, float) and math.isinf(value)):
            _out_of_range(value, dtype, span)
        return Literal(rounded, dtype)
    if value != value // 1 or not dtype.min_value <= value <= dtype.max_value:
        _out_of_range(value, dtype, span)
    return Literal(int(value), dtype)


def _out_of_range(value: Number, dtype: DType, span: Span | None) -> None:
    limits = "" if dtype.is_float else f", which holds {dtype.min_value} to {dtype.max_value}"
    shown = str(value) if len(str(value)) <= 24 else f"{str(value)[:20]}…"
    hint = "cast the tensor to a wider dtype first, for example with as_int(x, 64) or as_float(x, 32)"
    fail("TILE-E125", f"the constant {shown} does not fit {dtype}{limits}", span, hint)


def rounded_to(value: Number, dtype: DType) -> float:
    """The nearest value of a float dtype; infinite beyond its range."""
    try:
        wide = np.float64(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return float(numerics.cast_array(wide, dtype))


_SWAPPED = {"cmp_lt": "cmp_gt", "cmp_gt": "cmp_lt", "cmp_le": "cmp_ge", "cmp_ge": "cmp_le"}


def swapped(fn: str) -> str:
    """The comparison with its operands exchanged."""
    return _SWAPPED.get(fn, fn)


def exact_comparison(fn: str, value: Number, dtype: DType) -> tuple[str, Literal, bool]:
    """A comparison with a literal of `dtype` that says what ``x fn value`` says exactly, and whether to negate it.

    ``x`` has `dtype`, which is not bool. A float literal beside a float tensor is first rounded to the dtype
    (0.1 means the float32 next to it), an integer literal never is.
    """
    low, high = (_float_neighbours if dtype.is_float else _integer_neighbours)(value, dtype)
    make = float if dtype.is_float else int
    if low == high:
        return fn, Literal(make(low), dtype), False
    if fn in ("cmp_lt", "cmp_le") and low >= dtype.min_value:
        return "cmp_le", Literal(make(low), dtype), False
    if fn in ("cmp_gt", "cmp_ge") and high <= dtype.max_value:
        return "cmp_ge", Literal(make(high), dtype), False
    never = Literal(make(dtype.min_value), dtype)
    return "cmp_lt", never, fn == "cmp_ne"


def _integer_neighbours(value: Number, dtype: DType) -> tuple[int | float, int | float]:
    """Largest integer <= value and smallest >= value; equal when the dtype holds it."""
    lowest, highest = int(dtype.min_value), int(dtype.max_value)
    if isinstance(value, float) and not math.isfinite(value):
        return (highest, highest + 1) if value > 0 else (lowest - 1, lowest) if value < 0 else (lowest - 1, highest + 1)
    low, high = math.floor(value), math.ceil(value)
    if low > highest:
        return highest, highest + 1
    if high < lowest:
        return lowest - 1, lowest
    return low, high


def _float_neighbours(value: Number, dtype: DType) -> tuple[float, float]:
    rounded = rounded_to(value, dtype)
    if isinstance(value, float):
        exact = not math.isinf(rounded) or math.isinf(value)
        if math.isnan(value):
            return math.nan, math.nan
    else:
        exact = not math.isinf(rounded) and Fraction(rounded) == value
    if exact:
        return rounded, rounded
    above = rounded > value
    return (_next(rounded, -math.inf, dtype), rounded) if above else (rounded, _next(rounded, math.inf, dtype))


def _next(value: float, towards: float, dtype: DType) -> float:
    kind: Any = dtype.numpy.type
    return float(np.nextafter(kind(value), kind(towards)))
