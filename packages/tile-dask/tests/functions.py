"""Functions and numbers that several test files use."""

from __future__ import annotations

from typing import Any

import numpy as np
import tile_runtime as tile

MATMUL = tile.Function(
    "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }", name="matmul.tile"
)
BLUR = tile.Function(
    "function (X[M, N]) -> (Y) { S[i, j : M, N] = +(X[i + a - 1, j + b - 1]), a < 3, b < 3; Y = S * 0.125; }",
    name="blur.tile",
)


def numbers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Small whole numbers, so that sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)
