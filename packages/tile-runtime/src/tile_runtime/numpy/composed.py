"""Functions of NumPy's that are a line or two of others, by its names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from tile_ir.dtype import DType

from tile_runtime.arrays import dtype_of
from tile_runtime.numpy.creation import full_like, zeros_like
from tile_runtime.numpy.dtypes import astype, result_type
from tile_runtime.numpy.elementwise import (
    abs,
    add,
    bitwise_invert,
    copysign,
    divide,
    equal,
    floor_divide,
    isfinite,
    isinf,
    isnan,
    less,
    logical_and,
    logical_not,
    multiply,
    not_equal,
    pow,
    remainder,
    round,
    sin,
    sqrt,
    subtract,
    trunc,
    where,
)
from tile_runtime.numpy.elementwise import (
    logaddexp as _logaddexp,
)
from tile_runtime.numpy.linear import matmul
from tile_runtime.numpy.manipulation import broadcast_arrays, concat, diff, expand_dims, indexed, reshape
from tile_runtime.numpy.operands import Axes, Operand, Result, axis_of, called, count_of, made, several, shape_of
from tile_runtime.numpy.shaping import atleast_2d, diag, ravel, split
from tile_runtime.numpy.statistical import any, cumulative_prod, cumulative_sum, prod, sum
from tile_runtime.operators import Operators
from tile_runtime.ops import elementwise
from tile_runtime.ops.text import bits_as, cast, expression
from tile_runtime.ops.values import apply, as_array
from tile_runtime.while_loops import while_loop

around, bitwise_not, true_divide = round, bitwise_invert, divide

# --- elementwise --------------------------------------------------------------------------------------


def _floating(x: Operand) -> Operand:
    """A tensor of floats, of integers as float32."""
    value = as_array(x)
    met = elementwise.meeting((value,))
    tensor = elementwise.as_tensor(value, met)
    return tensor if met.is_float else astype(tensor, DType.FLOAT32)


def fabs(x: Operand, /) -> Result:
    """The magnitude, of integers in float32."""
    return abs(_floating(x))


def fix(x: Operand, /) -> Result:
    """The next integer towards zero."""
    return trunc(x)


def cbrt(x: Operand, /) -> Result:
    """The cube root, of negative numbers too: a power, and a step of Newton's."""
    value = _floating(x)
    root = copysign(pow(abs(value), 1 / 3), value)
    nearer = subtract(
        root, divide(subtract(multiply(root, multiply(root, root)), value), multiply(multiply(root, root), 3))
    )
    return where(logical_and(isfinite(nearer), not_equal(value, 0)), nearer, value)


def divmod(x1: Operand, x2: Operand, /) -> tuple[Result, Result]:
    """``x1 // x2`` and ``x1 % x2``."""
    return floor_divide(x1, x2), remainder(x1, x2)


def modf(x: Operand, /) -> tuple[Result, Result]:
    """What lies behind the point, and before it, both with the sign of `x`."""
    value = _floating(x)
    whole = trunc(value)
    rest = where(isinf(value), 0, subtract(value, whole))
    return copysign(rest, value), whole


def frexp(x: Operand, /) -> tuple[Result, Result]:
    """A mantissa from 1/2 to 1 and the power of 2 (int32) by which it is `x`; zeros, NaN and infinities with 0."""
    value = _floating(x)
    kind = dtype_of(value.dtype)
    wide = DType.FLOAT64 if kind is DType.FLOAT64 else DType.FLOAT32
    found, power = _parts(astype(value, wide), wide)
    return astype(found, kind), power


def _parts(value: Result, kind: DType) -> tuple[Result, Result]:
    """The same of float32 or float64, from the bits."""
    whole, digits, bias = (DType.INT64, 52, 1022) if kind is DType.FLOAT64 else (DType.INT32, 23, 126)
    plain = logical_and(isfinite(value), not_equal(value, 0))
    tiny = less(abs(value), 2.0 ** (1 - bias))
    bits = called(
        partial(apply, expression("X", bits_as("X", whole))), where(tiny, multiply(value, 2.0**digits), value)
    )
    mask = (2 << (kind.bits - digits - 2)) - 1
    text = f"{cast(f'((B >> {digits}) & {mask})', DType.INT32)} - {bias}"
    power = subtract(called(partial(apply, expression("B", text)), bits), where(tiny, digits, 0))
    text = bits_as(f"((B & {~(mask << digits)}) | {bias << digits})", kind)
    mantissa = called(partial(apply, expression("B", text)), bits)
    return where(plain, mantissa, value), where(plain, power, 0)


