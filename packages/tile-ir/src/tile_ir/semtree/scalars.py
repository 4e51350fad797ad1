"""What the interpreter computes with: one Python function per operation and type.

Values are Python ints and bools, NumPy scalars for floats, and 1-D arrays for vectors. Every function
gives exactly what `tile_ir.numerics.apply` gives; common ones take a shorter way there. NumPy's
floating-point warnings are expected to be off (`interpret.launch` sees to that).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import inf, isfinite, nextafter
from struct import pack, unpack
from typing import Any

import numpy as np

from tile_ir import numerics
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.semtree.nodes import Type

Value = Any
Operation = Callable[..., Value]


def unary(function: Callable[[Value], Value]) -> Operation:
    """States the type of a lambda."""
    return function


def binary(function: Callable[[Value, Value], Value]) -> Operation:
    """States the type of a lambda."""
    return function


_EXACT_FLOATS = (DType.FLOAT32, DType.FLOAT64)
_PLAIN: dict[str, Operation] = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
_FLOATS: dict[str, Operation] = {
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "abs": np.absolute,
    "neg": operator.neg,
}
"""What is one function of NumPy on floats that are computed in their own dtype."""
_BITS: dict[str, Operation] = {
    "bit_and": binary(lambda a, b: a & b),
    "bit_or": binary(lambda a, b: a | b),
    "bit_xor": binary(lambda a, b: a ^ b),
}
_COMPARE: dict[str, Operation] = {
    "cmp_eq": operator.eq, "cmp_ne": operator.ne, "cmp_lt": operator.lt,
    "cmp_gt": operator.gt, "cmp_le": operator.le, "cmp_ge": operator.ge,
}  # fmt: skip


def value_of(array: Any, t: Type) -> Value:
    """An array of numerics as a value of type `t`."""
    array = np.asarray(array)
    if t.lanes != 1:
        return array.reshape(t.lanes)
    return array.reshape(())[()] if t.dtype.is_float else array.item()


def constant(value: int | float | bool, t: Type) -> Value:
    """A literal as a value; vectors hold it in every lane."""
    scalar = np.asarray(value).astype(t.dtype.numpy) if t.dtype.is_float else np.asarray(value, t.dtype.numpy)
    return value_of(scalar if t.lanes == 1 else np.full(t.lanes, scalar[()], t.dtype.numpy), t)


def wrapper(dtype: DType) -> Callable[[int], int]:
    """Wraps a Python integer to the dtype's width."""
    low, high, mask = int(dtype.min_value), int(dtype.max_value), (1 << dtype.bits) - 1

    def wrap(x: int) -> int:
        return x if low <= x <= high else ((x - low) & mask) + low

    return wrap


def operation(name: str, operands: Sequence[Type], result: Type) -> Operation:
    """The function that computes operation `name` of `tile_ir.ops` (or "mod") on values of these types."""
    if name == "mod":
        return _mod(result)
    short = _short_vector(name, operands[0]) if result.lanes != 1 else _short_scalar(name, operands[0])
    return short or _by_table(name, operands, result)


def _by_table(name: str, operands: Sequence[Type], result: Type) -> Operation:
    dtypes = [t.dtype.numpy for t in operands]

    def run(*args: Value) -> Value:
        arrays = [np.asarray(arg, dtype) for arg, dtype in zip(args, dtypes, strict=True)]
        return value_of(numerics.apply(name, arrays, result.dtype), result)

    return run


def _short_vector(name: str, t: Type) -> Operation | None:
    if t.dtype in _EXACT_FLOATS:
        return _PLAIN.get(name) or _COMPARE.get(name) or _FLOATS.get(name)
    return (_PLAIN.get(name) or _COMPARE.get(name)) if t.dtype.is_integer else None


def _short_scalar(name: str, t: Type) -> Operation | None:
    if t.dtype.is_integer:
        return _short_integer(name, t.dtype)
    if name in _COMPARE and t.dtype is not DType.BFLOAT16:
        compare = _COMPARE[name]
        return binary(lambda a, b: bool(compare(a, b)))
    if t.dtype is DType.BOOL:
        return _BITS.get(name)
    if t.dtype in _EXACT_FLOATS:
        return _PLAIN.get(name) or _FLOATS.get(name)
    return None


def _short_integer(name: str, dtype: DType) -> Operation | None:
    if name in _COMPARE or name in _BITS:
        return _COMPARE.get(name) or _BITS[name]
    if name in ("max", "min"):
        return max if name == "max" else min
    wrap = wrapper(dtype)
    if name in _PLAIN:
        return _wrapped(name, dtype, wrap)
    if name == "div":
        return binary(lambda a, b: wrap(_truncated(a, b)))
    if name == "bit_left":
        return binary(lambda a, b: wrap(a << b) if 0 <= b < dtype.bits else 0)
    if name == "bit_right":
        # A shift by all bits leaves the sign.
        return binary(lambda a, b: a >> (b if 0 <= b < dtype.bits else dtype.bits))
    return None


