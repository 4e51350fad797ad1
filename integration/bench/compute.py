"""Matmul and convolution."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tile_runtime as tile
from rounds import Contestant

CONV = Path(__file__).parents[1] / "examples" / "conv_relu.tile"


def matmul(small: bool) -> Mapping[str, Contestant]:
    """1024³ float32 against NumPy's BLAS."""
    size = 64 if small else 1024
    rng = np.random.default_rng(0)
    a, b = (rng.random((size, size), np.float32) for _ in range(2))
    function = tile.Function("function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }")
    np.testing.assert_allclose(function(a, b), a @ b, rtol=1e-4)
    return {"tile": lambda: function(a, b), "NumPy": lambda: a @ b}


def convolution(small: bool) -> Mapping[str, Contestant]:
    """3×3 "same" + ReLU, 32×56×56×64 → 64, against PyTorch in both memory layouts."""
    import torch
    from torch.nn.functional import conv2d, relu

    shape = (2, 14, 14, 16) if small else (32, 56, 56, 64)
    rng = np.random.default_rng(0)
    data = rng.random(shape, np.float32)
    weights = rng.random((3, 3, shape[3], shape[3]), np.float32) - np.float32(0.5)
    function = tile.Function.from_file(CONV)
    planes = torch.from_numpy(data).permute(0, 3, 1, 2)
    filters = torch.from_numpy(weights).permute(2, 3, 0, 1)
    nchw = planes.contiguous(), filters.contiguous()
    nhwc = tuple(t.contiguous(memory_format=torch.channels_last) for t in nchw)

    def run(operands: tuple[torch.Tensor, ...]) -> torch.Tensor:
        with torch.inference_mode():
            return relu(conv2d(*operands, padding=1))

    for operands in (nchw, nhwc):
        np.testing.assert_allclose(function(data, weights), run(operands).permute(0, 2, 3, 1).numpy(), atol=2e-3)
    return {
        "tile": lambda: function(data, weights),
        "PyTorch NCHW": lambda: run(nchw),
        "PyTorch NHWC": lambda: run(nhwc),
    }
