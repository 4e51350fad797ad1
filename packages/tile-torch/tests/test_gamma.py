"""The derivatives of the gamma function's logarithm, its kin, and the places of the normal distribution, beside PyTorch's own."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch
from torch import Tensor

special = torch.special
PLACES = torch.tensor([0.1, 0.5, 1, 2.5, 7, 15, 400])


def agree(function: object, x: Tensor, *, rtol: float = 1e-5, exact: float = 1e-12) -> None:
    torch._dynamo.reset()
    for dtype, tolerance in ((torch.float32, rtol), (torch.float64, exact)):
        given = [x.to(dtype).requires_grad_() for _ in range(2)]
        found, wanted = torch.compile(function, backend="tile")(given[0]), function(given[1])  # pyright: ignore
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=0, equal_nan=True)
        found.nan_to_num(0, 0, 0).sum().backward()
        wanted.nan_to_num(0, 0, 0).sum().backward()
        torch.testing.assert_close(given[0].grad, given[1].grad, rtol=tolerance, atol=0, equal_nan=True)


@pytest.mark.parametrize("order", [1, 2, 5])
def test_derivatives_of_digamma_and_their_gradients(order: int) -> None:
    # PyTorch's own first one is right to nine places, at any precision.
    agree(lambda x: torch.polygamma(order, x), PLACES, exact=1e-9 if order == 1 else 1e-12)


def test_a_zeta_function_and_its_ends() -> None:
    agree(lambda q: special.zeta(2.5, q), PLACES)
    x, q = torch.tensor([1, 0.5, 2, 2.5, 3, 2, 30.0]), torch.tensor([2, 2, -1, -1.5, -1.5, 0, 1.0])
    found = torch.compile(special.zeta, backend="tile")(x, q)
    torch.testing.assert_close(found, special.zeta(x, q), equal_nan=True)


def test_places_of_the_normal_distribution() -> None:
    inner = torch.tensor([1e-30, 1e-6, 0.02424, 0.0243, 0.2, 0.5, 0.7, 0.99, 0.9999])
    agree(special.ndtri, inner, rtol=3e-6)
    ends = torch.tensor([0, 1, -0.5, 1.5, nan, inf])
    torch.testing.assert_close(torch.compile(special.ndtri, backend="tile")(ends), special.ndtri(ends), equal_nan=True)


def test_incomplete_gamma_functions_are_computed_between_programs() -> None:
    agree(lambda x: torch.igamma(torch.full_like(x, 3.5), x * 2) * 2 + torch.igammac(x.detach(), x.sqrt()), PLACES)
