"""The error function of float32 and float64, and its complement."""

from __future__ import annotations

from hal_llvm.math.exponential import exp
from hal_llvm.math.lanes import Lanes


def erf(v: Lanes, x: str) -> str:
    """At most 3 ulp: a polynomial, and for larger x ``1 - exp(polynomial)``."""
    size, square = v.abs(x), v.mul(x, x)
    small = v.fma(v.horner(square, v.format.erf), x, x)
    t = _at_most(v, size, v.format.erf_flat)
    large = v.sub(v.const(1.0), exp(v, v.mul(v.horner(t, v.format.erf_tail), t)))
    return v.select(v.compare("olt", size, v.const(v.format.erf_split)), small, v.copysign(large, x))


def erfc(v: Lanes, x: str) -> str:
    """At most 6 ulp: ``exp(-x*x)`` times a rational function."""
    size = _at_most(v, v.abs(x), v.format.erfc_gone)
    q = v.div(v.sub(size, v.const(2.0)), v.add(size, v.const(2.0)))
    ratio = v.div(v.add(v.horner(q, v.format.erfc), v.const(1.0)), v.fma(size, v.const(2.0), v.const(1.0)))
    tail = v.mul(ratio, _bell(v, size))
    return v.select(v.compare("olt", x, v.const(0.0)), v.sub(v.const(2.0), tail), tail)


def _at_most(v: Lanes, x: str, limit: float) -> str:
    """The smaller of both; NaN stays NaN."""
    return v.select(v.compare("ogt", x, v.const(limit)), v.const(limit), x)


def _bell(v: Lanes, x: str) -> str:
    """``exp(-x*x)``, of the square of the upper half of `x`, which is exact, and of what it lacks."""
    high = v.floats(v.integers("and", v.bits(x), -(1 << (v.format.mantissa // 2 + 1))))
    rest = v.mul(v.sub(high, x), v.add(high, x))
    near = v.horner(rest, (1.0, 1.0, 1 / 2, 1 / 6, 1 / 24))
    return v.mul(exp(v, v.neg(v.mul(high, high))), near)
