"""Functions that are fitted to PyTorch's own, beside those, and their gradients."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

FUNCTIONS = (
    torch.special.i0,
    torch.special.i0e,
    torch.special.i1,
    torch.special.i1e,
    torch.special.erfcx,
    torch.special.log_ndtr,
)


def _every(x: Tensor) -> tuple[Tensor, ...]:
    return tuple(function(x) for function in FUNCTIONS)


def _with_gradients(function: object, x: Tensor) -> list[Tensor]:
    x = x.clone().requires_grad_()
    results = function(x)  # pyright: ignore[reportCallIssue]
    return [*results, *torch.autograd.grad(sum(r.sum() for r in results), x)]


def test_values_and_gradients() -> None:
    torch._dynamo.reset()
    x = torch.tensor([0.0, 1e-8, 0.3, -0.3, 1, -2.5, 4, 7.99, -8.01, 12, -12, 25, -25], dtype=torch.float64)
    compiled = torch.compile(_every, backend="tile")
    for found, wanted in zip(_with_gradients(compiled, x), _with_gradients(_every, x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-300)


def test_ends() -> None:
    torch._dynamo.reset()
    x = torch.tensor([inf, -inf, 100, -100])
    found = torch.compile(lambda x: (torch.special.i0e(x), torch.special.erfcx(x)), backend="tile")(x)
    for value, wanted in zip(found, (torch.special.i0e(x), torch.special.erfcx(x)), strict=True):
        torch.testing.assert_close(value, wanted)
