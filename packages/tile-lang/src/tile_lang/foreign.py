"""Scalar functions as other languages call them, and what to write in Tile: near spellings would suggest something else."""

from __future__ import annotations

from collections.abc import Mapping

FOREIGN: Mapping[str, str] = {
    "clip": "clamp(X, low, high)", "minimum": "min(A, B)", "maximum": "max(A, B)", "fmin": "min(A, B)", "fmax": "max(A, B)",
    "fabs": "abs(X)", "absolute": "abs(X)", "negative": "-X", "square": "X * X", "reciprocal": "recip(X)",
    "rint": "round_even(X)", "nearbyint": "round_even(X)", "fix": "trunc(X)", "remainder": "mod(A, B)",
    "arcsin": "asin(X)", "arccos": "acos(X)", "arctan": "atan(X)", "arctan2": "atan2(Y, X)",
    "arcsinh": "asinh(X)", "arccosh": "acosh(X)", "arctanh": "atanh(X)",
    "exp2": "pow(2, X)", "log2": "log(X) / log(2)", "log10": "log(X) / log(10)", "rsqrt": "recip(sqrt(X))", "power": "pow(X, Y)",
    "swish": "silu(X)", "bitcast": "bits_as_float(X)", "bitcast_convert_type": "bits_as_float(X)",
}  # fmt: skip
"""What to write, by the name elsewhere."""
