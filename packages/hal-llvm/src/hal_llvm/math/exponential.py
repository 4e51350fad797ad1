"""exp, log, sinh, cosh and tanh of float32."""

from __future__ import annotations

from hal_llvm.math.coefficients import EXP, LOG, SINH, TANH
from hal_llvm.math.lanes import Lanes

_ROUND = 1.5 * 2.0**23
"""Added to a float32, it leaves the nearest integer in the low mantissa bits."""
_ROUND_BITS = 0x4B400000
_LOG2E = 1.4426950408889634
_LN2_HIGH = 0.693359375
"""ln 2 to 10 bits, so that its product with a small integer is exact even without FMA."""
_LN2_LOW = 0.6931471805599453 - _LN2_HIGH


def exp(v: Lanes, x: str) -> str:
    """At most 1 ulp; denormal results included."""
    return scaled_exp(v, x, 0)


def scaled_exp(v: Lanes, x: str, power: int) -> str:
    """``exp(x) * 2**power`` without intermediate overflow; NaN stays NaN."""
    x = v.select(v.compare("ogt", x, v.const(90.0)), v.const(90.0), x)
    x = v.select(v.compare("olt", x, v.const(-105.0)), v.const(-105.0), x)
    shifted = v.fma(x, v.const(_LOG2E), v.const(_ROUND))
    whole = v.sub(shifted, v.const(_ROUND))
    r = v.fma(whole, v.const(-_LN2_HIGH), x)
    r = v.fma(whole, v.const(-_LN2_LOW), r)
    tail = v.fma(v.horner(r, EXP), v.mul(r, r), r)
    base = v.add(tail, v.const(1.0))
    # 2**n in two factors: the first is exact, the second rounds (to denormals, zero or inf).
    n = v.integers("sub", v.bits(shifted), _ROUND_BITS - power)
    half = v.integers("ashr", n, 1)
    rest = v.integers("sub", n, half)
    first = v.floats(v.integers("add", v.integers("shl", half, 23), 127 << 23))
    second = v.floats(v.integers("add", v.integers("shl", rest, 23), 127 << 23))
    return v.mul(v.mul(base, first), second)


def log(v: Lanes, x: str) -> str:
    """At most 1 ulp; denormals included, negative numbers give NaN, 0 gives -inf."""
    tiny = v.compare("olt", x, v.const(2.0**-126))
    y = v.select(tiny, v.mul(x, v.const(2.0**23)), x)
    bits = v.bits(y)
    # Exponent such that sqrt(1/2) <= mantissa < sqrt(2).
    e = v.integers("ashr", v.integers("sub", bits, 0x3F3504F3), 23)
    f = v.sub(v.floats(v.integers("sub", bits, v.integers("shl", e, 23))), v.const(1.0))
    exponent = v.to_float(v.integers("add", e, v.iselect(tiny, v.iconst(-23), v.iconst(0))))
    square = v.mul(f, f)
    tail = v.mul(v.mul(v.horner(f, LOG), f), square)
    tail = v.fma(exponent, v.const(_LN2_LOW), tail)
    tail = v.fma(square, v.const(-0.5), tail)
    result = v.fma(exponent, v.const(_LN2_HIGH), v.add(f, tail))
    result = v.select(v.compare("olt", x, v.const(float("inf"))), result, x)
    special = v.select(v.compare("oeq", x, v.const(0.0)), v.const(float("-inf")), v.const(float("nan")))
    return v.select(v.compare("ogt", x, v.const(0.0)), result, special)


def sinh(v: Lanes, x: str) -> str:
    size = v.abs(x)
    half = scaled_exp(v, size, -1)
    large = v.copysign(v.sub(half, v.div(v.const(0.25), half)), x)
    square = v.mul(x, x)
    small = v.fma(v.mul(v.horner(square, SINH), square), x, x)
    return v.select(v.compare("olt", size, v.const(1.0)), small, large)


def cosh(v: Lanes, x: str) -> str:
    half = scaled_exp(v, v.abs(x), -1)
    return v.add(half, v.div(v.const(0.25), half))


def tanh(v: Lanes, x: str) -> str:
    size = v.abs(x)
    e = scaled_exp(v, v.add(size, size), 0)
    large = v.sub(v.const(1.0), v.div(v.const(2.0), v.add(e, v.const(1.0))))
    square = v.mul(x, x)
    small = v.fma(v.mul(v.horner(square, TANH), square), size, size)
    return v.copysign(v.select(v.compare("olt", size, v.const(0.625)), small, large), x)
