"""A 3×3 convolution and its ReLU at full size, with the stages of its compilation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tile_runtime as tile
from timing import Stages

Array = np.ndarray[Any, Any]
FULL = (32, 224, 224, 64)
CHANNELS = 64
ROWS = ((0, 0), (0, 1), (7, 100), (19, 222), (31, 223))
"""(batch entry, image row) pairs that NumPy computes, too: borders and inside."""


@dataclass(frozen=True)
class Outcome:
    """What the run showed."""

    stages: Stages
    gflops: float
    error: float
    """Largest error over the compared rows, relative to the largest value."""


def run(device: Any, shape: tuple[int, int, int, int] = FULL, channels: int = CHANNELS) -> Outcome:
    """Compile and run the convolution, and compare rows of it with NumPy."""
    stages = Stages()
    with stages.stage("parse", "text → syntax tree"):
        function = tile.Function.from_file(Path(__file__).with_name("conv_relu.tile"))
    weights = (3, 3, channels, shape[3])
    types = (tile.placeholder("float32", shape, "D"), tile.placeholder("float32", weights, "K"))
    with stages.stage("bind", "shapes and dtypes → typed program"):
        lowered = function.lower(*types, device=device)
    with stages.stage("optimize", "Stripe passes, tiling, lowering"):
        kernels = lowered.kernels
    with stages.stage("generate code", f"{len(kernels.kernels)} kernels through {device.target.name}"):
        _ = lowered.executable
    data, filters = _inputs(shape, weights)
    with stages.stage("first call", "compiles for itself"):
        function(data, filters, device=device)
    out, seconds = stages.best("next calls", 3, lambda: function(data, filters, device=device), "best of 3")
    with stages.stage("compare with NumPy", f"{len(ROWS)} image rows in float64"):
        error = max(_row_error(data, filters, out, *place) for place in ROWS if place < (shape[0], shape[1]))
    return Outcome(stages, flops(shape, channels) / seconds / 1e9, error)


def flops(shape: tuple[int, int, int, int], channels: int) -> int:
    """Multiplications and additions of a 3×3 "same" convolution; taps outside the image are no work."""
    n, x, y, ci = shape
    return 2 * n * (3 * x - 2) * (3 * y - 2) * ci * channels


def _inputs(shape: tuple[int, ...], weights: tuple[int, ...]) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    data = rng.random(shape, np.float32)
    return data, rng.random(weights, np.float32) - np.float32(0.5)


def _row_error(data: Array, filters: Array, out: Array, batch: int, row: int) -> float:
    rows = [r for r in (row - 1, row, row + 1) if 0 <= r < data.shape[1]]
    padded = np.pad(data[batch, rows].astype(np.float64), ((0, 0), (1, 1), (0, 0)))
    wide, width = filters.astype(np.float64), data.shape[2]
    total = sum(padded[k, j : j + width] @ wide[r - row + 1, j].T for k, r in enumerate(rows) for j in range(3))
    expected = np.maximum(total, 0)
    return float(np.abs(out[batch, row] - expected).max() / np.abs(expected).max())
