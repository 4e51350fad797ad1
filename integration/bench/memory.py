"""Rows that move data: an elementwise chain, sums, a transpose and a stencil."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tile_runtime as tile
from rounds import Contestant

CHAIN = """function (X) -> (Y) {
    A = X * 1.5;
    B = A + 0.5;
    C = max(B, 0.0);
    D = C * 0.25;
    E = D - 1.0;
    F = abs(E);
    G = min(F, 3.0);
    Y = G + 2.0;
}"""
LAPLACE = """function (A[M, N]) -> (O) {
    U[i, j : M, N] = +(A[i - 1, j]);
    D[i, j : M, N] = +(A[i + 1, j]);
    L[i, j : M, N] = +(A[i, j - 1]);
    R[i, j : M, N] = +(A[i, j + 1]);
    O = U + D + L + R - 4 * A;
}"""
SUMS = {"row": ("O[i : M]", 1), "column": ("O[j : N]", 0), "full": ("O[]", None)}


def chain(small: bool) -> Mapping[str, Contestant]:
    """Eight elementwise operations on 16 M floats against PyTorch eager."""
    import torch

    x = np.random.default_rng(0).standard_normal(1 << (12 if small else 24), np.float32)
    function = tile.Function(CHAIN)
    tensor = torch.from_numpy(x)

    def eager() -> torch.Tensor:
        with torch.inference_mode():
            return torch.clamp(torch.abs(torch.clamp(tensor * 1.5 + 0.5, min=0) * 0.25 - 1), max=3) + 2

    np.testing.assert_allclose(function(x), eager().numpy(), rtol=1e-6)
    return {"tile": lambda: function(x), "PyTorch eager": eager}


def sums(kind: str) -> Callable[[bool], Mapping[str, Contestant]]:
    """Row, column or full sums of 4096² against NumPy."""
    target, axis = SUMS[kind]

    def prepare(small: bool) -> Mapping[str, Contestant]:
        size = 64 if small else 4096
        a = np.random.default_rng(0).random((size, size), np.float32)
        function = tile.Function(f"function (A[M, N]) -> (O) {{ {target} = +(A[i, j]); }}")
        np.testing.assert_allclose(function(a), a.sum(axis, np.float64), rtol=1e-5)
        return {"tile": lambda: function(a), "NumPy": lambda: a.sum(axis)}

    return prepare


def transpose(small: bool) -> Mapping[str, Contestant]:
    """The transpose of 2048², whose rows lie a power of two apart, against PyTorch."""
    import torch

    size = 64 if small else 2048
    a = np.random.default_rng(0).random((size, size), np.float32)
    function = tile.Function("function (A[M, N]) -> (O) { O[j, i : N, M] = =(A[i, j]); }")
    tensor = torch.from_numpy(a)
    assert (function(a) == a.T).all()
    return {"tile": lambda: function(a), "PyTorch": lambda: tensor.T.contiguous()}


def stencil(small: bool) -> Mapping[str, Contestant]:
    """A Laplace operator over 2048² written as four shifts, against slices of a padded tensor in PyTorch eager."""
    import torch

    size = 64 if small else 2048
    a = np.random.default_rng(0).random((size, size), np.float32)
    function = tile.Function(LAPLACE)
    tensor = torch.from_numpy(a)

    def eager() -> torch.Tensor:
        with torch.inference_mode():
            p = torch.nn.functional.pad(tensor, (1, 1, 1, 1))
            return p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * tensor

    np.testing.assert_allclose(function(a), eager().numpy(), rtol=1e-5, atol=1e-5)
    return {"tile": lambda: function(a), "PyTorch eager": eager}
