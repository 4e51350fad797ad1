"""How exact the scalar operations of every device are: the one table of stated bounds.

Math functions: OpenCL's full-profile bounds in units in the last place (specification, "Relative error as ULPs"); float16 and
bfloat16 are computed in float32 and rounded once, so one unit covers all of them. Everything else is correctly rounded.
"""

from __future__ import annotations

from tile_ir.dtype import DType

ULP_FLOAT32: dict[str, float] = {
    "div": 2.5, "recip": 2.5, "sqrt": 3, "exp": 3, "log": 3, "sin": 4, "cos": 4, "tan": 5, "asin": 4, "acos": 4,
    "atan": 5, "sinh": 4, "cosh": 4, "tanh": 5, "pow": 16, "ceil": 0, "floor": 0, "round": 0,
    "expm1": 3, "log1p": 2, "asinh": 4, "acosh": 4, "atanh": 5, "erf": 16, "erfc": 16, "trunc": 0, "round_even": 0,
    "atan2": 6, "fmod": 0,
}  # fmt: skip
"""Largest error of an operation on float32 (OpenCL full profile)."""
ULP_FLOAT64: dict[str, float] = {**ULP_FLOAT32, "div": 0, "recip": 0, "sqrt": 0}
"""The same for float64."""
ULP_HALF = 1.0
"""float16 and bfloat16, for every inexact operation."""


def ulp_bound(name: str, dtype: DType) -> float:
    """Allowed error of operation `name` on `dtype`, in ULP; 0 is correctly rounded."""
    table = ULP_FLOAT64 if dtype is DType.FLOAT64 else ULP_FLOAT32
    bound = table.get(name, 0.0)
    return min(bound, ULP_HALF) if dtype in (DType.FLOAT16, DType.BFLOAT16) else bound


def eps(dtype: DType) -> float:
    """Distance from 1 to the next value of a float dtype; twice the largest relative error of rounding to it."""
    return {DType.FLOAT16: 2.0**-10, DType.BFLOAT16: 2.0**-7, DType.FLOAT32: 2.0**-23}.get(dtype, 2.0**-52)
