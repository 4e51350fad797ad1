"""Other names of the same functions, as NumPy has them."""

from __future__ import annotations

from functools import partial
from math import pi

from tile_runtime.numpy.creation import asarray
from tile_runtime.numpy.elementwise import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_right_shift,
    isnan,
    maximum,
    minimum,
    multiply,
    pow,
    remainder,
    round,
    where,
)
from tile_runtime.numpy.manipulation import concat
from tile_runtime.numpy.operands import Operand, Result, called
from tile_runtime.numpy.statistical import max, min
from tile_runtime.ops import elementwise
from tile_runtime.ops.text import expression
from tile_runtime.ops.values import apply, as_array

absolute = abs
arccos, arccosh, arcsin, arcsinh = acos, acosh, asin, asinh
arctan, arctan2, arctanh = atan, atan2, atanh
amax, amin = max, min
array = asarray
rint = round
concatenate = concat
invert = bitwise_invert
left_shift, right_shift = bitwise_left_shift, bitwise_right_shift
mod = remainder
power = pow


def fmax(x1: Operand, x2: Operand, /) -> Result:
    """The larger; the other one where one is NaN."""
    return where(isnan(x1), x2, where(isnan(x2), x1, maximum(x1, x2)))


def fmin(x1: Operand, x2: Operand, /) -> Result:
    """The smaller; the other one where one is NaN."""
    return where(isnan(x1), x2, where(isnan(x2), x1, minimum(x1, x2)))


def exp2(x: Operand, /) -> Result:
    """Powers of 2."""
    return pow(2.0, x)


def deg2rad(x: Operand, /) -> Result:
    """Degrees as radians."""
    return multiply(x, pi / 180)


def rad2deg(x: Operand, /) -> Result:
    """Radians as degrees."""
    return multiply(x, 180 / pi)


radians, degrees = deg2rad, rad2deg


def fmod(x1: Operand, x2: Operand, /) -> Result:
    """What a division leaves, with the sign of `x1`."""
    values = [as_array(v) for v in (x1, x2)]
    met = elementwise.meeting(values)
    return called(partial(apply, expression("A, B", "fmod(A, B)")), *(elementwise.as_tensor(v, met) for v in values))


def erfc(x: Operand, /) -> Result:
    """One less the error function, exact where that is near one."""
    return called(partial(apply, expression("X", "erfc(X)")), x)
