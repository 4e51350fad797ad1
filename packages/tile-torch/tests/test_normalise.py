"""Gradients of batch normalisation, in training and by running statistics."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn


def gradients(norm: nn.Module, x: Tensor, slope: Tensor, *, compiled: bool) -> list[Tensor]:
    x = x.detach().clone().requires_grad_()
    found = (torch.compile(norm, backend="tile") if compiled else norm)(x)
    found.backward(slope)
    return [found.detach(), *(p.grad for p in (x, *norm.parameters()) if p.grad is not None), *norm.buffers()]


@pytest.mark.parametrize(
    ("norm", "shape", "training"),
    [
        (nn.BatchNorm1d(3), (4, 3), True),
        (nn.BatchNorm2d(4), (2, 4, 3, 5), True),
        (nn.BatchNorm2d(4), (2, 4, 3, 5), False),
        (nn.BatchNorm3d(2, affine=False), (2, 2, 2, 3, 2), True),
        (nn.BatchNorm1d(3, track_running_stats=False), (2, 3, 5), False),
    ],
)
def test_batch_norm_moves_with_its_statistics(norm: nn.Module, shape: tuple[int, ...], training: bool) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    norm = deepcopy(norm).train(training)
    x, slope = 2 * torch.randn(shape) + 1, torch.randn(shape)
    for p in (*norm.parameters(), *norm.buffers()):
        if p.is_floating_point():
            nn.init.uniform_(p, 0.5, 2)
    found, wanted = (gradients(deepcopy(norm), x, slope, compiled=c) for c in (True, False))
    assert all(torch.allclose(f, w, atol=2e-5, rtol=1e-4) for f, w in zip(found, wanted, strict=True))
