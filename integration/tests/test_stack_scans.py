"""Cumulative sums and their relatives on every device, their gradients included."""

from __future__ import annotations

import numpy as np
import pytest
import tile_runtime as tile
from tile_hal.interfaces import Device

ROWS, COLUMNS = 37, 90
FORMS = {
    "rows": ("O[k, i : N, M] = +(I[k, i - j]), j < M;", lambda x: np.cumsum(x, 1)),
    "columns": ("O[i, k : N, M] = +(I[i - j, k]), j < N;", lambda x: np.cumsum(x, 0)),
    "from_the_end": ("O[k, i : N, M] = +(I[k, i + j]), j < M;", lambda x: np.cumsum(x[:, ::-1], 1)[:, ::-1]),
    "largest_so_far": ("O[k, i : N, M] = >(I[k, i - j]), j < M;", lambda x: np.maximum.accumulate(x, 1)),
    "summed_area": ("O[i, k : N, M] = +(I[i - j, k - l]), j < N, l < M;", lambda x: np.cumsum(np.cumsum(x, 1), 0)),
}


def is_fast(device: Device) -> bool:
    """It compiles, and by a pass list with `scan` in it."""
    return not device.id.startswith("interp") and any(p.name == "scan" for p in device.target.passes)


@pytest.mark.parametrize("form", FORMS)
def test_scans_of_a_matrix(device: Device, form: str) -> None:
    statement, expected = FORMS[form]
    function = tile.Function(f"function (A[N, M]) -> (R) {{ I = A * 2; {statement} R = O + 1; }}")
    values = np.random.default_rng(0).integers(-9, 9, (ROWS, COLUMNS)).astype(np.float32)
    np.testing.assert_array_equal(function(values, device=device), expected(values * 2) + 1)


@pytest.mark.parametrize("size", [1, 100, 40_000])
def test_a_long_vector(device: Device, size: int) -> None:
    """Beyond some length it is cut into blocks; integers wrap there, too."""
    if size > 1000 and not is_fast(device):
        pytest.skip("takes long here")
    function = tile.Function("function (I[N]) -> (O) { O[i : N] = +(I[i - j]), j < N; }")
    values = np.random.default_rng(1).integers(-100, 100, size).astype(np.int16)
    np.testing.assert_array_equal(function(values, device=device), np.cumsum(values, dtype=np.int16))


def test_the_gradient_of_a_cumulative_sum_is_one(device: Device) -> None:
    """It runs from the other end, in linear time."""
    size = 40_000 if is_fast(device) else 100
    function = tile.Function("function (I[N]) -> (O) { O[i : N] = +(I[i - j]), j < N; }")
    gradient = tile.vjp(function, wrt="I")
    weights = np.random.default_rng(2).integers(-3, 4, size).astype(np.float32)
    found = gradient(np.zeros(size, np.float32), weights, device=device)
    np.testing.assert_array_equal(found, np.cumsum(weights[::-1])[::-1])
