"""The error function of float32 and its complement."""

from __future__ import annotations

from hal_llvm.math.coefficients import ERF, ERF_TAIL, ERFC
from hal_llvm.math.exponential import exp
from hal_llvm.math.lanes import Lanes

_SPLIT = 0.92
_FLAT = 4.0
"""From here on the error function is 1."""
_VANISHED = 11.0
"""From here on its complement is 0."""


def erf(v: Lanes, x: str) -> str:
    """At most 2 ulp: a polynomial, and beyond `_SPLIT` ``1 - exp(polynomial)``."""
    size, square = v.abs(x), v.mul(x, x)
    small = v.fma(v.horner(square, ERF), x, x)
    t = v.select(v.compare("ogt", size, v.const(_FLAT)), v.const(_FLAT), size)
    large = v.sub(v.const(1.0), exp(v, v.mul(v.horner(t, ERF_TAIL), t)))
    return v.select(v.compare("olt", size, v.const(_SPLIT)), small, v.copysign(large, x))


def erfc(v: Lanes, x: str) -> str:
    """At most 6 ulp: ``exp(-x*x)`` times a rational function."""
    size = v.abs(x)
    size = v.select(v.compare("ogt", size, v.const(_VANISHED)), v.const(_VANISHED), size)
    q = v.div(v.sub(size, v.const(2.0)), v.add(size, v.const(2.0)))
    ratio = v.div(v.add(v.horner(q, ERFC), v.const(1.0)), v.fma(size, v.const(2.0), v.const(1.0)))
    tail = v.mul(ratio, _bell(v, size))
    return v.select(v.compare("olt", x, v.const(0.0)), v.sub(v.const(2.0), tail), tail)


def _bell(v: Lanes, x: str) -> str:
    """``exp(-x*x)``, of the square of the upper half of `x`, which is exact, and of what it lacks."""
    high = v.floats(v.integers("and", v.bits(x), -(1 << 12)))
    rest = v.mul(v.sub(high, x), v.add(high, x))
    near = v.horner(rest, (1.0, 1.0, 1 / 2, 1 / 6, 1 / 24))
    return v.mul(exp(v, v.neg(v.mul(high, high))), near)
