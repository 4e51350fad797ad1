"""Functions that compute each element by itself; shapes broadcast."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tile_runtime.numpy.operands import Operand, Result, called, elementary, integer_of
from tile_runtime.ops import elementwise
from tile_runtime.ops.values import as_array

Unary = Callable[[Operand], Result]
Binary = Callable[[Operand, Operand], Result]


def _unary(name: str) -> Unary:
    def function(x: Operand, /) -> Result:
        return elementary(name, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{name}`` of each element: {elementwise.OPERATORS[name].text.replace('X0', 'x')} in Tile."
    return function


def _binary(name: str) -> Binary:
    def function(x1: Operand, x2: Operand, /) -> Result:
        return elementary(name, x1, x2)

    text = elementwise.OPERATORS[name].text.replace("X0", "x1").replace("X1", "x2")
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{name}`` of pairs of elements: {text} in Tile."
    return function


abs, negative, positive, sign, signbit = map(_unary, ("abs", "negative", "positive", "sign", "signbit"))
square, reciprocal, sqrt, exp, expm1 = map(_unary, ("square", "reciprocal", "sqrt", "exp", "expm1"))
log, log1p, log2, log10, erf = map(_unary, ("log", "log1p", "log2", "log10", "erf"))
sin, cos, tan, asin, acos, atan = map(_unary, ("sin", "cos", "tan", "asin", "acos", "atan"))
sinh, cosh, tanh, asinh, acosh, atanh = map(_unary, ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"))
ceil, floor, trunc = map(_unary, ("ceil", "floor", "trunc"))
isnan, isinf, isfinite, logical_not, bitwise_invert = map(
    _unary, ("isnan", "isinf", "isfinite", "logical_not", "bitwise_invert")
)
sigmoid, silu, gelu, softplus, relu = map(_unary, ("sigmoid", "silu", "gelu", "softplus", "relu"))
add, subtract, multiply, divide = map(_binary, ("add", "subtract", "multiply", "divide"))
floor_divide, remainder, atan2, hypot = map(_binary, ("floor_divide", "remainder", "atan2", "hypot"))
logaddexp, maximum, minimum, copysign = map(_binary, ("logaddexp", "maximum", "minimum", "copysign"))
equal, not_equal, less, less_equal = map(_binary, ("equal", "not_equal", "less", "less_equal"))
greater, greater_equal = map(_binary, ("greater", "greater_equal"))
logical_and, logical_or, logical_xor = map(_binary, ("logical_and", "logical_or", "logical_xor"))
bitwise_and, bitwise_or, bitwise_xor = map(_binary, ("bitwise_and", "bitwise_or", "bitwise_xor"))
bitwise_left_shift, bitwise_right_shift = map(_binary, ("bitwise_left_shift", "bitwise_right_shift"))


def pow(x1: Operand, x2: Operand, /) -> Result:
    """Powers: exponents 0 to 4 multiply, integers stay integers, others are ``exp(x2 log x1)`` as Tile's pow."""
    if elementwise.is_number(x2) and x2 in range(5):
        return called(partial(elementwise.powered, exponent=x2), x1)
    met = elementwise.meeting((x1, x2))
    return called(elementwise.powered, *(elementwise.as_tensor(v, met) for v in (x1, x2)))


def round(x: Operand, /, decimals: int = 0) -> Result:
    """The nearest number of so many decimals, in the same dtype; halves go to the even neighbour."""
    decimals, dtype = integer_of("decimals", decimals), elementwise.meeting((as_array(x),))
    if not decimals or (dtype.is_integer and decimals > 0):
        return elementary("round", x)
    if dtype.is_integer:
        return multiply(x, 0) if 10**-decimals > dtype.max_value else _round_to(x, 10**-decimals)
    scale = 10.0**decimals
    return divide(elementary("round", multiply(x, scale)), scale)


def _round_to(x: Operand, unit: int) -> Result:
    """Integers as the nearest multiples of `unit`."""
    below, rest = floor_divide(x, unit), remainder(x, unit)
    ahead = subtract(unit, rest)
    tie = logical_and(equal(rest, ahead), equal(bitwise_and(below, 1), 1))
    floor = subtract(x, rest)
    return where(logical_or(greater(rest, ahead), tie), add(floor, unit), floor)


def where(condition: Operand, x1: Operand, x2: Operand, /) -> Result:
    """`x1` where the condition holds, else `x2`."""
    return elementary("where", condition, x1, x2)


def clip(x: Operand, /, min: Operand | None = None, max: Operand | None = None) -> Result:
    """At least `min` and at most `max`, as far as they are given; a number beyond all integers of the dtype leaves them."""
    dtype = elementwise.meeting((as_array(x),))
    if dtype.is_integer:
        min = None if type(min) is int and min <= dtype.min_value else min
        max = None if type(max) is int and max >= dtype.max_value else max
    lower = x if min is None else maximum(x, min)
    return lower if max is None else minimum(lower, max)