def float_power(x1: Operand, x2: Operand, /) -> Result:
    """Powers of integers, too, as floats (float32)."""
    return pow(_floating(x1), _floating(x2))


def heaviside(x1: Operand, x2: Operand, /) -> Result:
    """0 below zero, 1 above, `x2` at zero; NaN stays NaN."""
    value = _floating(x1)
    step = where(less(value, 0), zeros_like(value), full_like(value, 1))
    return where(isnan(value), value, where(equal(value, 0), x2, step))


def logaddexp2(x1: Operand, x2: Operand, /) -> Result:
    """``log2(2**x1 + 2**x2)``, also where the powers are too large or too small for their dtype."""
    scale = float(np.log(2.0))
    found = _logaddexp(multiply(_floating(x1), scale), multiply(_floating(x2), scale))
    return divide(found, scale)


def sinc(x: Operand, /) -> Result:
    """``sin(pi x) / (pi x)``, 1 at zero."""
    angle = multiply(_floating(x), np.pi)
    level = equal(angle, 0)
    turned = where(level, 1, angle)  # what is not taken must not make a gradient NaN
    return where(level, 1, divide(sin(turned), turned))


def isneginf(x: Operand, /) -> Result:
    """Whether it is negative infinity."""
    return logical_and(isinf(x), less(x, 0))


def isposinf(x: Operand, /) -> Result:
    """Whether it is positive infinity."""
    return logical_and(isinf(x), logical_not(less(x, 0)))


def gcd(x1: Operand, x2: Operand, /) -> Result:
    """The greatest common divisor of integers, which is not negative, by Euclid; of 0 and 0 it is 0. TypeError for floats."""
    return _divisor(*_whole(x1, x2))


def _whole(*operands: Operand) -> list[Result]:
    """Integers in the dtype in which they meet; TypeError for floats."""
    dtype = result_type(*operands)
    if not dtype.is_integer:
        raise TypeError(f"common divisors are of integers, not of {dtype}")
    tensors = [elementwise.as_tensor(as_array(v), dtype) for v in operands]
    return [astype(v if isinstance(v, Operators) else made(v), dtype) for v in tensors]


