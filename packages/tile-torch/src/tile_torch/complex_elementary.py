"""Elementary functions of complex numbers, by formulas of their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tile_runtime.ops.values import Value, dtype_of

from tile_torch.call import Call
from tile_torch.complex_functions import reciprocal, size, times
from tile_torch.complexes import Complex, formula, parts
from tile_torch.registry import Overload

aten = torch.ops.aten
_BELOW = "(cos({1}) * cos({1}) + sinh({0}) * sinh({0}))"
"""What the parts of a hyperbolic tangent are divided by."""
_OF_PARTS: dict[Overload, tuple[str, str]] = {
    aten.sin.default: ("sin({0}) * cosh({1})", "cos({0}) * sinh({1})"),
    aten.cos.default: ("cos({0}) * cosh({1})", "-sin({0}) * sinh({1})"),
    aten.sinh.default: ("sinh({0}) * cos({1})", "cosh({0}) * sin({1})"),
    aten.cosh.default: ("cosh({0}) * cos({1})", "sinh({0}) * sin({1})"),
    aten.expm1.default: (
        "expm1({0}) * cos({1}) - 2 * sin({1} / 2) * sin({1} / 2)", "exp({0}) * sin({1})"
    ),
}  # fmt: skip
"""The real and the imaginary part of a function of {0} + {1}i."""
_OF_LOGARITHMS: dict[Overload, float] = {aten.log2.default: 1.4426950408889634, aten.log10.default: 0.4342944819032518}


def _by_parts(texts: tuple[str, str]) -> Callable[[Call, Complex], Complex]:
    return lambda call, x: Complex(*(call.elementwise(text, x.real, x.imag) for text in texts))


def _by_logarithm(factor: float) -> Callable[[Call, Complex], Complex]:
    return lambda call, x: times(call, _log(call, x), factor)


for _target, _texts in _OF_PARTS.items():
    formula(_target)(_by_parts(_texts))
for _target, _factor in _OF_LOGARITHMS.items():
    formula(_target)(_by_logarithm(_factor))


@formula(aten.tanh.default)
def _tanh(call: Call, x: Complex) -> Complex:
    real = f"(abs({{0}}) > 20 ? sign({{0}}) : sinh({{0}}) * cosh({{0}}) / {_BELOW})"
    return Complex(*(call.elementwise(text, x.real, x.imag) for text in (real, f"sin({{1}}) * cos({{1}}) / {_BELOW}")))


@formula(aten.tan.default)
def _tan(call: Call, x: Complex) -> Complex:
    """As a hyperbolic tangent is turned by a right angle."""
    found = _tanh(call, Complex(call.elementwise("-{0}", x.imag), x.real))
    return Complex(found.imag, call.elementwise("-{0}", found.real))


@formula(aten.sigmoid.default)
def _sigmoid(call: Call, x: Complex) -> Complex:
    falling = _exp(call, times(call, x, -1.0))
    return reciprocal(call, Complex(call.elementwise("1 + {0}", falling.real), falling.imag))


@formula(aten.tanh_backward.default, aten.sigmoid_backward.default)
def _slope(call: Call, grad: Complex, out: Complex) -> Complex:
    """By the conjugate of ``1 - out * out``, or of ``(1 - out) * out``."""
    a, b = out.real, out.imag
    real, imag = {
        "tanh_backward": ("1 - {0} * {0} + {1} * {1}", "2 * {0} * {1}"),
        "sigmoid_backward": ("{0} - {0} * {0} + {1} * {1}", "(2 * {0} - 1) * {1}"),
    }[call.name]
    return times(call, grad, Complex(call.elementwise(real, a, b), call.elementwise(imag, a, b)))


@formula(aten.polar.default)
def _polar(call: Call, length: Value, angle: Value) -> Complex:
    return Complex(call.elementwise("{0} * cos({1})", length, angle), call.elementwise("{0} * sin({1})", length, angle))


@formula(aten.exp.default)
def _exp(call: Call, x: Complex) -> Complex:
    return _polar(call, call.elementwise("exp({0})", x.real), x.imag)


@formula(aten.exp2.default)
def _exp2(call: Call, x: Complex) -> Complex:
    return _exp(call, times(call, x, 0.6931471805599453))


@formula(aten.log.default)
def _log(call: Call, x: Complex) -> Complex:
    return Complex(call.elementwise("log({0})", size(call, x)), call.elementwise("atan2({1}, {0})", x.real, x.imag))


@formula(aten.log1p.default)
def _log1p(call: Call, x: Complex) -> Complex:
    """Of small numbers by what their square is off 1."""
    found = _log(call, Complex(call.elementwise("1 + {0}", x.real), x.imag))
    small = "(max(abs({0}), abs({1})) < 1 ? 0.5 * log1p({0} * (2 + {0}) + {1} * {1}) : {2})"
    return Complex(call.elementwise(small, x.real, x.imag, found.real), found.imag)


@formula(aten.pow.Tensor_Scalar)
def _pow(call: Call, x: Complex, exponent: complex) -> Complex:
    if isinstance(exponent, complex):
        return _power(call, x, exponent)
    if exponent == 2:
        return times(call, x, x)
    angle = call.elementwise("{1} * {0}", call.elementwise("atan2({1}, {0})", x.real, x.imag), exponent)
    return _polar(call, call.elementwise("pow({0}, {1})", size(call, x), exponent), angle)


@formula(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def _power(call: Call, x: Any, exponent: Any) -> Complex:
    """Either may be real; 0 to a power whose real part is positive is 0."""
    (a, b), (c, d) = (tuple(_number(call, part) for part in parts(v)) for v in (x, exponent))
    found = _exp(call, times(call, Complex(c, d), _log(call, Complex(a, b))))
    text = "(({0} == 0) & ({1} == 0) & ({2} > 0) ? 0 : {3})"
    return Complex(*(call.elementwise(text, a, b, c, part) for part in (found.real, found.imag)))


def _number(call: Call, part: Any) -> Value:
    """A part of an operand; that of a real one is 0."""
    if part is None or isinstance(part, (bool, int, float)):
        return np.asarray(part or 0, call.dtype.numpy)
    return part


@formula(aten.sqrt.default)
def _sqrt(call: Call, x: Complex) -> Complex:
    """The root with a real part that is not negative: that of the larger one, and what the product of both leaves."""
    large = call.elementwise("sqrt(({1} + abs({0})) / 2)", x.real, size(call, x))
    rest = call.elementwise("({1} == 0 ? 0 : abs({0}) / {1} / 2)", x.imag, large)
    real, imag = (call.elementwise("({0} >= 0 ? {1} : {2})", x.real, *two) for two in ((large, rest), (rest, large)))
    return Complex(real, call.elementwise("(atan2({0}, -1.0) < 0 ? -{1} : {1})", x.imag, imag))


@formula(aten.rsqrt.default)
def _rsqrt(call: Call, x: Complex) -> Complex:
    return reciprocal(call, _sqrt(call, x))


@formula(aten.isnan.default, aten.isinf.default)
def _strange(call: Call, x: Complex) -> Value:
    """Where either part is."""
    return call.elementwise(f"{call.name}({{0}}) | {call.name}({{1}})", x.real, x.imag, dtype=dtype_of(x.real))
