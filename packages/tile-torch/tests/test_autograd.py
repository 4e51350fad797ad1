"""Tile functions among PyTorch's operators: memory, gradients, modules, wrong use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tile_runtime as tile
import torch
from tile_runtime import numpy as tnp
from tile_torch import torch_function

SCALED = tile.Function("function (X[N, M], W[M]) -> (Y, T) { Y = X * W; T[n : N] = +(X[n, m] * W[m]); }")
CUBE = torch_function(tile.Function("function (X) -> (Y) { Y = X * X * X; }"))


def test_gradients_are_those_of_autograd() -> None:
    torch.manual_seed(0)
    scaled = torch_function(SCALED)
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True)
    y, t = scaled(x, W=w)
    ((y * y).sum() + t[1] * 3).backward()
    found = x.grad, w.grad
    x.grad = w.grad = None
    (((x * w) ** 2).sum() + (x * w).sum(1)[1] * 3).backward()
    for own, theirs in zip(found, (x.grad, w.grad), strict=True):
        torch.testing.assert_close(own, theirs)


def test_derivatives_of_any_order() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(CUBE(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = torch.autograd.grad(second.sum(), x)
    torch.testing.assert_close([first, second, third], [3 * x * x, 6 * x, torch.full_like(x, 6)])
    assert torch.autograd.gradcheck(CUBE, (x,)) and torch.autograd.gradgradcheck(CUBE, (x,))


def test_only_what_asks_has_a_gradient() -> None:
    looked = torch_function(tile.Function("function (T, I[N]) -> (Y, K) { Y = gather(T, I); K = I + 1; }"))
    table = torch.randn(5, 2, requires_grad=True)
    rows, places = looked(table, torch.tensor([4, 0, 4], dtype=torch.int32))
    assert not places.requires_grad and places.tolist() == [5, 1, 5]
    rows.sum().backward()
    assert table.grad is not None and table.grad[:, 0].tolist() == [1, 0, 0, 0, 2]
    assert not torch_function(SCALED)(torch.ones(1, 2), torch.ones(2))[0].requires_grad


def test_a_module_learns() -> None:
    hidden = torch_function(lambda x, weights: tnp.tanh(x @ weights["w"].mT + weights["b"]))

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside, self.out = torch.nn.Linear(2, 8), torch.nn.Linear(8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(hidden(x, {"w": self.inside.weight, "b": self.inside.bias}))

    torch.manual_seed(0)
    layer, x = Layer(), torch.randn(64, 2)
    target = x[:, :1] * x[:, 1:]
    optimizer = torch.optim.Adam(layer.parameters(), 0.05)
    losses: list[float] = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (layer(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 5


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes_and_layouts(dtype: torch.dtype) -> None:
    x = torch.arange(6, dtype=dtype).reshape(2, 3).T.requires_grad_()
    found = CUBE(x)
    assert found.dtype is dtype
    torch.testing.assert_close(found, x**3)
    found.sum().backward()
    torch.testing.assert_close(x.grad, (3 * x * x).detach())


def test_results_are_the_callers_own_and_trees_keep_their_form() -> None:
    both = torch_function(lambda tree, scale: {"sum": tree["a"] + tree["b"][0] * scale, "one": 1.0})
    a, b = torch.ones(3, requires_grad=True), np.ones(3, np.float32)
    made = both({"a": a, "b": (b,)}, 2.0)
    assert made["sum"].detach().tolist() == [3, 3, 3] and made["one"].item() == 1
    made["sum"].sum().backward()
    assert a.grad is not None and a.grad.tolist() == [1, 1, 1]


def test_tile_runtime_finds_it() -> None:
    assert tile.torch_function(SCALED).function is SCALED


def meta() -> Any:
    return torch.ones(2, 3, device="meta")


WRONG = {
    "no function": (lambda: torch_function(3), "TILE-E515", "takes a function"),  # type: ignore[arg-type]
    "another device": (lambda: torch_function(SCALED)(meta(), torch.ones(3)), "TILE-E922", "'X' is on meta"),
    "complex": (lambda: CUBE(torch.ones(2, dtype=torch.complex64)), "TILE-E922", "complex64"),
    "sparse": (lambda: CUBE(torch.eye(2).to_sparse()), "TILE-E922", "sparse"),
    "shapes": (lambda: torch_function(SCALED)(torch.ones(2, 3), torch.ones(4)), "TILE-E107", "M"),
    "names": (lambda: CUBE(torch.ones(2), Z=torch.ones(2)), "TILE-E504", "'Z'"),
    "no tensor": (lambda: CUBE("a"), "TILE-E502", "'X'"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_told(name: str) -> None:
    call, code, text = WRONG[name]
    with pytest.raises(tile.TileError) as caught:
        call()
    assert code in str(caught.value) and text in str(caught.value)
