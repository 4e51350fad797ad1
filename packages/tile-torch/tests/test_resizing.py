"""Images in other sizes, one axis after the other, beside eager PyTorch: values, gradients, layouts and errors."""

from __future__ import annotations

from typing import Any

import pytest
import tile_torch
import torch
from torch import Tensor
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


CASES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "both grow": ((2, 3, 5, 7), {"scale_factor": 2, "mode": "bilinear"}),
    "one shrinks": ((2, 2, 9, 4), {"size": (4, 11), "mode": "bilinear", "align_corners": True}),
    "a factor that does not divide": ((1, 2, 5, 6), {"scale_factor": (1.7, 0.6), "mode": "bicubic"}),
    "the factor again from sizes": ((1, 2, 5, 6), {"scale_factor": 1.7, "mode": "bilinear", "recompute_scale_factor": True}),
    "a line": ((2, 3, 6), {"size": 11, "mode": "linear"}),
    "a volume": ((1, 2, 3, 4, 5), {"size": (5, 3, 8), "mode": "trilinear"}),
    "one cell": ((1, 1, 4, 4), {"size": (1, 6), "mode": "bicubic", "align_corners": True}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    shape, how = CASES[name]
    x = torch.randn(shape, requires_grad=True)

    def both(function: Any) -> tuple[Tensor, Tensor]:
        found = function(x)
        return found, torch.autograd.grad(found, x, torch.linspace(-1, 2, found.numel()).view(found.shape))[0]

    def resized(x: Tensor) -> Tensor:
        return F.interpolate(x, **how)

    found, wanted = both(torch.compile(resized, backend="tile")), both(resized)
    assert all(torch.allclose(a, b, atol=3e-5) for a, b in zip(found, wanted, strict=True))


def test_each_axis_has_its_own_reads() -> None:
    """Four for each of two axes; PyTorch's own division has sixteen."""
    fast = torch.compile(lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), backend="tile")
    with torch.no_grad():
        assert tile_torch.explain(fast, torch.randn(1, 2, 4, 5), kernels=True).count("= gather(") == 8


def test_layouts_and_dtypes_stay() -> None:
    fast = torch.compile(torch.nn.Upsample(scale_factor=2, mode="bilinear"), backend="tile", dynamic=True)
    for size in (3, 5):
        x = torch.randn(2, 3, size, 4, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
        found, wanted = fast(x), F.interpolate(x, scale_factor=2, mode="bilinear")
        assert found.stride() == wanted.stride()
        torch.testing.assert_close(found, wanted)


def test_what_does_not_fit_is_pytorchs_own_error() -> None:
    fast = torch.compile(lambda x: F.interpolate(x, size=(3, 4, 5), mode="bilinear"), backend="tile")
    with pytest.raises(Exception, match="nput and output must have the same number of spatial dimensions"):
        fast(torch.randn(1, 1, 4, 4))
