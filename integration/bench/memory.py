"""Rows that move data: an elementwise chain, sums, and a transpose."""

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
