"""Parts, products and sizes of complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from tile_runtime.ops.values import Value, dtype_of

from tile_torch.call import Call
from tile_torch.complexes import PARTS, Complex, apart, formula, parts, together
from tile_torch.ops.linear import mm
from tile_torch.ops.reduce import var
from tile_torch.ops.scatter import scatter

aten = torch.ops.aten
_CREATING = (
    aten.full.default, aten.full_like.default, aten.zeros_like.default, aten.ones_like.default, aten.empty_like.default,
    aten.zeros.default, aten.ones.default, aten.empty.memory_format, aten.new_zeros.default, aten.new_ones.default,
    aten.new_empty.default, aten.new_full.default, aten.scalar_tensor.default, aten.empty_strided.default,
    aten.new_empty_strided.default, aten.empty_permuted.default,
)  # fmt: skip
"""Operators that make tensors of one number."""


# --- parts -------------------------------------------------------------------------------------------------


@formula(aten.view_as_complex.default)
def _view_as_complex(call: Call, x: Value) -> Complex:
    return apart(x)


@formula(aten.view_as_real.default)
def _view_as_real(call: Call, x: Complex) -> Value:
    return together(x)


@formula(aten.complex.default)
def _complex(call: Call, real: Value, imag: Value) -> Complex:
    return Complex(real, imag)


@formula(aten.real.default)
def _real(call: Call, x: Complex) -> Value:
    return x.real


@formula(aten.imag.default)
def _imag(call: Call, x: Complex) -> Value:
    return x.imag


@formula(aten._conj.default, aten._conj_physical.default)
def _conj(call: Call, x: Complex) -> Complex:
    return Complex(x.real, call.elementwise("-{0}", x.imag))


# --- products and quotients --------------------------------------------------------------------------------


def _product(call: Call, multiplied: Callable[[Any, Any], Value], x: Any, y: Any) -> Complex:
    """What is linear in both."""
    (a, b), (c, d) = parts(x), parts(y)
    if b is None:
        return Complex(multiplied(a, c), multiplied(a, d))
    if d is None:
        return Complex(multiplied(a, c), multiplied(b, c))
    real = call.elementwise("{0} - {1}", multiplied(a, c), multiplied(b, d))
    return Complex(real, call.elementwise("{0} + {1}", multiplied(a, d), multiplied(b, c)))


@formula(aten.mul.Tensor, aten.mul.Scalar)
def times(call: Call, x: Any, y: Any) -> Complex:
    """Of numbers, one of which may be real."""
    return _product(call, lambda a, b: call.elementwise("{0} * {1}", a, b), x, y)


@formula(aten.mm.default, aten.bmm.default)
def _matmul(call: Call, x: Any, y: Any) -> Complex:
    """Of matrices, or stacks of them."""
    return _product(call, partial(mm, call), x, y)


@formula(aten.addmm.default, aten.baddbmm.default)
def _addmm(call: Call, x: Any, left: Any, right: Any, beta: complex = 1, alpha: complex = 1) -> Complex:
    """``beta * x + alpha * (left @ right)``; x is not looked at where beta is 0."""
    term = _scaled(call, _matmul(call, left, right), alpha)
    if beta == 0:
        return term
    pairs = zip(parts(_scaled(call, x, beta)), parts(term), strict=True)
    return Complex(*(call.elementwise("{0} + {1}", one, other) for one, other in pairs))


def _scaled(call: Call, x: Any, factor: complex) -> Any:
    return x if factor == 1 else times(call, x, factor)


@formula(aten.div.Tensor, aten.div.Scalar)
def _div(call: Call, x: Any, y: Any) -> Complex:
    """By a complex number in Smith's way: by the ratio of its parts, whichever is below one."""
    (a, b), (c, d) = parts(x), parts(y)
    b = 0 if b is None else b
    if d is None:
        return Complex(call.elementwise("{0} / {1}", a, c), call.elementwise("{0} / {1}", b, c))
    ratio = call.elementwise("(abs({0}) >= abs({1}) ? {1} / {0} : {0} / {1})", c, d)
    below = call.elementwise("(abs({0}) >= abs({1}) ? {0} + {1} * {2} : {0} * {2} + {1})", c, d, ratio)
    real = "(abs({0}) >= abs({1}) ? {2} + {3} * {4} : {2} * {4} + {3}) / {5}"
    imag = "(abs({0}) >= abs({1}) ? {3} - {2} * {4} : {3} * {4} - {2}) / {5}"
    return Complex(*(call.elementwise(text, c, d, a, b, ratio, below) for text in (real, imag)))


@formula(aten.abs.default)
def size(call: Call, x: Complex) -> Value:
    """Scaled by the larger part, so that no square overflows."""
    large = call.elementwise("max(abs({0}), abs({1}))", x.real, x.imag)
    return call.elementwise(
        "({2} == 0 ? {2} : {2} * sqrt(({0} / {2}) * ({0} / {2}) + ({1} / {2}) * ({1} / {2})))", x.real, x.imag, large
    )


@formula(aten.var.correction)
def _var(call: Call, x: Complex, *given: Any, **how: Any) -> Value:
    """That of both parts together."""
    return call.elementwise("{0} + {1}", *(var(call, part, *given, **how) for part in (x.real, x.imag)))


@formula(aten.scatter.value)
def _scattered(call: Call, x: Complex, dim: int, index: Value, value: complex) -> Complex:
    """A number, where the indices say."""
    return Complex(
        *(scatter(call, *one) for one in ((x.real, dim, index, value.real), (x.imag, dim, index, value.imag)))
    )


@formula(aten._to_copy.default)
def _cast(call: Call, x: Any, **how: Any) -> Any:
    """A real number becomes a real part, and of a complex one the real part stays where a real one is wanted."""
    real, imag = parts(x)
    real = call.elementwise("{0}", real)
    if how.get("dtype") is not None and how["dtype"] not in PARTS:
        return real
    imag = np.zeros(call.shape, call.dtype.numpy) if imag is None else call.elementwise("{0}", imag)
    return Complex(real, imag)


@formula(*_CREATING)
def _filled(call: Call, *given: Any, **how: Any) -> Complex:
    """The same complex number everywhere, as in ``zeros`` and ``full``."""
    plain = 1 if "ones" in call.name else 0
    number = complex(next((v for v in given if isinstance(v, (int, float, complex))), plain))
    return Complex(*(np.full(call.shape, part, call.dtype.numpy) for part in (number.real, number.imag)))


@formula(aten.eq.Scalar, aten.eq.Tensor, aten.ne.Scalar, aten.ne.Tensor)
def _equal(call: Call, x: Any, y: Any) -> Value:
    (a, b), (c, d) = (tuple(0 if part is None else part for part in parts(v)) for v in (x, y))
    text = "(({0} == {1}) & ({2} == {3}))" if call.name == "eq" else "(({0} != {1}) | ({2} != {3}))"
    return call.elementwise(text, a, c, b, d, dtype=dtype_of(a if hasattr(a, "dtype") else c))


@formula(aten.sgn.default)
def _sgn(call: Call, x: Complex) -> Complex:
    """The number of size 1 in its direction; 0 of 0."""
    length = size(call, x)
    return Complex(*(call.elementwise("({1} == 0 ? 0 : {0} / {1})", part, length) for part in (x.real, x.imag)))


@formula(aten.reciprocal.default)
def reciprocal(call: Call, x: Complex) -> Complex:
    return _div(call, 1.0, x)


@formula(aten.angle.default)
def _angle(call: Call, x: Complex) -> Value:
    return call.elementwise("atan2({1}, {0})", x.real, x.imag)
