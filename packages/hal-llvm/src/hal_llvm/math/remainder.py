"""fmod of float32, computed in float64, and of float64 on processors that fuse."""

from __future__ import annotations

from hal_llvm.math.exponential import power_of_two
from hal_llvm.math.lanes import Lanes, narrowed, widened

_BITS = {"float": 28, "double": 52}
"""Bits of a quotient whose product with a number of the format is exact: in float64, or before it is subtracted."""
_INF = float("inf")


def fmod(v: Lanes, x: str, y: str) -> str:
    """C's fmod, exact: the sign is that of `x`; NaN for an infinite `x`, for `y` = 0 and beside NaN."""
    finite = v.both(v.compare("olt", v.abs(x), v.const(_INF)), v.compare("une", y, v.const(0.0)))
    finite = v.both(finite, v.compare("ord", y, y))
    bounded = v.compare("olt", v.abs(y), v.const(_INF))
    # Lanes without a remainder take part with 0 by 1.
    rest = v.select(finite, v.abs(x), v.const(0.0))
    divisor = v.select(v.both(finite, bounded), v.abs(y), v.const(1.0))
    result = v.copysign(_remainder(v, rest, divisor), x)
    return v.select(finite, v.select(bounded, result, x), v.const(float("nan")))


def _remainder(v: Lanes, rest: str, divisor: str) -> str:
    """Of finite numbers that are not negative, by others than 0."""
    bits = _BITS[v.element]
    if v.element == "double":
        return _take(v, _near(v, rest, divisor, bits), divisor)
    (w, rest), (_, divisor) = widened(v, rest), widened(v, divisor)
    return narrowed(w, v, _take(w, _near(w, rest, divisor, bits), divisor))


def _near(w: Lanes, rest: str, divisor: str, bits: int) -> str:
    """`rest` less multiples of `divisor`, below ``2**bits * divisor``: a step for each so many bits of the quotient."""
    code, limit = w.code, w.mul(divisor, w.const(2.0**bits))
    loop, step, done, before = (*map(code.fresh, ("loop", "step", "done")), code.label)
    code.jump(loop)
    code.block(loop)
    place, current = code.reserve(), code.fresh("%rest")
    far = w.compare("oge", current, limit)
    code.branch(w.any(far), step, done)
    code.block(step)
    lower = w.select(far, _take(w, current, _multiple(w, current, divisor, bits)), current)
    code.fill(place, f"{current} = phi {w.f} [ {rest}, %{before} ], [ {lower}, %{code.label} ]")
    code.jump(loop)
    code.block(done)
    return current


def _multiple(w: Lanes, rest: str, divisor: str, bits: int) -> str:
    """``divisor * 2**n`` with `n` so large that the quotient of `rest` and it has at most so many bits."""
    digits = w.format.mantissa
    tiny = w.compare("olt", divisor, w.const(w.format.least))
    normal = w.select(tiny, w.mul(divisor, w.const(2.0**digits)), divisor)
    apart = w.integers("sub", w.integers("lshr", w.bits(rest), digits), w.integers("lshr", w.bits(normal), digits))
    shift = w.integers("add", apart, w.iselect(tiny, w.iconst(digits + 1 - bits), w.iconst(1 - bits)))
    half = w.integers("ashr", shift, 1)  # a power may lie beyond the format where the multiple does not
    return w.mul(w.mul(divisor, power_of_two(w, half)), power_of_two(w, w.integers("sub", shift, half)))


def _take(w: Lanes, rest: str, divisor: str) -> str:
    """``rest - divisor * trunc(rest / divisor)``, exact where the quotient has at most `_BITS` bits."""
    quotient = w.code.intrinsic("llvm.trunc", w.f, w.div(rest, divisor))
    result = w.fma(w.neg(quotient), divisor, rest)
    # The quotient may have been rounded up to the next whole number.
    return w.select(w.compare("olt", result, w.const(0.0)), w.add(result, divisor), result)
