"""exp, expm1, log, log1p, sinh, cosh and tanh of float32 and float64: the same steps, with numbers of the format."""

from __future__ import annotations

from hal_llvm.math.lanes import Lanes

_LOG2E = 1.4426950408889634


def exp(v: Lanes, x: str) -> str:
    """At most 1 ulp; denormal results included."""
    return scaled_exp(v, x, 0)


def scaled_exp(v: Lanes, x: str, power: int) -> str:
    """``exp(x) * 2**power`` without intermediate overflow; NaN stays NaN."""
    tail, shifted = _reduced_exp(v, x, v.format.lowest, v.format.highest)
    return scaled(v, tail, v.integers("sub", v.bits(shifted), v.format.rounder_bits - power))


def scaled(v: Lanes, tail: str, n: str) -> str:
    """``(1 + tail) * 2**n``, for `n` up to twice what powers of the format go to."""
    base = v.add(tail, v.const(1.0))
    # 2**n in two factors: the first is exact, the second rounds (to denormals, zero or inf).
    half = v.integers("ashr", n, 1)
    rest = v.integers("sub", n, half)
    return v.mul(v.mul(base, power_of_two(v, half)), power_of_two(v, rest))


def _reduced_exp(v: Lanes, x: str, low: float, high: float) -> tuple[str, str]:
    """``exp(x - n * ln 2) - 1`` for `x` clamped to [low, high], and a float whose lowest bits are n."""
    x = v.select(v.compare("ogt", x, v.const(high)), v.const(high), x)
    x = v.select(v.compare("olt", x, v.const(low)), v.const(low), x)
    shifted = v.fma(x, v.const(_LOG2E), v.const(v.format.rounder))
    whole = v.sub(shifted, v.const(v.format.rounder))
    r = v.fma(whole, v.const(-v.format.ln2_high), x)
    r = v.fma(whole, v.const(-v.format.ln2_low), r)
    return v.fma(v.horner(r, v.format.exp), v.mul(r, r), r), shifted


def power_of_two(v: Lanes, n: str) -> str:
    """2**n where that is a normal number."""
    digits = v.format.mantissa
    return v.floats(v.integers("add", v.integers("shl", n, digits), v.format.bias << digits))


def expm1(v: Lanes, x: str) -> str:
    """At most 2 ulp."""
    tail, shifted = _reduced_exp(v, x, -v.format.one, v.format.highest - 1)
    # Half of 2**n: the whole one may be infinite where the result is not.
    half = power_of_two(v, v.integers("sub", v.bits(shifted), v.format.rounder_bits + 1))
    result = v.fma(tail, half, v.sub(half, v.const(0.5)))
    tiny = v.compare("olt", v.abs(x), v.const(2.0 ** -(v.format.mantissa + 2)))
    return v.select(tiny, x, v.add(result, result))  # keeps the sign of -0


def log(v: Lanes, x: str) -> str:
    """At most 1 ulp; denormals included, negative numbers give NaN, 0 gives -inf."""
    digits = v.format.mantissa
    tiny = v.compare("olt", x, v.const(v.format.least))
    y = v.select(tiny, v.mul(x, v.const(2.0**digits)), x)
    bits = v.bits(y)
    # Exponent such that sqrt(1/2) <= mantissa < sqrt(2).
    e = v.integers("ashr", v.integers("sub", bits, v.format.root_half), digits)
    f = v.sub(v.floats(v.integers("sub", bits, v.integers("shl", e, digits))), v.const(1.0))
    exponent = v.short_to_float(v.integers("add", e, v.iselect(tiny, v.iconst(-digits), v.iconst(0))))
    result = _combined_log(v, exponent, f)
    result = v.select(v.compare("olt", x, v.const(float("inf"))), result, x)
    special = v.select(v.compare("oeq", x, v.const(0.0)), v.const(float("-inf")), v.const(float("nan")))
    return v.select(v.compare("ogt", x, v.const(0.0)), result, special)


def _combined_log(v: Lanes, exponent: str, f: str) -> str:
    """``exponent * ln 2 + log(1 + f)`` for sqrt(1/2) <= 1 + f < sqrt(2)."""
    square = v.mul(f, f)
    tail = v.mul(v.mul(v.horner(f, v.format.log), f), square)
    tail = v.fma(exponent, v.const(v.format.ln2_low), tail)
    tail = v.fma(square, v.const(-0.5), tail)
    return v.fma(exponent, v.const(v.format.ln2_high), v.add(f, tail))


def log1p(v: Lanes, x: str) -> str:
    """At most 2 ulp; -1 gives -inf, less gives NaN."""
    digits = v.format.mantissa
    e = v.integers("ashr", v.integers("sub", v.bits(v.add(x, v.const(1.0))), v.format.root_half), digits)
    field = v.integers("shl", e, digits)
    # (1 + x) / 2**e - 1 without rounding 1 + x; 4 / 2**e is normal where 1 / 2**e is not.
    scaled = v.floats(v.integers("sub", v.bits(x), field))
    four = v.floats(v.integers("sub", v.iconst((v.format.bias + 2) << digits), field))
    f = v.add(scaled, v.fma(four, v.const(0.25), v.const(-1.0)))
    still = v.icompare("eq", e, v.iconst(0))
    result = _combined_log(v, v.short_to_float(e), v.select(still, x, f))
    ordinary = v.both(v.compare("olt", x, v.const(float("inf"))), v.compare("une", x, v.const(0.0)))
    result = v.select(ordinary, result, x)
    special = v.select(v.compare("oeq", x, v.const(-1.0)), v.const(float("-inf")), v.const(float("nan")))
    return v.select(v.compare("ogt", x, v.const(-1.0)), result, special)


def sinh(v: Lanes, x: str) -> str:
    size = v.abs(x)
    half = scaled_exp(v, size, -1)
    large = v.copysign(v.sub(half, v.div(v.const(0.25), half)), x)
    square = v.mul(x, x)
    small = v.fma(v.mul(v.horner(square, v.format.sinh), square), x, x)
    return v.select(v.compare("olt", size, v.const(1.0)), small, large)


def cosh(v: Lanes, x: str) -> str:
    half = scaled_exp(v, v.abs(x), -1)
    return v.add(half, v.div(v.const(0.25), half))


def tanh(v: Lanes, x: str) -> str:
    """At most 3 ulp: e / (e + 2) of e = exp(2 * abs(x)) - 1, which is good near 0 as well; where that is large it is 1."""
    size, digits = v.abs(x), v.format.mantissa
    tail, shifted = _reduced_exp(v, v.add(size, size), 0.0, v.format.one)
    power = v.floats(
        v.integers("shl", v.integers("sub", v.bits(shifted), v.format.rounder_bits - v.format.bias), digits)
    )
    e = v.fma(tail, power, v.sub(power, v.const(1.0)))
    return v.copysign(v.div(e, v.add(e, v.const(2.0))), x)
