"""Elementwise functions that few networks have."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import pi

import torch
from tile_ir.dtype import DType
from tile_runtime import numpy as tnp
from tile_runtime.ops.elementwise import converted
from tile_runtime.ops.text import bits_as, cast, expression
from tile_runtime.ops.values import Value, apply, dtype_of

from tile_torch.call import Call, Number
from tile_torch.registry import operator, present

aten = torch.ops.aten

SIGNED = {8: DType.INT8, 16: DType.INT16, 32: DType.INT32, 64: DType.INT64}

NEXT_TO_NAN = {
    aten.fmax.default: "isnan({0}) ? {1} : (isnan({1}) ? {0} : max({0}, {1}))",
    aten.fmin.default: "isnan({0}) ? {1} : (isnan({1}) ? {0} : min({0}, {1}))",
}
"""Extremes in which a number goes before NaN."""


@operator(*NEXT_TO_NAN)
def extreme(call: Call, input: Value, other: Value) -> Value:
    dtype = DType.UINT8 if call.dtype is DType.BOOL else call.dtype
    return call.elementwise(NEXT_TO_NAN[call.target], input, other, dtype=dtype)


@operator(aten.hypot.default)
def hypot(call: Call, input: Value, other: Value) -> Value:
    """The root of the squares' sum, scaled by the larger one so that no square is out of range; infinity beside NaN counts."""
    large, small = "max(abs({0}), abs({1}))", "min(abs({0}), abs({1}))"
    scaled = f"({large}) * sqrt(1 + ({small}) / ({large}) * (({small}) / ({large})))"
    endless = "(abs({0}) == inf) | (abs({1}) == inf)"
    return call.elementwise(f"({endless}) ? inf : (({large}) == 0 ? 0 : {scaled})", input, other)


@operator(aten.signbit.default)
def signbit(call: Call, input: Value) -> Value:
    """Whether the sign is negative, that of zeros and NaNs too."""
    return apply(expression("X", _is_negative("X", dtype_of(input))), input)


def _is_negative(value: str, dtype: DType) -> str:
    if dtype.is_float:
        return f"{bits_as(value, SIGNED[dtype.bits])} < 0"
    return f"{cast(value, DType.INT8)} < 0" if dtype is DType.BOOL else f"{value} < 0"


@operator(aten.angle.default)
def angle(call: Call, input: Value) -> Value:
    """Of real numbers: half a turn for what is below zero."""
    return call.elementwise(f"isnan({{0}}) ? {{0}} : ({{0}} < 0 ? {pi!r} : 0)", input)


@operator(aten.copysign.Tensor, aten.copysign.Scalar)
def copysign(call: Call, input: Value, other: Value | Number) -> Value:
    """The amount of one with the sign of the other."""
    dtype = call.dtype.accumulator
    if isinstance(other, bool | int | float):
        negative = str(float(other)).startswith("-")
        return call.elementwise("-abs({0})" if negative else "abs({0})", input)
    sign = f"({_is_negative(cast('B', dtype), dtype)})"
    amount = f"abs({cast('A', dtype)})"
    return apply(expression("A, B", cast(f"({sign} ? -{amount} : {amount})", call.dtype)), input, other)


@operator(aten.round.decimals)
def round_decimals(call: Call, input: Value, *, decimals: int = 0) -> Value:
    """To so many digits behind the point, or zeros before it; halves to the even neighbour."""
    if not call.dtype.is_float:
        return call.elementwise("{0}", input)
    scale = float(10 ** abs(decimals))
    text = "round_even({0} * {1}) / {1}" if decimals >= 0 else "round_even({0} / {1}) * {1}"
    return call.elementwise(text, input, scale)


@operator(aten.nextafter.default)
def nextafter(call: Call, input: Value, other: Value) -> Value:
    """The next number of the dtype in the direction of the other."""
    dtype = call.dtype
    own = SIGNED[dtype.bits]
    bits = bits_as("A", own)
    outwards = f"((B > A) == (A > 0)) ? {bits} + 1 : {bits} - 1"
    smallest = f"B > 0 ? {cast('1', own)} : {cast('1', own)} | {cast(str(own.min_value), own)}"
    moved = f"S = A == 0 ? ({smallest}) : ({outwards});"
    end = f"Y = isnan(A) | isnan(B) ? A + B : (A == B ? B : {bits_as('S', dtype)});"
    return apply(f"function (A, B) -> (Y) {{ {moved} {end} }}", input, other)


