"""The executable definition of every scalar operation and aggregation, on NumPy arrays.

The reference evaluator, the Stripe interpreter and the semtree interpreter all compute through
this one table, so that the stages agree by construction. The rules stand in `docs/language.md`.

- Integers wrap silently; `div` truncates, x/0 is 0 and MIN/-1 wraps; a shift count outside
  [0, width) gives 0, or the sign for a signed `bit_right`.
- float16 and bfloat16 are widened to float32, computed there and rounded once per operation. A cast
  to one of them goes through float32 as well.
- Math functions of float32 are computed in float64 and rounded: the values that a backend's ULP
  bounds are measured from.
- Bool arithmetic is integer arithmetic followed by ``!= 0``: add is or, mul is and, sub is xor.
- NaN propagates through max and min; float to integer saturates and NaN becomes 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_ir.dots import DOTS, WORD
from tile_ir.dtype import DType, from_numpy
from tile_ir.ops import OPS, ROUNDINGS, Aggregation, Signature

Array = npt.NDArray[Any]

AGGREGATION_UFUNCS: Mapping[Aggregation, np.ufunc] = {
    Aggregation.SUM: np.add,
    Aggregation.PROD: np.multiply,
    Aggregation.MAX: np.maximum,
    Aggregation.MIN: np.minimum,
}
"""The NumPy function that merges two values, for every aggregation but ASSIGN."""


def apply(name: str, args: Sequence[npt.ArrayLike], dtype: DType) -> Array:
    """The result of operation `name` with result dtype `dtype`, elementwise with broadcasting.

    Operands have the dtypes of the operation's signature (`tile_ir.ops`); for a SAME, MATH or BITS
    operation operands of another dtype are cast to `dtype` first. The result may share memory with
    an operand. KeyError for an unknown operation, ValueError for a wrong number of operands.
    """
    op = OPS[name]
    if len(args) != op.arity:
        raise ValueError(f"{name} takes {op.arity} operands, not {len(args)}")
    arrays = [np.asarray(arg) for arg in args]
    with np.errstate(all="ignore"):
        return np.asarray(_BY_SIGNATURE[op.signature](name, arrays, dtype))


def cast_array(value: npt.ArrayLike, dtype: DType) -> Array:
    """`value` converted to `dtype`: integers wrap, float to integer saturates, to bool is ``!= 0``."""
    array = np.asarray(value)
    if array.dtype == dtype.numpy:
        return array
    with np.errstate(all="ignore"):
        return _cast(array, dtype)


def identity(agg: Aggregation, dtype: DType) -> Array:
    """The 0-d array that partial results of `agg` start from."""
    return np.asarray(agg.identity(dtype)).astype(dtype.numpy)


def merge(agg: Aggregation | None, old: npt.ArrayLike, new: npt.ArrayLike, dtype: DType) -> Array:
    """One aggregation step in `dtype`: ``old + new`` and so on; ASSIGN and None give `new`."""
    if agg is None or agg is Aggregation.ASSIGN:
        cast = cast_array(new, dtype)
        shape = np.shape(old)
        return cast if cast.shape == shape else np.broadcast_to(cast, np.broadcast_shapes(shape, cast.shape))
    return apply(agg.op, (old, new), dtype)


def aggregate(
    agg: Aggregation, values: npt.ArrayLike, axis: int | tuple[int, ...] | None = None, dtype: DType | None = None
) -> Array:
    """Combine `values` over `axis` (None: all) into `dtype` (default: that of the values).

    Accumulates in ``dtype.accumulator`` and rounds once; combining nothing gives the identity.
    ASSIGN takes the last value along the axes, 0 when there is none.
    """
    array = np.asarray(values)
    dtype = dtype or from_numpy(array.dtype)
    wide = dtype.accumulator
    with np.errstate(all="ignore"):
        return _cast(np.asarray(_reduce(agg, _cast(array, wide), axis, wide)), dtype)


def _reduce(agg: Aggregation, array: Array, axis: int | tuple[int, ...] | None, dtype: DType) -> Array:
    if agg is Aggregation.ASSIGN:
        return _last(array, axis)
    if dtype is DType.BOOL:
        widest = agg in (Aggregation.SUM, Aggregation.MAX)
        return np.asarray(np.any(array, axis=axis) if widest else np.all(array, axis=axis))
    ufunc = AGGREGATION_UFUNCS[agg]
    kwargs: dict[str, Any] = {} if agg in (Aggregation.MAX, Aggregation.MIN) else {"dtype": dtype.numpy}
    return np.asarray(ufunc.reduce(array, axis=axis, initial=agg.identity(dtype), **kwargs))


def _last(array: Array, axis: int | tuple[int, ...] | None) -> Array:
    axes = range(array.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    dims = {a % array.ndim for a in axes} if array.ndim else set[int]()
    shape = tuple(n for d, n in enumerate(array.shape) if d not in dims)
    if any(array.shape[d] == 0 for d in dims):
        return np.zeros(shape, array.dtype)
    return array[tuple(-1 if d in dims else slice(None) for d in range(array.ndim))]


# --- casts ---------------------------------------------------------------------------------------


def _cast(x: Array, dtype: DType) -> Array:
    target = dtype.numpy
    if x.dtype == target:
        return x
    if dtype is DType.BOOL:
        return np.not_equal(x, x.dtype.type(0))
    if _is_float(x):
        return _float_to_integer(x, dtype) if dtype.is_integer else _through_float32(x, dtype)
    return _through_float32(x, dtype) if dtype.is_float else x.astype(target)


def _is_float(x: Array) -> bool:
    return x.dtype.kind == "f" or _is_bfloat16(x)


def _is_bfloat16(x: Array) -> bool:
    """The name of a dtype is put together each time: only those of two bytes are asked for it."""
    return x.dtype.itemsize == 2 and x.dtype.name == "bfloat16"


def _through_float32(x: Array, dtype: DType) -> Array:
    if dtype in (DType.FLOAT16, DType.BFLOAT16) or _is_bfloat16(x):
        x = x.astype(np.float32)
    return x.astype(dtype.numpy)


def _float_to_integer(x: Array, dtype: DType) -> Array:
    wide = np.trunc(x.astype(np.float64))
    low, high = int(dtype.min_value), int(dtype.max_value)
    above, below = wide >= float(high + 1), wide < float(low)
    safe = np.where(above | below | np.isnan(wide), 0.0, wide).astype(dtype.numpy)
    return np.where(above, dtype.numpy.type(high), np.where(below, dtype.numpy.type(low), safe))


# --- operations by signature ---------------------------------------------------------------------


def _same(name: str, args: list[Array], dtype: DType) -> Array:
    return _in_compute_dtype(_ARITHMETIC[name], args, dtype, _COMPUTE.get(dtype, dtype))


def _math(name: str, args: list[Array], dtype: DType) -> Array:
    shape = np.broadcast_shapes(*(arg.shape for arg in args))
    return _math_of_full(name, [_full(arg, shape) for arg in args], dtype)[: math.prod(shape)].reshape(shape)


def _full(x: Array, shape: tuple[int, ...]) -> Array:
    """The operand's elements in one contiguous row of at least two.

    NumPy has other code for operands that are broadcast, strided or single, and some of it gives other bits: a
    broadcast exponent of 0.5 becomes a square root, which is NaN at -inf where pow is inf.
    """
    row = np.broadcast_to(x, shape).reshape(-1)
    return np.ascontiguousarray(row if row.size > 1 else np.repeat(row, 2))


def _math_of_full(name: str, args: list[Array], dtype: DType) -> Array:
    if dtype is DType.FLOAT64 or name in _EXACT:
        return _in_compute_dtype(_MATH[name], args, dtype, _COMPUTE.get(dtype, dtype))
    half = dtype in (DType.FLOAT16, DType.BFLOAT16)
    result = _in_compute_dtype(_MATH[name], args, DType.FLOAT32 if half else dtype, DType.FLOAT64)
    return _cast(result, dtype)


def _in_compute_dtype(function: Callable[..., Any], args: list[Array], dtype: DType, compute: DType) -> Array:
    wide = [_cast(_cast(arg, dtype), compute) for arg in args]
    return _cast(np.asarray(function(*wide)), dtype)


_COMPUTE = {DType.FLOAT16: DType.FLOAT32, DType.BFLOAT16: DType.FLOAT32, DType.BOOL: DType.INT8}


def _compare(name: str, args: list[Array], dtype: DType) -> Array:
    left, right = (arg.astype(np.float32) if _is_bfloat16(arg) else arg for arg in args)
    return _cast(np.asarray(_COMPARE[name](left, right)), dtype)


def _select(name: str, args: list[Array], dtype: DType) -> Array:
    del name
    condition, yes, no = args
    return np.where(_cast(condition, DType.BOOL), _cast(yes, dtype), _cast(no, dtype))


def _convert(name: str, args: list[Array], dtype: DType) -> Array:
    del name
    return _cast(args[0], dtype)


def _reinterpret(name: str, args: list[Array], dtype: DType) -> Array:
    del name
    return np.ascontiguousarray(args[0]).view(dtype.numpy).reshape(args[0].shape)


def _bits(name: str, args: list[Array], dtype: DType) -> Array:
    return np.asarray(_BITWISE[name](*(_cast(arg, dtype) for arg in args)))


def _shift(name: str, args: list[Array], dtype: DType) -> Array:
    value, count = _cast(args[0], dtype), args[1]
    if dtype is DType.BOOL:
        value = value.view(np.uint8)
    width = value.dtype.itemsize * 8
    # Bits are moved as unsigned, where a left shift into the sign is defined.
    unsigned = np.dtype(f"u{value.dtype.itemsize}")
    valid = np.greater_equal(count, 0) & np.less(count, width)
    within = bool(valid.all())
    safe = count if within else np.where(valid, count, 0)
    zero = value.dtype.type(0)
    if name == "bit_left":
        moved, beyond = np.left_shift(value.view(unsigned), safe.astype(unsigned)).view(value.dtype), zero
    else:
        moved = np.right_shift(value, safe.astype(value.dtype))
        beyond = np.where(value < 0, value.dtype.type(-1), zero) if dtype.is_signed and not within else zero
    return _cast(moved if within else np.where(valid, moved, beyond), dtype)


def _dot(name: str, args: list[Array], dtype: DType) -> Array:
    """``c`` and the products of factors of equal place in two words: see `tile_ir.dots`."""
    dot = DOTS[name]
    words = [np.ascontiguousarray(_cast(x, WORD))[..., None] for x in args[:2]]
    if dot.c.is_float:
        return _dot_of_floats(halves(words[0][..., 0], dot.a), halves(words[1][..., 0], dot.b), args[2])
    a, b = (x.view(kind.numpy) for x, kind in zip(words, (dot.a, dot.b), strict=True))
    return _cast((a.astype(np.int64) * b).sum(axis=-1) + args[2].astype(np.int64), dtype)


def halves(words: Array, dtype: DType) -> Array:
    """The two 16-bit floats of each word as float32, along a last axis; a bfloat16 is the high half of one."""
    bits = np.ascontiguousarray(words)[..., None].view(np.uint16)
    if dtype is DType.FLOAT16:
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _dot_of_floats(a: Array, b: Array, total: Array) -> Array:
    """The products along the last axis, the last one first, added to `total` with one rounding each; without subnormals."""
    total = flushed(total)
    for q in reversed(range(a.shape[-1])):
        total = flushed(fma32(flushed(a[..., q]), flushed(b[..., q]), total))
    return np.where(np.isnan(total), np.float32(np.nan), total)


def flushed(value: Array) -> Array:
    """float32 with a zero of the same sign in place of each subnormal number."""
    return np.where(np.abs(value) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), value), value)


_BEYOND = (1 << 29) - 1
"""Bits of a float64 that a normal float32 lacks."""
_TIE = 1 << 28
"""What they are half-way between two of these."""
_MAGNITUDE = (1 << 63) - 1
_NORMAL = int(np.float64(np.finfo(np.float32).tiny).view(np.int64))
"""The least float64 that is a normal float32, as bits."""


def fma32(a: Array, b: Array, c: Array, dtype: np.dtype[Any] | type = np.float32) -> Array:
    """``a * b + c`` rounded once, to float32 or less.

    The product is exact in float64; the sum is rounded to odd there, so that the last rounding decides alone.
    """
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = np.asarray(product + addend)
    if dtype == np.float32 and not np.count_nonzero(_doubtful(total.view(np.int64))):
        return total.astype(np.float32)
    back = total - product
    error = (product - (total - back)) + (addend - back)
    even = (total.view(np.int64) & 1) == 0
    nudge = np.isfinite(total) & (error != 0) & even
    odd = np.where(nudge, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)
    return np.asarray(odd).astype(dtype)


def _doubtful(bits: Array) -> Array:
    """Where rounding a float64, itself rounded, to float32 may differ from rounding once: at ties and below normal numbers.

    Zeros are exact: no product of two float32 is lost in float64, and no sum that cancels is rounded.
    """
    magnitude = bits & _MAGNITUDE
    return ((bits & _BEYOND) == _TIE) | ((magnitude != 0) & (magnitude < _NORMAL))


_BY_SIGNATURE: dict[Signature, Callable[[str, list[Array], DType], Array]] = {
    Signature.SAME: _same,
    Signature.MATH: _math,
    Signature.COMPARE: _compare,
    Signature.SELECT: _select,
    Signature.CAST: _convert,
    Signature.BITCAST: _reinterpret,
    Signature.BITS: _bits,
    Signature.SHIFT: _shift,
    Signature.DOT: _dot,
}


# --- tables --------------------------------------------------------------------------------------


def _divide(a: Array, b: Array) -> Array:
    if _is_float(a):
        return np.divide(a, b)
    zero = b == 0
    divisor = np.where(zero, b.dtype.type(1), b)
    if a.dtype.kind == "u":
        return np.where(zero, a.dtype.type(0), a // divisor)
    # MIN // -1 overflows in hardware, so -1 is a (wrapping) negation instead.
    minus = divisor == -1
    safe = np.where(minus, b.dtype.type(1), divisor)
    quotient = a // safe
    inexact_negative = (quotient * safe != a) & ((a < 0) != (safe < 0))
    quotient = quotient + inexact_negative.astype(a.dtype)
    return np.where(zero, a.dtype.type(0), np.where(minus, np.negative(a), quotient))


def _round(x: Array) -> Array:
    """Nearest integer, halves away from zero; keeps the sign of zero."""
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole)


def _identity(x: Array) -> Array:
    return x


def _recip(x: Array) -> Array:
    return np.divide(x.dtype.type(1), x)


def _by_element(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of the C library that NumPy lacks, of a row of float64."""

    def apply_to_row(x: Array) -> Array:
        return np.fromiter(map(function, x.tolist()), np.float64, x.size)

    return apply_to_row


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "neg": np.negative,
    "abs": np.absolute,
    "max": np.maximum,
    "min": np.minimum,
    "ident": _identity,
}
_MATH: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "ceil": np.ceil,
    "floor": np.floor,
    "round": _round,
    "recip": _recip,
    "pow": np.power,
    "expm1": np.expm1,
    "log1p": np.log1p,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": _by_element(math.erf),
    "erfc": _by_element(math.erfc),
    "trunc": np.trunc,
    "round_even": np.rint,
    "atan2": np.arctan2,
    "fmod": np.fmod,
}
_EXACT = ROUNDINGS | {"sqrt", "recip", "fmod"}
"""Correctly rounded in the operand's own precision, so they need no wider one."""
_COMPARE: dict[str, Callable[..., Any]] = {
    "cmp_eq": np.equal,
    "cmp_ne": np.not_equal,
    "cmp_lt": np.less,
    "cmp_gt": np.greater,
    "cmp_le": np.less_equal,
    "cmp_ge": np.greater_equal,
}
_BITWISE: dict[str, Callable[..., Any]] = {
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "bit_not": np.invert,
}
