"""Shapes and sizes that numbers decide: the host selects between programs, whose sizes are known then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import BackendCompilerFailed

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def compiled(function: Function) -> Function:
    return torch.compile(function, backend="tile", fullgraph=True)


def agree(function: Function, *given: Tensor) -> None:
    for found, wanted in zip(compiled(function)(*given), function(*given), strict=True):
        torch.testing.assert_close(found, wanted)


def positive(x: Tensor) -> tuple[Tensor, Tensor]:
    rows = x[x[:, 0] > 0].reshape(-1)
    return rows.sin(), torch.cat((rows, rows[rows > 0])).exp().sum()


def test_what_a_mask_selects_goes_on_in_a_program() -> None:
    fast, sizes = compiled(positive), set[int]()
    for x in torch.randn(4, 9, 3):
        found, wanted = fast(x), positive(x)
        assert torch.allclose(found[0], wanted[0], atol=1e-6) and torch.allclose(found[1], wanted[1])
        sizes.add(len(wanted[0]))
    assert len(sizes) > 1


def test_what_a_mask_selects_may_be_nothing() -> None:
    agree(lambda x, w: ((x[x > 9].reshape(-1, 2) @ w).sum(0),), torch.randn(4, 2), torch.randn(2, 3))


def test_gradients_go_back_to_what_a_mask_selected() -> None:
    x, weight = torch.randn(5, 4, requires_grad=True), torch.randn(4, 3, requires_grad=True)

    def loss(x: Tensor, weight: Tensor) -> Tensor:
        mask = x[:, 1] > -1
        spread = torch.zeros(5, 3)
        spread[mask] = x[mask] @ weight
        return (spread.sum(0) * torch.arange(3)).square().sum()

    found, wanted = (torch.autograd.grad(f(x, weight), (x, weight)) for f in (compiled(loss), loss))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_places_and_distinct_numbers_are_found_between_programs() -> None:
    def counted(x: Tensor) -> tuple[Tensor, ...]:
        distinct, counts = torch.unique(x, return_counts=True)
        return distinct * counts, torch.nonzero(x * 2), torch.bincount(x + 1), torch.repeat_interleave(x, x) * 3

    agree(counted, torch.tensor([3, 1, 0, 3, 2]))


def test_numbers_of_python_are_sizes_and_factors() -> None:
    def cut(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
        return x[: n.item()] * x.max().item(), torch.arange(n.item()) + 1

    fast, x = compiled(cut), torch.randn(6, 2)
    for n in (torch.tensor(4), torch.tensor(0), torch.tensor(6)):
        for found, wanted in zip(fast(x, n), cut(x, n), strict=True):
            torch.testing.assert_close(found, wanted)


def test_what_is_refused_behind_an_open_shape_is_known_before() -> None:
    with pytest.raises(BackendCompilerFailed, match=r"TILE-E920: .*bessel_j0") as caught:
        compiled(lambda x: torch.special.bessel_j0(x[x > 0]))(torch.randn(4))
    assert "nonzero" not in str(caught.value)
