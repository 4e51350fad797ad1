"""pow of float32, computed in float64."""

from __future__ import annotations

from hal_llvm.math.coefficients import ATANH_DOUBLE, EXP2_DOUBLE
from hal_llvm.math.lanes import Lanes, narrowed, widened

_ROUND = 1.5 * 2.0**52
_ROUND_BITS = 0x4338000000000000
_INF = float("inf")


def pow_(v: Lanes, x: str, y: str) -> str:
    """C's pow: pow(x, 0) = pow(1, y) = 1, a negative base wants an integer exponent."""
    w, base = widened(v, v.abs(x))
    _, exponent = widened(v, y)
    size = narrowed(w, v, _exp2(w, w.mul(exponent, _log2(w, base))))
    # |x| = 1 or y = 0 make 1 even where the product above is NaN.
    one = v.const(1.0)
    size = v.select(v.compare("oeq", y, v.const(0.0)), one, size)
    unit = v.both(v.compare("oeq", v.abs(x), one), v.compare("ord", y, y))
    size = v.select(unit, one, size)
    size = v.select(v.compare("oeq", x, one), one, size)
    return _with_sign(v, x, y, size)


def _with_sign(v: Lanes, x: str, y: str, size: str) -> str:
    """Sign of an odd power; NaN for a fractional power of a negative number."""
    whole = v.code.intrinsic("llvm.trunc", v.f, y)
    half = v.mul(y, v.const(0.5))
    integral = v.compare("oeq", whole, y)
    even = v.compare("oeq", v.code.intrinsic("llvm.trunc", v.f, half), half)
    odd = v.both(integral, v.code.let(f"xor {v.m} {even}, {'true' if v.lanes == 1 else 'splat (i1 true)'}"))
    result = v.select(odd, v.copysign(size, x), size)
    negative = v.both(v.compare("olt", x, v.const(0.0)), v.compare("ogt", x, v.const(-_INF)))
    fractional = v.compare("one", whole, y)
    return v.select(v.both(negative, fractional), v.const(float("nan")), result)


def _log2(w: Lanes, x: str) -> str:
    """log2 of a non-negative float64 that came from a float32, to 2**-45."""
    bits = w.bits(x)
    e = w.integers("ashr", w.integers("sub", bits, 0x3FE6A09E667F3BCD), 52)
    m = w.floats(w.integers("sub", bits, w.integers("shl", e, 52)))
    s = w.div(w.sub(m, w.const(1.0)), w.add(m, w.const(1.0)))
    z = w.mul(s, s)
    atanh = w.fma(w.mul(w.horner(z, ATANH_DOUBLE), z), s, s)
    result = w.fma(atanh, w.const(2.8853900817779268), w.short_to_float(e))
    result = w.select(w.compare("olt", x, w.const(_INF)), result, x)
    return w.select(w.compare("oeq", x, w.const(0.0)), w.const(-_INF), result)


def _exp2(w: Lanes, t: str) -> str:
    """2**t, clamped to beyond float32's range; NaN stays NaN."""
    t = w.select(w.compare("ogt", t, w.const(200.0)), w.const(200.0), t)
    t = w.select(w.compare("olt", t, w.const(-200.0)), w.const(-200.0), t)
    shifted = w.add(t, w.const(_ROUND))
    r = w.mul(w.sub(t, w.sub(shifted, w.const(_ROUND))), w.const(0.6931471805599453))
    value = w.add(w.fma(w.horner(r, EXP2_DOUBLE), w.mul(r, r), r), w.const(1.0))
    n = w.integers("shl", w.integers("sub", w.bits(shifted), _ROUND_BITS), 52)
    return w.floats(w.integers("add", w.bits(value), n))
