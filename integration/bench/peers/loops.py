"""Loops for Numba: what someone writes who knows the shape of the nest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

Array = NDArray[Any]
fast: Any = njit(parallel=True, fastmath=True, error_model="numpy")


@fast
def blur(A: Array, K: Array) -> Array:
    rows, columns = A.shape
    taps, half = K.size, K.size // 2
    passed, result = np.zeros_like(A), np.zeros_like(A)
    for y in prange(rows):
        for t in range(taps):
            for x in range(max(0, half - t), min(columns, columns + half - t)):
                passed[y, x] += A[y, x + t - half] * K[t]
    for y in prange(rows):
        for t in range(max(0, half - y), min(taps, rows + half - y)):
            for x in range(columns):
                result[y, x] += passed[y + t - half, x] * K[t]
    return result


@fast
def laplace(A: Array) -> Array:
    rows, columns = A.shape
    result = np.empty_like(A)
    for i in prange(rows):
        for j in range(columns):
            up = A[i - 1, j] if i > 0 else np.float32(0)
            down = A[i + 1, j] if i + 1 < rows else np.float32(0)
            left = A[i, j - 1] if j > 0 else np.float32(0)
            right = A[i, j + 1] if j + 1 < columns else np.float32(0)
            result[i, j] = up + down + left + right - np.float32(4) * A[i, j]
    return result


@fast
def heat(A: Array) -> Array:
    depth, rows, columns = A.shape
    zero, part = np.float32(0), np.float32(0.1)
    result = np.empty_like(A)
    for x in prange(depth):
        for y in range(rows):
            for z in range(columns):
                total = A[x - 1, y, z] if x > 0 else zero
                total += A[x + 1, y, z] if x + 1 < depth else zero
                total += A[x, y - 1, z] if y > 0 else zero
                total += A[x, y + 1, z] if y + 1 < rows else zero
                total += A[x, y, z - 1] if z > 0 else zero
                total += A[x, y, z + 1] if z + 1 < columns else zero
                result[x, y, z] = A[x, y, z] + part * (total - np.float32(6) * A[x, y, z])
    return result


@fast
def distances2(A: Array, B: Array) -> Array:
    result = np.empty((A.shape[0], B.shape[0]), A.dtype)
    turned = np.ascontiguousarray(B.T)
    for i in prange(A.shape[0]):
        row = np.zeros(B.shape[0], A.dtype)
        for k in range(A.shape[1]):
            for j in range(B.shape[0]):
                row[j] += (A[i, k] - turned[k, j]) ** 2
        result[i] = row
    return result


@fast
def distances1(A: Array, B: Array) -> Array:
    result = np.empty((A.shape[0], B.shape[0]), A.dtype)
    turned = np.ascontiguousarray(B.T)
    for i in prange(A.shape[0]):
        row = np.zeros(B.shape[0], A.dtype)
        for k in range(A.shape[1]):
            for j in range(B.shape[0]):
                row[j] += abs(A[i, k] - turned[k, j])
        result[i] = row
    return result


@fast
def max_plus(A: Array, B: Array) -> Array:
    result = np.empty((A.shape[0], B.shape[1]), A.dtype)
    for i in prange(A.shape[0]):
        row = A[i, 0] + B[0]
        for k in range(1, A.shape[1]):
            for j in range(B.shape[1]):
                row[j] = max(row[j], A[i, k] + B[k, j])
        result[i] = row
    return result


def _waves(u: Array, p: Array, steps: int) -> Array:
    rows, columns = u.shape
    zero, part = np.float32(0), np.float32(0.1)
    now, last, new = u.copy(), p.copy(), np.empty_like(u)
    for _ in range(steps):
        for i in prange(rows):
            for j in range(columns):
                total = now[i - 1, j] if i > 0 else zero
                total += now[i + 1, j] if i + 1 < rows else zero
                total += now[i, j - 1] if j > 0 else zero
                total += now[i, j + 1] if j + 1 < columns else zero
                new[i, j] = np.float32(2) * now[i, j] - last[i, j] + part * (total - np.float32(4) * now[i, j])
        last, now, new = now, new, last
    return now


waves: Any = njit(parallel=True, error_model="numpy")(_waves)
waves_alone: Any = njit(error_model="numpy")(_waves)