def _wrapped(name: str, dtype: DType, wrap: Callable[[int], int]) -> Operation:
    """Sums, differences and products, which are most of what kernels compute: few need wrapping, and a call each is saved."""
    low, high = int(dtype.min_value), int(dtype.max_value)
    if name == "add":
        return binary(lambda a, b: x if low <= (x := a + b) <= high else wrap(x))
    if name == "sub":
        return binary(lambda a, b: x if low <= (x := a - b) <= high else wrap(x))
    return binary(lambda a, b: x if low <= (x := a * b) <= high else wrap(x))


def _truncated(a: int, b: int) -> int:
    """The quotient towards zero; 0 for a zero divisor."""
    if b == 0:
        return 0
    return a // b if (a < 0) == (b < 0) else -(-a // b)


def _mod(t: Type) -> Operation:
    """Floor remainder; a zero divisor gives 0, as division does."""
    if t.lanes == 1:
        return binary(lambda a, b: a % b if b else 0)
    return binary(lambda a, b: np.where(b == 0, 0, np.mod(a, np.where(b == 0, 1, b))).astype(t.dtype.numpy))


def cast(source: Type, target: Type) -> Operation:
    """Conversion between dtypes of equal lanes."""
    if source.dtype is target.dtype:
        return unary(lambda x: x)
    if source.lanes == 1 and source.dtype.is_integer and target.dtype.is_integer:
        return wrapper(target.dtype)
    if source.dtype.is_float and target.dtype.is_float and DType.FLOAT32 in (source.dtype, target.dtype):
        dtype = target.dtype.numpy
        return unary(lambda x: x.astype(dtype))
    return _by_table("cast", (source,), target)


SHORT = 16
"""Lanes of float32 that are sooner computed one by one than by the dozen operations on arrays that it takes."""


def fma(t: Type) -> Operation:
    """``a * b + c`` rounded once."""
    if t.dtype is DType.FLOAT32 and t.lanes <= SHORT:
        return _fma32 if t.lanes == 1 else _short_fma32
    exact = _fma64 if t.dtype is DType.FLOAT64 else numerics.fma32
    dtype = t.dtype.numpy

    def scalar(a: Value, b: Value, c: Value) -> Value:
        return exact(np.asarray(a, dtype), np.asarray(b, dtype), np.asarray(c, dtype), dtype)[()]

    def vector(a: Value, b: Value, c: Value) -> Value:
        return exact(a, b, c, dtype)

    return scalar if t.lanes == 1 else vector


def _fma32(a: Value, b: Value, c: Value) -> Value:
    """`numerics.fma32` of one float32."""
    return np.float32(_to_odd(float(a), float(b), float(c)))


def _short_fma32(a: Value, b: Value, c: Value) -> Value:
    """And of a few."""
    return np.array([*map(_to_odd, a.tolist(), b.tolist(), c.tolist())], np.float32)


def _to_odd(a: float, b: float, addend: float) -> float:
    """The sum rounded so that float32, to which it is rounded next, is the nearest of what it is."""
    product = a * b
    total = product + addend
    back = total - product
    error = (product - (total - back)) + (addend - back)
    if error and isfinite(error) and not unpack("<q", pack("<d", total))[0] & 1:
        total = nextafter(total, inf if error > 0 else -inf)
    return total


def _fma64(a: Any, b: Any, c: Any, dtype: np.dtype[Any]) -> Any:
    flat = [_fma64_one(float(x), float(y), float(z)) for x, y, z in zip(a.flat, b.flat, c.flat, strict=True)]
    return np.asarray(flat, dtype).reshape(a.shape)


def _fma64_one(a: float, b: float, c: float) -> float:
    if not (np.isfinite(a) and np.isfinite(b)):
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    if not np.isfinite(c):
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c if a == 0 or b == 0 else 0.0
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def reduce_lanes(agg: Aggregation, t: Type) -> Operation:
    """Combine the lanes of a vector of type `t` in the documented tree order."""
    name = agg.op

    def run(vector: Value) -> Value:
        lanes = np.asarray(vector).reshape(t.lanes)
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = numerics.apply(name, (lanes[:half], lanes[half:]), t.dtype)
        return value_of(lanes, t.scalar)

    return run


def merge(agg: Aggregation, t: Type) -> Operation:
    """``old agg new`` on scalars; assign gives the new value."""
    if agg is Aggregation.ASSIGN:
        return binary(lambda old, new: new)
    return operation(agg.op, (t, t), t)
