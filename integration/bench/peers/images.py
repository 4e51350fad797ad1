"""Filters of images for Numba: on one thread and on all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

Array = NDArray[Any]


def _mean(A: Array) -> Array:
    rows, columns = A.shape
    result = np.empty_like(A)
    for y in prange(rows):
        upper, lower = max(y - 1, 0), min(y + 2, rows)
        for x in range(1, columns - 1):
            total = np.uint32(0)
            for k in range(upper, lower):
                total += np.uint32(A[k, x - 1]) + np.uint32(A[k, x]) + np.uint32(A[k, x + 1])
            result[y, x] = total // np.uint32(9)
        for x in (0, columns - 1):
            total = np.uint32(0)
            for k in range(upper, lower):
                for j in range(max(x - 1, 0), min(x + 2, columns)):
                    total += np.uint32(A[k, j])
            result[y, x] = total // np.uint32(9)
    return result


def _unsharp(A: Array, K: Array, amount: float) -> Array:
    """The last pixels stand beyond the edges; five taps, one row after the other."""
    rows, columns = A.shape
    result, sharp = np.empty_like(A), np.float32(amount)
    for y in prange(rows):
        column = np.zeros(columns + 4, A.dtype)
        for t in range(5):
            line = A[min(max(y + t - 2, 0), rows - 1)]
            for x in range(columns):
                column[x + 2] += line[x] * K[t]
        column[:2], column[columns + 2 :] = column[2], column[columns + 1]
        for x in range(columns):
            blurred = column[x] * K[0] + column[x + 1] * K[1] + column[x + 2] * K[2] + column[x + 3] * K[3]
            blurred += column[x + 4] * K[4]
            pixel = A[y, x] + sharp * (A[y, x] - blurred)
            result[y, x] = min(max(pixel, np.float32(0)), np.float32(1))
    return result


mean: Any = njit(parallel=True, fastmath=True, error_model="numpy")(_mean)
mean_alone: Any = njit(fastmath=True, error_model="numpy")(_mean)
unsharp: Any = njit(parallel=True, fastmath=True, error_model="numpy")(_unsharp)
unsharp_alone: Any = njit(fastmath=True, error_model="numpy")(_unsharp)
