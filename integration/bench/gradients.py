"""Forward and backward: a multilayer perceptron and a convolution, against PyTorch's autograd."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import tile_runtime as tile
from rounds import Contestant

MLP = """function (X[B, D], W1[D, H], W2[H, G], W3[G, C]) -> (Z) {
    P[b, h : B, H] = +(X[b, d] * W1[d, h]);
    Q = relu(P);
    R[b, g : B, G] = +(Q[b, h] * W2[h, g]);
    S = relu(R);
    Z[b, c : B, C] = +(S[b, g] * W3[g, c]);
}"""
CONV = """function (D[N, X, Y, CI], K[I, J, CI, CO]) -> (O) {
    O[n, x, y, co : N, X, Y, CO] = +(D[n, x+i-1, y+j-1, ci] * K[i, j, ci, co]);
}"""


def mlp(small: bool) -> Mapping[str, Contestant]:
    """784-512-512-10 at batch 128: outputs, then gradients of all weights."""
    import torch

    batch, sizes = (8, (16, 12, 12, 10)) if small else (128, (784, 512, 512, 10))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, sizes[0]), np.float32)
    weights = [rng.standard_normal(s, np.float32) / np.float32(s[0] ** 0.5) for s in itertools.pairwise(sizes)]
    dz = rng.standard_normal((batch, sizes[-1]), np.float32)
    forward = tile.Function(MLP)
    backward = tile.vjp(forward, wrt=("W1", "W2", "W3"))
    tensors = [torch.from_numpy(w).requires_grad_() for w in weights]
    tx, tdz = torch.from_numpy(x), torch.from_numpy(dz)

    def peer() -> Any:
        w1, w2, w3 = tensors
        out = torch.relu(torch.relu(tx @ w1) @ w2) @ w3
        return torch.autograd.grad(out, tensors, tdz)

    for ours, theirs in zip(backward(x, *weights, dz), peer(), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), atol=2e-3, rtol=2e-3)
    return {"tile": lambda: (forward(x, *weights), backward(x, *weights, dz)), "PyTorch": peer}


def convolution(small: bool) -> Mapping[str, Contestant]:
    """3×3 "same", 32×56×56×64 → 64: output, then gradients of data and weights."""
    import torch

    shape = (2, 14, 14, 16) if small else (32, 56, 56, 64)
    rng = np.random.default_rng(0)
    data, cotangent = (rng.standard_normal(shape, np.float32) for _ in range(2))
    weights = rng.standard_normal((3, 3, shape[3], shape[3]), np.float32)
    forward = tile.Function(CONV)
    backward = tile.vjp(forward, wrt=("D", "K"))
    layouts = {"PyTorch NCHW": torch.contiguous_format, "PyTorch NHWC": torch.channels_last}
    planes = torch.from_numpy(data).permute(0, 3, 1, 2)
    filters = torch.from_numpy(weights).permute(3, 2, 0, 1)
    upstream = torch.from_numpy(cotangent).permute(0, 3, 1, 2)

    def peer(layout: Any) -> Contestant:
        d, k = (t.contiguous(memory_format=layout).requires_grad_() for t in (planes, filters))
        g = upstream.contiguous(memory_format=layout)
        return lambda: torch.autograd.grad(torch.nn.functional.conv2d(d, k, padding=1), (d, k), g)

    peers = {name: peer(layout) for name, layout in layouts.items()}
    dd, dk = backward(data, weights, cotangent)
    td, tk = peers["PyTorch NCHW"]()  # pyright: ignore[reportGeneralTypeIssues]
    np.testing.assert_allclose(dd, td.permute(0, 2, 3, 1).numpy(), atol=1e-2, rtol=1e-3)
    np.testing.assert_allclose(dk, tk.permute(2, 3, 1, 0).numpy(), atol=0.5, rtol=1e-2)
    return {"tile": lambda: (forward(data, weights), backward(data, weights, cotangent)), **peers}
