"""Recurrent layers that Dynamo was told to capture, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn


@pytest.fixture(autouse=True)
def captured() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.config.allow_rnn = True  # a patch could not read what an earlier test has taken back
    yield
    torch._dynamo.config.allow_rnn = False


@pytest.mark.parametrize(
    ("options", "dtype"),
    [({"bidirectional": True, "num_layers": 2}, torch.float32), ({"bias": False, "batch_first": True}, torch.bfloat16)],
    ids=str,
)
def test_inference_of_lstm(options: dict[str, int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer, x = nn.LSTM(5, 8, **options).to(dtype), torch.randn(6, 3, 5, dtype=dtype)
    with torch.no_grad():
        found, (hidden, cell) = torch.compile(layer, backend="tile")(x)
        wanted, (last, state) = layer(x)
    atol = 1e-6 if dtype is torch.float32 else 2e-2
    for ours, theirs in ((found, wanted), (hidden, last), (cell, state)):
        assert ours.dtype is theirs.dtype and torch.allclose(ours, theirs, atol=atol)


def test_training_of_lstm_whose_input_has_no_gradient() -> None:
    """PyTorch then has an operator for the whole layer, whose gradients are one, too."""
    torch.manual_seed(0)
    layer, x = nn.LSTM(3, 4), torch.randn(3, 2, 3)
    ours: Any = torch.compile(layer, backend="tile")
    found, wanted = (torch.autograd.grad(run(x)[0].square().sum(), [*layer.parameters()]) for run in (ours, layer))
    for mine, theirs in zip(found, wanted, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)
