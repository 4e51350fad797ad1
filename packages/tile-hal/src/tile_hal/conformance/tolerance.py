"""The one table of tolerances.

Math functions: as `tile_ir.accuracy` states.
Sums: any order of n terms is within ``n · eps · Σ|terms|`` of the exact sum, plus the final rounding.
Everything else (integers, bool, max, min, arithmetic but division) is exact. Subnormal numbers count, but for devices that
say they flush them (`subnormals`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tile_ir import numerics
from tile_ir.accuracy import eps as eps
from tile_ir.accuracy import ulp_bound as ulp_bound
from tile_ir.dtype import DType

from tile_hal.conformance import subnormals

Array = npt.NDArray[Any]

SUM_FACTOR = 2.0
"""c of ``c · n · eps · Σ|terms|``: one rounding of each product and one of each addition."""


TUTORIAL_STEPS = 32.0
"""Relative error, in eps of float32, of the tutorial's examples: their sums are exact, a few functions follow (pow 16)."""


def math_reference(name: str, args: list[Array], dtype: DType) -> Array:
    """The correctly rounded result, as nearly as the host can tell."""
    if dtype is not DType.FLOAT64 or name not in _LONG:
        return numerics.apply(name, args, dtype)
    with np.errstate(all="ignore"):
        # Extended precision where the host has it; NumPy's own float64 kernels may be 4 ULP off.
        return _LONG[name](*(a.astype(np.longdouble) for a in args)).astype(np.float64)


_LONG: dict[str, Any] = {
    "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "pow": np.power,
    "expm1": np.expm1, "log1p": np.log1p, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "atan2": np.arctan2,
}  # fmt: skip


def assert_ulp(actual: Array, expected: Array, bound: float, args: list[Array]) -> None:
    """Every element within `bound` ULP of the exact value that `expected` is the rounding of."""
    distance = ulp_distance(actual, expected)
    # The rounded reference is itself up to half a step off.
    wrong = distance > math.floor(bound + 0.5)
    bad = np.flatnonzero(wrong)
    if len(bad):
        worst = max(bad, key=lambda i: distance[i])
        at = ", ".join(repr(a[worst]) for a in args)
        pytest.fail(
            f"{len(bad)} of {actual.size} elements are off by more than {bound} ULP; the worst is "
            f"f({at}) = {actual[worst]!r} instead of {expected[worst]!r}, {distance[worst]:.0f} ULP"
            + subnormals.advice(actual, expected, wrong, args),
            pytrace=False,
        )


def ulp_distance(a: Array, b: Array) -> npt.NDArray[np.float64]:
    """Representable values between two float arrays; 0 for two NaN or zeros of any sign, inf for one NaN."""
    bits = np.dtype(f"i{a.dtype.itemsize}")
    steps = [_ordered(x.view(bits)) for x in (a, b)]
    # float64 keeps small distances exactly and cannot overflow on large ones.
    far = np.abs(steps[0].astype(np.float64) - steps[1].astype(np.float64))
    near = np.where(far < 2.0**52, np.abs(steps[0] - steps[1]), 0).astype(np.float64)
    nans = [x != x for x in (a, b)]
    distance = np.where(far < 2.0**52, near, far)
    return np.where(nans[0] & nans[1], 0.0, np.where(nans[0] | nans[1], np.inf, distance))


def _ordered(bits: Array) -> npt.NDArray[np.int64]:
    """Integers in the order of the floats they are the bits of, both zeros 0."""
    wide = bits.astype(np.int64)
    low = np.int64(-1 << (bits.dtype.itemsize * 8 - 1)) if bits.dtype.itemsize < 8 else np.int64(np.iinfo(np.int64).min)
    return np.where(wide < 0, low - wide, wide)


def sum_bound(terms: Array, absolute: Array, accumulator: DType, result: DType, expected: Array) -> Array:
    """Allowed absolute error of sums: `terms` counts them, `absolute` is the sum of their magnitudes (float64)."""
    rounding = eps(result) * np.abs(expected.astype(np.float64))
    return SUM_FACTOR * (terms + 1) * eps(accumulator) * absolute + rounding


def product_bound(terms: Array, accumulator: DType, result: DType, expected: Array) -> Array:
    """Allowed absolute error of products of `terms` factors."""
    return (2 * (terms + 1) * eps(accumulator) + eps(result)) * np.abs(expected.astype(np.float64))


def tutorial_bound(expected: Array) -> Array:
    """Allowed absolute error of a tutorial example's float32 result."""
    return TUTORIAL_STEPS * eps(DType.FLOAT32) * np.abs(expected)


def assert_close(actual: Array, expected: Array, bound: Array, what: str) -> None:
    """Each element within its absolute bound."""
    wide = [a.astype(np.float64) for a in (actual, expected)]
    with np.errstate(invalid="ignore"):
        error = np.abs(wide[0] - wide[1])
    same = (wide[0] == wide[1]) | (np.isnan(wide[0]) & np.isnan(wide[1]))
    bad = np.flatnonzero(~((error <= bound) | same).reshape(-1))
    if len(bad):
        at = bad[0]
        values = [a.reshape(-1)[at] for a in (actual, expected, np.broadcast_to(bound, error.shape))]
        pytest.fail(f"{what}: {len(bad)} of {actual.size} elements differ, the first is {values[0]!r} instead of "
                    f"{values[1]!r} (allowed {values[2]:.3g})", pytrace=False)  # fmt: skip
