"""asinh, acosh and atanh of float32 and float64, by log1p."""

from __future__ import annotations

from hal_llvm.math.exponential import log1p
from hal_llvm.math.lanes import Lanes

_LN2 = 0.6931471805599453


def asinh(v: Lanes, x: str) -> str:
    """At most 3 ulp."""
    size = v.abs(x)
    square = v.mul(size, size)
    root = v.sqrt(v.add(square, v.const(1.0)))
    rest = v.add(size, v.div(square, v.add(root, v.const(1.0))))
    return v.copysign(_log1p_or_twice(v, size, rest), x)


def acosh(v: Lanes, x: str) -> str:
    """At most 3 ulp; NaN below 1."""
    above = v.sub(x, v.const(1.0))
    rest = v.add(above, v.sqrt(v.mul(above, v.add(x, v.const(1.0)))))
    result = _log1p_or_twice(v, x, rest)
    return v.select(v.compare("oge", x, v.const(1.0)), result, v.const(float("nan")))


def atanh(v: Lanes, x: str) -> str:
    """At most 3 ulp; NaN beyond 1."""
    size = v.abs(x)
    ratio = v.div(v.add(size, size), v.sub(v.const(1.0), size))
    return v.copysign(v.mul(log1p(v, ratio), v.const(0.5)), x)


def _log1p_or_twice(v: Lanes, x: str, rest: str) -> str:
    """``log1p(rest)``, and ``log(2*x)`` of a large `x`, whose square may be infinite.

    ``x + sqrt(x*x + 1)`` is 2*x then, and the logarithms of x and 1 + x are equal.
    """
    large = v.compare("oge", x, v.const(2.0 ** (v.format.mantissa + 2)))
    result = log1p(v, v.select(large, x, rest))
    return v.add(result, v.select(large, v.const(_LN2), v.const(0.0)))
