"""The logarithm of the gamma function and its derivatives, by the approximation of Lanczos (g = 7, nine terms)."""

from __future__ import annotations

from math import factorial, log, pi

import torch
from tile_runtime.ops.values import Value

from tile_torch.call import Call, Number
from tile_torch.registry import operator

aten = torch.ops.aten

FIRST = 0.99999999999980993
TERMS = (676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
         -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7)  # fmt: skip
"""Numerators c of ``gamma(z + 1) ≈ sqrt(2 pi) t^(z + 1/2) e^-t (first + sum c[k] / (z + k + 1))``, t = z + 7.5."""
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730)
"""B2, B4, … for the sum of Euler and Maclaurin."""
SUMMED = 10
"""Terms of a zeta function that are added one by one."""

_MIRRORED = "({0} < 0.5 ? -{0} : {0} - 1)"
_SUM = " + ".join(["{1}", *(f"({c}) / ({{0}} + {k})" for k, c in enumerate(TERMS, 1))])
_SLOPE = " + ".join(f"({-c}) / (({{0}} + {k}) * ({{0}} + {k}))" for k, c in enumerate(TERMS, 1))
_LOG = f"(log1p({{0}} / 7.5) + {log(7.5)!r})"
"""log(z + 7.5), exact where z is small."""


def _sine(x: str) -> str:
    """The sine of pi times `x`, exact near whole numbers."""
    rest = f"({x} - 2 * floor({x} / 2))"
    near = f"({rest} > 1.5 ? {rest} - 2 : ({rest} > 0.5 ? 1 - {rest} : {rest}))"
    return f"sin({pi!r} * {near})"


@operator(aten.lgamma.default)
def lgamma(call: Call, input: Value) -> Value:
    """Infinite at zero and below it at whole numbers, exactly nothing at 1 and 2."""
    x = call.elementwise("{0}", input)
    z = call.elementwise(_MIRRORED, x)
    series = call.elementwise(_SUM, z, FIRST)
    stirling = f"({{0}} + 0.5 - ({{0}} + 7.5) / {_LOG}) * {_LOG} + log({{1}}) + {log(2 * pi) / 2!r}"
    found = call.elementwise(stirling, z, series)
    mirrored = f"{log(pi)!r} - log(abs({_sine('{0}')})) - {{1}}"
    finite = f"(abs({{0}} - 1.5) == 0.5 ? 0 : ({{0}} < 0.5 ? {mirrored} : {{1}}))"
    return call.elementwise(f"abs({{0}}) == inf ? inf : {finite}", x, found)


@operator(aten.digamma.default)
def digamma(call: Call, input: Value) -> Value:
    """Minus infinity at zero, plus at its negative; NaN below at whole numbers."""
    x = call.elementwise("{0}", input)
    z = call.elementwise(_MIRRORED, x)
    series, slope = call.elementwise(_SUM, z, FIRST), call.elementwise(_SLOPE, z)
    found = call.elementwise(f"{_LOG} + {{2}} / {{1}} - 7 / ({{0}} + 7.5)", z, series, slope)
    cotangent = f"{_sine('({0} + 0.5)')} / {_sine('{0}')}"
    mirrored = f"({{0}} == 0 ? -1 / {{0}} : ({{0}} == floor({{0}}) ? nan : {{1}} - {pi!r} * {cotangent}))"
    return call.elementwise(f"{{0}} < 0.5 ? {mirrored} : {{1}}", x, found)


@operator(aten.polygamma.default)
def polygamma(call: Call, n: int, input: Value) -> Value:
    """Digamma and its derivatives, infinite at zero and below it at whole numbers."""
    if n == 0:
        return digamma(call, input)
    x = call.elementwise("{0}", input)
    if n > 1:
        scale = (-1) ** (n + 1) * factorial(n)
        return call.elementwise("{1} * {0}", _zeta(call, float(n + 1), x), scale)
    found = _zeta(call, 2.0, call.elementwise("{0} < 0.5 ? 1 - {0} : {0}", x))
    sine = _sine("{0}")
    return call.elementwise(f"{{0}} < 0.5 ? {pi**2!r} / ({sine} * {sine}) - {{1}} : {{1}}", x, found)


@operator(*(getattr(aten.special_zeta, form) for form in ("default", "other_scalar", "self_scalar")))
def zeta(call: Call, x: Value | Number, q: Value | Number) -> Value:
    """``sum 1 / (q + k)^x``: infinite at x = 1 and where q + k is 0, NaN where a power has no real value."""
    x, q = call.elementwise("{0}", x), call.elementwise("{0}", q)
    return _zeta(call, x, q)


def _zeta(call: Call, x: Value | float, q: Value) -> Value:
    """The first terms one by one, and the sum of Euler and Maclaurin for the rest."""
    near = " + ".join(f"pow({{1}} + {k}, -{{0}})" for k in range(SUMMED))
    first = call.elementwise(near, x, q)
    end = f"({{1}} + {SUMMED})"
    series, factor = f"{end} / ({{0}} - 1) + 0.5", "{0}"
    for k, number in enumerate(BERNOULLI, 1):
        series += f" + {number / factorial(2 * k)!r} * {factor} / {_power(end, 2 * k - 1)}"
        factor += f" * ({{0}} + {2 * k - 1}) * ({{0}} + {2 * k})"
    found = call.elementwise(f"{{2}} + pow({end}, -{{0}}) * ({series})", x, q, first)
    poles = "({1} <= 0) & ({1} == floor({1}))"
    undefined = "({0} < 1) | (({1} < 0) & ({0} != floor({0})))"
    return call.elementwise(f"{undefined} ? nan : (({{0}} == 1) | ({poles}) ? inf : {{2}})", x, q, found)


def _power(text: str, count: int) -> str:
    return " / ".join([text] * count)
