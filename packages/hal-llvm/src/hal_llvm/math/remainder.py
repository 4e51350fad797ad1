"""fmod of float32, computed in float64."""

from __future__ import annotations

from hal_llvm.math.lanes import Lanes, narrowed, widened

_BITS = 28
"""Bits of a quotient whose product with a float32 is exact in float64."""
_INF = float("inf")


def fmod(v: Lanes, x: str, y: str) -> str:
    """C's fmod, exact: the sign is that of `x`; NaN for an infinite `x`, for `y` = 0 and beside NaN."""
    finite = v.both(v.compare("olt", v.abs(x), v.const(_INF)), v.compare("une", y, v.const(0.0)))
    finite = v.both(finite, v.compare("ord", y, y))
    bounded = v.compare("olt", v.abs(y), v.const(_INF))
    # Lanes without a remainder take part with 0 by 1.
    w, rest = widened(v, v.select(finite, v.abs(x), v.const(0.0)))
    _, divisor = widened(v, v.select(v.both(finite, bounded), v.abs(y), v.const(1.0)))
    result = v.copysign(narrowed(w, v, _take(w, _near(w, rest, divisor), divisor)), x)
    return v.select(finite, v.select(bounded, result, x), v.const(float("nan")))


def _near(w: Lanes, rest: str, divisor: str) -> str:
    """`rest` less multiples of `divisor`, below ``2**_BITS * divisor``: a step for each `_BITS` bits of the quotient."""
    code, limit = w.code, w.mul(divisor, w.const(2.0**_BITS))
    loop, step, done, before = (*map(code.fresh, ("loop", "step", "done")), code.label)
    code.jump(loop)
    code.block(loop)
    place, current = code.reserve(), code.fresh("%rest")
    far = w.compare("oge", current, limit)
    code.branch(w.any(far), step, done)
    code.block(step)
    lower = w.select(far, _take(w, current, _multiple(w, current, divisor)), current)
    code.fill(place, f"{current} = phi {w.f} [ {rest}, %{before} ], [ {lower}, %{code.label} ]")
    code.jump(loop)
    code.block(done)
    return current


def _multiple(w: Lanes, rest: str, divisor: str) -> str:
    """``divisor * 2**n`` with `n` so large that the quotient of `rest` and it has at most `_BITS` bits."""
    apart = w.integers("sub", w.integers("lshr", w.bits(rest), 52), w.integers("lshr", w.bits(divisor), 52))
    shift = w.integers("sub", apart, _BITS - 1)
    return w.floats(w.integers("add", w.bits(divisor), w.integers("shl", shift, 52)))


def _take(w: Lanes, rest: str, divisor: str) -> str:
    """``rest - divisor * trunc(rest / divisor)``, exact where the quotient has at most `_BITS` bits."""
    quotient = w.code.intrinsic("llvm.trunc", w.f, w.div(rest, divisor))
    result = w.sub(rest, w.mul(quotient, divisor))
    # The quotient may have been rounded up to the next whole number.
    return w.select(w.compare("olt", result, w.const(0.0)), w.add(result, divisor), result)