def _divisor(x1: Result, x2: Result) -> Result:
    state = tuple(abs(v) for v in broadcast_arrays(x1, x2))
    found = while_loop(_unfinished, _euclid, state, max_steps=3 * x1.dtype.bits // 2)[0]
    return abs(found)  # the least integer has no magnitude, and leaves negative remainders


def _unfinished(state: tuple[Result, Result]) -> Result:
    return any(not_equal(state[1], 0))


def _euclid(state: tuple[Result, Result]) -> tuple[Result, Result]:
    a, b = state
    done = equal(b, 0)
    return where(done, a, b), where(done, b, remainder(a, where(done, 1, b)))


def lcm(x1: Operand, x2: Operand, /) -> Result:
    """The least common multiple of integers, which is not negative; 0 where one is 0. TypeError for floats."""
    one, other = _whole(x1, x2)
    shared = _divisor(one, other)
    return multiply(abs(floor_divide(one, where(equal(shared, 0), 1, shared))), abs(other))


# --- without NaN --------------------------------------------------------------------------------------


def nanprod(x: Operand, /, axis: Axes = None, *, keepdims: bool = False) -> Result:
    """The product without NaNs."""
    return prod(where(isnan(x), 1, x), axis, keepdims=keepdims)


def nancumsum(x: Operand, /, axis: int | None = None) -> Result:
    """Running sums without NaNs; of all elements where no axis is named."""
    value = ravel(x) if axis is None else x
    return cumulative_sum(where(isnan(value), 0, value), axis=axis or 0)


def nancumprod(x: Operand, /, axis: int | None = None) -> Result:
    """Running products without NaNs; of all elements where no axis is named."""
    value = ravel(x) if axis is None else x
    return cumulative_prod(where(isnan(value), 1, value), axis=axis or 0)


def nanvar(x: Operand, /, axis: Axes = None, *, ddof: float = 0.0, keepdims: bool = False) -> Result:
    """The variance without NaNs, divided by their count less `ddof`; NaN where no more are left."""
    value = _floating(x)
    there = astype(logical_not(isnan(value)), value.dtype)
    count = sum(there, axis, keepdims=True)
    known = where(isnan(value), 0, value)
    apart = multiply(subtract(known, divide(sum(known, axis, keepdims=True), count)), there)
    squares, divisor = (sum(v, axis, keepdims=keepdims) for v in (multiply(apart, apart), there))
    divisor = subtract(divisor, ddof)
    return where(less(0, divisor), divide(squares, divisor), np.nan)


def nanstd(x: Operand, /, axis: Axes = None, *, ddof: float = 0.0, keepdims: bool = False) -> Result:
    """The root of `nanvar`."""
    return sqrt(nanvar(x, axis, ddof=ddof, keepdims=keepdims))


# --- of other shapes ----------------------------------------------------------------------------------


def append(x: Operand, values: Operand, /, axis: int | None = None) -> Result:
    """Both, one behind the other along an axis; flat where none is named, where numbers join in the dtype that they meet."""
    if axis is not None:
        return concat([x, values], axis=axis)
    met = elementwise.meeting([as_array(v) for v in (x, values)])
    return concat([ravel(elementwise.as_tensor(as_array(v), met)) for v in (x, values)])


def atleast_3d(x: Operand, /) -> Result:
    """With three dimensions: a vector lies along the middle one, a matrix along the first two."""
    value = atleast_2d(x)
    return value if len(shape_of(value)) > 2 else expand_dims(value, -1)


def dstack(arrays: Sequence[Operand], /) -> Result:
    """One behind the other along the third axis."""
    return concat([atleast_3d(x) for x in several(arrays)], axis=2)


def vsplit(x: Operand, sections: int | Sequence[int], /) -> list[Result]:
    """Parts along the first axis."""
    return split(x, sections, axis=0)


def hsplit(x: Operand, sections: int | Sequence[int], /) -> list[Result]:
    """Parts along the second axis, of a vector along its only one."""
    return split(x, sections, axis=min(1, len(shape_of(x)) - 1))


def dsplit(x: Operand, sections: int | Sequence[int], /) -> list[Result]:
    """Parts along the third axis."""
    return split(x, sections, axis=2)


def diagflat(x: Operand, /, k: int = 0) -> Result:
    """A matrix with all elements on a diagonal."""
    return diag(ravel(x), k)


def ediff1d(x: Operand, /) -> Result:
    """Differences of neighbours among all elements."""
    return diff(ravel(x))


def matvec(x1: Operand, x2: Operand, /) -> Result:
    """Matrices times vectors."""
    found = matmul(x1, expand_dims(x2, -1))
    return reshape(found, shape_of(found)[:-1])


def vecmat(x1: Operand, x2: Operand, /) -> Result:
    """Vectors times matrices."""
    found = matmul(expand_dims(x1, -2), x2)
    shape = shape_of(found)
    return reshape(found, (*shape[:-2], shape[-1]))


def vander(x: Operand, /, N: int | None = None, increasing: bool = False) -> Result:
    """A row of powers for each element of a vector, the highest first; as many as there are elements, or `N`."""
    (size,) = shape_of(x)
    powers = np.arange(size if N is None else count_of("N", N), dtype=np.int32)
    return pow(expand_dims(x, 1), powers if increasing else powers[::-1].copy())


def polyval(coefficients: Operand, x: Operand, /) -> Result:
    """The polynomial of these coefficients, the highest first, at `x`."""
    (count,) = shape_of(coefficients)
    found = multiply(x, 0)
    for k in range(count):
        found = add(multiply(found, x), indexed(coefficients, k))
    return found


def select(conditions: Sequence[Operand], choices: Sequence[Operand], /, default: Operand = 0) -> Result:
    """Of each place the choice whose condition is the first to hold, else the default. ValueError for other numbers of them, or none."""
    if not conditions or len(conditions) != len(choices):
        raise ValueError(f"there are {len(conditions)} conditions for {len(choices)} choices")
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        default = where(condition, choice, default)
    return default


def unwrap(x: Operand, /, discont: float | None = None, axis: int = -1, *, period: float = 2 * np.pi) -> Result:
    """Angles of which neighbours differ by half a period at most, or by no more than `discont`, as far as periods can do that."""
    half, place = period / 2, axis_of(len(shape_of(x)), axis)
    value = _floating(x)
    steps = diff(value, axis=place)
    turned = subtract(remainder(add(steps, half), period), half)
    turned = where(logical_and(equal(turned, -half), less(0, steps)), half, turned)
    kept = less(abs(steps), half if discont is None else max(discont, half))
    mended = where(kept, 0, subtract(turned, steps))
    first = (slice(None),) * place
    return concat(
        [
            indexed(value, (*first, slice(0, 1))),
            add(indexed(value, (*first, slice(1, None))), cumulative_sum(mended, axis=place)),
        ],
        axis=place,
    )