@operator(aten.frexp.Tensor)
def frexp(call: Call, input: Value) -> tuple[Value, Value]:
    """A mantissa from 1/2 to 1, and the power of 2 by which it is the number."""
    return tnp.frexp(input)


@operator(aten.gcd.default, aten.lcm.default)
def shared(call: Call, input: Value, other: Value) -> Value:
    """The greatest common divisor, or the least common multiple."""
    function = tnp.gcd if call.target is aten.gcd.default else tnp.lcm
    return function(converted(input, call.dtype), converted(other, call.dtype))


@operator(aten.erfinv.default)
def erfinv(call: Call, input: Value) -> Value:
    """The reverse of erf: a first guess, and two steps of Newton."""
    x = "{0}"
    log = f"log((1 - {x}) * (1 + {x}))"
    half = f"(4.330746750799873 + {log} / 2)"
    guess = f"(sign({x}) * sqrt(sqrt({half} * {half} - {log} * 6.802721088435374) - {half}))"
    value = call.elementwise(f"abs({x}) < 1 ? {guess} : {x} / sqrt(1 - abs({x}))", input)
    for _ in range(2):
        off = "(erf({1}) - {0}) / (1.1283791670955126 * exp(-({1} * {1})))"
        step = f"{off} / (1 + {{1}} * ({off}))"
        value = call.elementwise(f"abs({{0}}) < 1 ? {{1}} - {step} : {{1}}", input, value)
    return value


TAIL = 0.02425
"""Below it the place is a quotient of polynomials in the root of the logarithm, above it in the distance from 1/2."""
PLACES = (
    ((-7.784894002430293e-3, -0.3223964580411365, -2.400758277161838, -2.549732539343734, 4.374664141464968,
      2.938163982698783),
     (7.784695709041462e-3, 0.3224671290700398, 2.445134137142996, 3.754408661907416, 1.0)),
    ((-39.69683028665376, 220.9460984245205, -275.9285104469687, 138.357751867269, -30.66479806614716,
      2.506628277459239),
     (-54.47609879822406, 161.5858368580409, -155.6989798598866, 66.80131188771972, -13.28068155288572, 1.0)),
)  # fmt: skip
"""P. J. Acklam's approximation: numerators and denominators in the tail and between the tails, the highest power first."""


@operator(aten.special_ndtri.default)
def ndtri(call: Call, input: Value) -> Value:
    """Where the normal distribution reaches a probability: an approximation, and a step of Halley for the lower half."""
    p = call.elementwise("{0}", input)
    low = call.elementwise("{0} > 0.5 ? 1 - {0} : {0}", p)
    tail, middle = (f"({_horner(over)}) / ({_horner(under)})" for over, under in PLACES)
    far = call.elementwise("sqrt(-2 * log({0}))", low)
    near = call.elementwise("({0} - 0.5) * ({0} - 0.5)", low)
    guess = call.elementwise(
        f"{{0}} < {TAIL} ? {tail.format('{1}')} : ({{0}} - 0.5) * {middle.format('{2}')}", low, far, near
    )
    off = f"((erfc({{1}} * {-(0.5**0.5)!r}) / 2 - {{0}}) * {(2 * pi) ** 0.5!r} * exp({{1}} * {{1}} / 2))"
    found = call.elementwise(f"{{1}} - {off} / (1 + {{1}} * {off} / 2)", low, guess)
    ends = "{0} == 0 ? -inf : ({0} == 1 ? inf : nan)"
    return call.elementwise(f"({{0}} > 0) & ({{0}} < 1) ? ({{0}} > 0.5 ? -{{1}} : {{1}}) : ({ends})", p, found)


def _horner(coefficients: Sequence[float]) -> str:
    """A polynomial of what will be formatted."""
    return reduce(lambda text, c: f"({text}) * {{0}} + {c!r}", coefficients[1:], repr(coefficients[0]))


@operator(*present("prims.fma.default"))
def fma(call: Call, a: Value, b: Value, c: Value) -> Value:
    """A product and a sum, which PyTorch rounds once and Tile twice."""
    return call.elementwise("{0} * {1} + {2}", a, b, c)
