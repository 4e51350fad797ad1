"""Fits the polynomials of `hal_llvm.math.coefficients` and prints that file's tables.

Each is the near-minimax polynomial P of the stated remainder of a function, found by iteratively
reweighted least squares (Lawson's method) on Chebyshev nodes in long double arithmetic; those for float64, for which
least squares are not exact enough, interpolate at Chebyshev nodes.
Run ``python tools/fit_polynomials.py``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.longdouble]
ROOT_PI = np.sqrt(4 * np.arctan(np.longdouble(1)))


def series(x: Floats, terms: list[float]) -> Floats:
    """Sum of terms[k] * x**k."""
    total = np.zeros_like(x)
    for term in reversed(terms):
        total = total * x + np.longdouble(term)
    return total


def factorials(first: int, step: int, count: int, alternate: bool = False) -> list[float]:
    """±1/n! for n = first, first + step, …"""
    values: list[float] = []
    value = np.longdouble(1)
    n = 0
    for k in range(count):
        while n < first + k * step:
            n += 1
            value = value / n
        values.append(-value if alternate and k % 2 else value)
    return values


def fit(
    remainder: Callable[[Floats], Floats], weight: Callable[[Floats], Floats], low: float, high: float, degree: int
) -> tuple[list[float], float]:
    """Coefficients (constant first) and the largest weighted error."""
    nodes = 2000
    t = np.cos(np.pi * (np.arange(nodes, dtype=np.longdouble) + 0.5) / nodes)
    x = (np.longdouble(low) + high) / 2 + (np.longdouble(high) - low) / 2 * t
    scale = max(abs(low), abs(high))
    basis = np.stack([(x / scale) ** k for k in range(degree + 1)], axis=1).astype(np.float64)
    goal, w = remainder(x), weight(x)
    lawson = np.ones(nodes)
    coefficients = np.zeros(degree + 1)
    for _ in range(60):
        rows = (w.astype(np.float64) * np.sqrt(lawson))[:, None]
        coefficients = np.linalg.lstsq(basis * rows, (goal * w).astype(np.float64) * np.sqrt(lawson), rcond=None)[0]
        error = np.abs((basis @ coefficients - goal) * w).astype(np.float64)
        lawson = lawson * error
        lawson /= lawson.sum()
    return [float(c / scale**k) for k, c in enumerate(coefficients)], float(error.max())


def interpolate(
    remainder: Callable[[Floats], Floats], weight: Callable[[Floats], Floats], low: float, high: float, degree: int
) -> tuple[list[float], float]:
    """The same, by the sum of Chebyshev polynomials that meets the remainder at their nodes."""
    count = degree + 1
    angles = np.arctan(np.longdouble(1)) * 4 * (np.arange(count, dtype=np.longdouble) + np.longdouble(0.5)) / count
    middle, half = (np.longdouble(low) + high) / 2, (np.longdouble(high) - low) / 2
    values = remainder(middle + half * np.cos(angles))
    weights = [2 * (values * np.cos(k * angles)).sum() / count for k in range(count)]
    t = np.array([-middle / half, 1 / half], np.longdouble)
    before, now = np.array([1], np.longdouble), t
    total = np.zeros(count, np.longdouble)
    total[:1] += before * weights[0] / 2
    for k in range(1, count):
        total[: k + 1] += now * weights[k]
        after = 2 * np.convolve(t, now)
        after[: len(before)] -= before
        before, now = now, after
    x = middle + half * np.linspace(-1, 1, 20001, dtype=np.longdouble)
    coefficients = [float(c) for c in total]
    error = np.abs((series(x, coefficients) - remainder(x)) * weight(x))
    return coefficients, float(np.nanmax(error))


def atan_remainder(z: Floats) -> Floats:
    x = np.sqrt(z)
    return np.where(z < 1e-3, series(z, [-1 / 3, 1 / 5, -1 / 7, 1 / 9, -1 / 11]), (np.arctan(x) - x) / (x * z))


def asin_terms(count: int) -> list[float]:
    """1/6, 3/40, 15/336, …"""
    odds = np.cumprod([(2 * k - 1) / np.longdouble(2 * k) for k in range(1, count + 1)])
    return [odd / (2 * k + 3) for k, odd in enumerate(odds)]


def asin_remainder(z: Floats) -> Floats:
    x = np.sqrt(z)
    near = series(z, asin_terms(11))
    return np.where(z < 2e-2, near, (np.arcsin(x) - x) / (x * z))


def log_remainder(f: Floats) -> Floats:
    near = series(f, [(-1) ** k / np.longdouble(k + 3) for k in range(24)])
    return np.where(np.abs(f) < 0.05, near, (np.log1p(f) - f + f * f / 2) / f**3)


def scaled_erfc(x: Floats) -> Floats:
    """exp(x**2) * erfc(x) for x >= 0, by the continued fraction; below 2 by the series of erf, whose terms are positive."""
    tail = np.zeros_like(x)
    for n in range(200, 0, -1):
        tail = np.longdouble(n) / 2 / (x + tail)
    far = 1 / (x + tail) / ROOT_PI
    near = np.minimum(x, np.longdouble(2))
    return np.where(x < 2, np.exp(near * near) - 2 / ROOT_PI * kummer(near), far)


def kummer(x: Floats) -> Floats:
    """exp(x**2) * erf(x) * sqrt(pi) / 2."""
    term, total = x.copy(), x.copy()
    for n in range(1, 90):
        term = term * 2 * x * x / (2 * n + 1)
        total = total + term
    return total


def erf(x: Floats) -> Floats:
    return 2 / ROOT_PI * kummer(x) * np.exp(-x * x)


def erf_remainder(z: Floats) -> Floats:
    x = np.sqrt(z)
    return erf(x) / x - 1


def erf_exponent(x: Floats) -> Floats:
    return (np.log(scaled_erfc(x)) - x * x) / x


def erfc_ratio(q: Floats) -> Floats:
    x = 2 * (1 + q) / (1 - q)
    return (1 + 2 * x) * scaled_erfc(x) - 1


Fit = tuple[str, Callable[[Floats], Floats], Callable[[Floats], Floats], float, float, int]
Table = dict[str, Fit]

FITS: Table = {
    "EXP": (
        "(exp(r) - 1 - r) / r**2 for |r| <= ln(2)/2",
        lambda r: series(r, factorials(2, 1, 20)), lambda r: r * r / np.exp(r), -0.3485, 0.3485, 4,
    ),
    "EXP2_DOUBLE": (
        "(exp(r) - 1 - r) / r**2 for |r| <= ln(2)/2, for float64 arithmetic",
        lambda r: series(r, factorials(2, 1, 24)), lambda r: r * r / np.exp(r), -0.3485, 0.3485, 6,
    ),
    "LOG": (
        "(log(1 + f) - f + f**2/2) / f**3 for sqrt(1/2) <= 1 + f < sqrt(2)",
        log_remainder, lambda f: np.abs(f**3 / np.log1p(f)), -0.29295, 0.41425, 8,
    ),
    "ATANH_DOUBLE": (
        "(atanh(s) - s) / s**3 in s**2 for |s| <= 0.1716, for float64 arithmetic",
        lambda z: series(z, [1 / np.longdouble(2 * k + 3) for k in range(20)]), lambda z: z, 0.0, 0.02945, 5,
    ),
    "SIN": (
        "(sin(r) - r) / r**3 in r**2 for |r| <= pi/4",
        lambda z: -series(z, factorials(3, 2, 12, True)), lambda z: z / np.sinc(np.sqrt(z) / np.pi), 0.0, 0.617, 2,
    ),
    "COS": (
        "(cos(r) - 1 + r**2/2) / r**4 in r**2 for |r| <= pi/4",
        lambda z: series(z, factorials(4, 2, 12, True)), lambda z: z * z / np.cos(np.sqrt(z)), 0.0, 0.617, 2,
    ),
    "SINH": (
        "(sinh(x) - x) / x**3 in x**2 for |x| <= 1",
        lambda z: series(z, factorials(3, 2, 14)), lambda z: z, 0.0, 1.0, 3,
    ),
    "ATAN": (
        "(atan(x) - x) / x**3 in x**2 for |x| <= 1",
        atan_remainder, lambda z: z * np.sqrt(z) / np.arctan(np.sqrt(z)), 0.0, 1.0, 8,
    ),
    "ASIN": (
        "(asin(x) - x) / x**3 in x**2 for |x| <= 1/2",
        asin_remainder, lambda z: z, 0.0, 0.25, 4,
    ),
    "ERF": (
        "erf(x) / x - 1 in x**2 for |x| <= 0.93",
        erf_remainder, lambda z: np.sqrt(z) / erf(np.sqrt(z)), 1e-12, 0.865, 5,
    ),
    "ERF_TAIL": (
        "log(erfc(x)) / x for 0.92 <= x <= 4",
        erf_exponent, lambda x: x * scaled_erfc(x) * np.exp(-x * x) / erf(x), 0.92, 4.0, 6,
    ),
    "ERFC": (
        "(1 + 2*x) * exp(x**2) * erfc(x) - 1 in q = (x - 2) / (x + 2) for 0 <= x <= 10.1",
        erfc_ratio, lambda q: 1 / (1 + erfc_ratio(q)), -1.0, 0.6695, 9,
    ),
}  # fmt: skip


def longer(name: str, degree: int) -> Fit:
    """A row of `FITS` of a higher degree."""
    meaning, remainder, weight, low, high, _ = FITS[name]
    return f"{meaning}, to float64's precision", remainder, weight, low, high, degree


LONG_FITS: Table = {
    "EXP_LONG": (
        "(exp(r) - 1 - r) / r**2 for |r| <= ln(2)/2, to float64's precision",
        lambda r: series(r, factorials(2, 1, 30)), lambda r: r * r / np.exp(r), -0.3485, 0.3485, 10,
    ),
    "LOG_LONG": (
        "(log(1 + f) - f + f**2/2) / f**3 for sqrt(1/2) <= 1 + f < sqrt(2), to float64's precision",
        log_remainder, lambda f: np.abs(f**3 / np.log1p(f)), -0.29295, 0.41425, 19,
    ),
    "SINH_LONG": longer("SINH", 6),
    "ATANH_LONG": (
        "(atanh(s) - s - s**3/3) / s**5 in s**2 for |s| <= 0.1716, to float64's precision",
        lambda z: series(z, [1 / np.longdouble(2 * k + 5) for k in range(30)]), lambda z: z * z, 0.0, 0.02945, 8,
    ),
    "SIN_LONG": longer("SIN", 5),
    "COS_LONG": longer("COS", 5),
    "ATAN_LONG": longer("ATAN", 19),
    "ASIN_LONG": longer("ASIN", 11),
    "ERF_LONG": (
        "erf(x) / x - 1 in x**2 for |x| <= 1, to float64's precision",
        erf_remainder, lambda z: np.sqrt(z) / erf(np.sqrt(z)), 1e-12, 1.0, 11,
    ),
    "ERF_TAIL_LONG": (
        "log(erfc(x)) / x for 1 <= x <= 6, to float64's precision",
        erf_exponent, lambda x: x * scaled_erfc(x) * np.exp(-x * x) / erf(x), 0.99, 6.0, 21,
    ),
    "ERFC_LONG": (
        "(1 + 2*x) * exp(x**2) * erfc(x) - 1 in q = (x - 2) / (x + 2) for 0 <= x <= 27.3, to float64's precision",
        erfc_ratio, lambda q: 1 / (1 + erfc_ratio(q)), -1.0, 0.8636, 24,
    ),
}  # fmt: skip


def main() -> None:
    print('"""Polynomials of the math functions, constant term first; made by `tools/fit_polynomials.py`."""\n')
    for name, (meaning, remainder, weight, low, high, degree) in FITS.items():
        show(name, meaning, *fit(remainder, weight, low, high, degree))
    for name, (meaning, remainder, weight, low, high, degree) in LONG_FITS.items():
        show(name, meaning, *interpolate(remainder, weight, low, high, degree))


def show(name: str, meaning: str, coefficients: list[float], error: float) -> None:
    print(f"{name} = (")
    for c in coefficients:
        print(f"    {c!r},")
    print(f')\n"""{meaning}; relative error of the function {error:.1e}."""\n')


if __name__ == "__main__":
    main()
