"""Architectures agree with eager PyTorch to rounding."""

from __future__ import annotations

import pytest
import torch
from torch_networks import SMALL


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


SLOW = ("resnet50", "efficientnet", "convnext", "vit", "resnet18", "gpt")
"""Each has much in common with another one, or is trained by default (`test_training.py`)."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in SMALL])
def test_inference_agrees_with_eager(name: str) -> None:
    network = SMALL[name]
    model, sample = network.make().eval(), network.sample()
    with torch.no_grad():
        found, wanted = torch.compile(model, backend="tile")(sample), model(sample)
    assert found.shape == wanted.shape and found.stride() == wanted.stride()
    assert float((found - wanted).abs().max()) <= 1e-5 * float(wanted.abs().max())
