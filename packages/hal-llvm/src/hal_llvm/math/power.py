"""pow of float32, computed in float64, and of float64 on processors that fuse, computed in pairs of these."""

from __future__ import annotations

from hal_llvm.math.coefficients import ATANH_DOUBLE, ATANH_LONG, EXP2_DOUBLE
from hal_llvm.math.exponential import scaled
from hal_llvm.math.lanes import Lanes, narrowed, widened

Pair = tuple[str, str]
"""A number, and what it lacks."""

_ROUND = 1.5 * 2.0**52
_ROUND_BITS = 0x4338000000000000
_INF = float("inf")
_LN2 = 0.6931471805599453
_GONE = 1100.0
"""Powers of 2 from here on are infinite, those of its negative 0."""
_THIRD = (1 / 3, 1.850371707708594e-17)
_TWICE_LOG2E = (2.8853900817779268, 4.0710547481862066e-17)
"""2 / ln 2."""


def pow_(v: Lanes, x: str, y: str) -> str:
    """C's pow: pow(x, 0) = pow(1, y) = 1, a negative base wants an integer exponent."""
    size = _long_size(v, v.abs(x), y) if v.element == "double" else _size(v, v.abs(x), y)
    # |x| = 1 or y = 0 make 1 even where the product above is NaN.
    one = v.const(1.0)
    size = v.select(v.compare("oeq", y, v.const(0.0)), one, size)
    unit = v.both(v.compare("oeq", v.abs(x), one), v.compare("ord", y, y))
    size = v.select(unit, one, size)
    size = v.select(v.compare("oeq", x, one), one, size)
    return _with_sign(v, x, y, size)


def _size(v: Lanes, x: str, y: str) -> str:
    """The power of a number that is not negative, of float32."""
    (w, base), (_, exponent) = widened(v, x), widened(v, y)
    return narrowed(w, v, _exp2(w, w.mul(exponent, _log2(w, base))))


def _long_size(v: Lanes, x: str, y: str) -> str:
    """The same of float64, at most 2 ulp: of the product of `y` and a logarithm of twice the digits."""
    high, low = _long_log2(v, x)
    product = v.mul(y, high)
    rest = v.fma(y, low, v.fma(y, high, v.neg(product)))
    rest = v.select(v.compare("olt", v.abs(product), v.const(_GONE)), rest, v.const(0.0))
    product = v.select(v.compare("ogt", product, v.const(_GONE)), v.const(_GONE), product)
    product = v.select(v.compare("olt", product, v.const(-_GONE)), v.const(-_GONE), product)
    shifted = v.add(product, v.const(_ROUND))
    r = v.mul(v.add(v.sub(product, v.sub(shifted, v.const(_ROUND))), rest), v.const(_LN2))
    tail = v.fma(v.horner(r, v.format.exp), v.mul(r, r), r)
    return scaled(v, tail, v.integers("sub", v.bits(shifted), _ROUND_BITS))


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
    r = w.mul(w.sub(t, w.sub(shifted, w.const(_ROUND))), w.const(_LN2))
    value = w.add(w.fma(w.horner(r, EXP2_DOUBLE), w.mul(r, r), r), w.const(1.0))
    n = w.integers("shl", w.integers("sub", w.bits(shifted), _ROUND_BITS), 52)
    return w.floats(w.integers("add", w.bits(value), n))


def _long_log2(v: Lanes, x: str) -> Pair:
    """log2 of a number that is not negative, to twice the digits: by atanh(s), where s = (m - 1) / (m + 1) of the mantissa m."""
    digits = v.format.mantissa
    tiny = v.compare("olt", x, v.const(v.format.least))
    bits = v.bits(v.select(tiny, v.mul(x, v.const(2.0**digits)), x))
    e = v.integers("ashr", v.integers("sub", bits, v.format.root_half), digits)
    m = v.floats(v.integers("sub", bits, v.integers("shl", e, digits)))
    exponent = v.short_to_float(v.integers("add", e, v.iselect(tiny, v.iconst(-digits), v.iconst(0))))
    high, low = _sum(v, exponent, _product(v, _atanh(v, _share(v, m)), _constants(v, _TWICE_LOG2E)))
    plain = v.both(v.compare("ogt", x, v.const(0.0)), v.compare("olt", x, v.const(_INF)))
    special = v.select(v.compare("oeq", x, v.const(0.0)), v.const(-_INF), x)
    return v.select(plain, high, special), v.select(plain, low, v.const(0.0))


def _share(v: Lanes, m: str) -> Pair:
    """``(m - 1) / (m + 1)`` for m near 1."""
    one = v.const(1.0)
    above, below = v.add(m, one), v.sub(m, one)
    lacks = v.sub(m, v.sub(above, one))
    inverse = v.div(one, above)
    high = v.mul(below, inverse)
    rest = v.fma(v.neg(high), lacks, v.fma(v.neg(high), above, below))
    return high, v.mul(rest, inverse)


def _atanh(v: Lanes, s: Pair) -> Pair:
    """``s + s**3 * (1/3 + s**2 * polynomial)``."""
    z = _product(v, s, s)
    inner = _sum(v, v.const(_THIRD[0]), (v.mul(v.horner(z[0], ATANH_LONG), z[0]), v.const(_THIRD[1])))
    return _product(v, s, _sum(v, v.const(1.0), _product(v, z, inner)))


def _constants(v: Lanes, pair: tuple[float, float]) -> Pair:
    return v.const(pair[0]), v.const(pair[1])


def _product(v: Lanes, a: Pair, b: Pair) -> Pair:
    high = v.mul(a[0], b[0])
    return high, v.fma(a[0], b[1], v.fma(a[1], b[0], v.fma(a[0], b[0], v.neg(high))))


def _sum(v: Lanes, larger: str, pair: Pair) -> Pair:
    """Of a number that is 0 or larger than the pair."""
    high = v.add(larger, pair[0])
    return high, v.add(v.sub(pair[0], v.sub(high, larger)), pair[1])
