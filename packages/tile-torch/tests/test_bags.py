"""Bags of embeddings, forward and backward, beside eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

BAGS = torch.tensor([0, 4, 4, 7])
"""Of which the second one is empty."""


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()


def both(bag: Any, module: nn.EmbeddingBag, words: Tensor) -> tuple[Tensor, Tensor]:
    """The rows, and the gradient of the table."""
    module.weight.grad = None
    rows = bag(words, BAGS)
    (rows * torch.linspace(-1, 1, rows.numel()).view(rows.shape)).sum().backward()
    assert module.weight.grad is not None
    return rows.detach(), module.weight.grad


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
def test_empty_bags_and_equal_rows(mode: str, padding: int | None) -> None:
    """An empty bag gives no row a gradient, and of equal rows the first in its bag is the largest."""
    torch.manual_seed(0)
    module = nn.EmbeddingBag(6, 3, mode=mode, padding_idx=padding)
    with torch.no_grad():
        module.weight[3:5] = module.weight[1]
    words = torch.tensor([4, 1, 2, 3, 0, 2, 5, 3, 4, 4])
    bag = torch.compile(module, backend="tile")
    for found, wanted in zip(both(bag, module, words), both(module, module, words), strict=True):
        assert torch.allclose(found, wanted, atol=1e-6)
