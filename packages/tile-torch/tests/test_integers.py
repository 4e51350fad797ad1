"""Operators of integers and of the parts of numbers, beside eager PyTorch."""

from __future__ import annotations

from math import inf

import pytest
import torch
from torch import Tensor


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()


def test_common_divisors_and_the_parts_of_floats() -> None:
    def function(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.gcd(x, y),
            torch.lcm(x, y),
            torch.lcm(x.to(torch.uint8), y.to(torch.uint8)),
            torch.gcd(x, torch.tensor(12)),
            *torch.frexp(z),
        )

    whole = torch.tensor([0, 1, -4, 6, 12, 18], dtype=torch.int32)
    given = whole[:, None], whole, torch.tensor([0.0, -3.0, 1e-40, 8.0, inf])
    found, wanted = torch.compile(function, backend="tile")(*given), function(*given)
    assert all(torch.equal(f, w) and f.dtype == w.dtype for f, w in zip(found, wanted, strict=True))


def test_products_of_bytes() -> None:
    def function(x: Tensor, y: Tensor, z: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
        return torch._int_mm(x, y), torch._weight_int8pack_mm(z, x, scales)

    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-128, 128, (32, 32), dtype=torch.int8, generator=generator)
    given = x, x.t(), torch.randn(3, 32, generator=generator), torch.rand(32, generator=generator)
    found, wanted = torch.compile(function, backend="tile")(*given), function(*given)
    assert torch.equal(found[0], wanted[0])
    torch.testing.assert_close(found[1], wanted[1], rtol=1e-5, atol=1e-4)


def test_the_imaginary_part_of_a_conjugate() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.view_as_complex(x).conj().imag * 2

    x = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(torch.compile(function, backend="tile")(x), function(x))


def test_powers_wrap_for_exponents_of_any_size() -> None:
    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        least = torch.full_like(x, -(2**31))
        return (
            least // (y + 3),
            (y - 50) // least,
            (x - 2) // 3,
            x**y,
            x**33,
            3**y,
            (x - 2) ** torch.tensor([-3, -2], dtype=torch.int32)[:, None],
        )

    given = torch.arange(5, dtype=torch.int32), torch.tensor([0, 8, 32, 33, 100], dtype=torch.int32)
    found, wanted = torch.compile(function, backend="tile")(*given), function(*given)
    assert all(torch.equal(f, w) and f.dtype == w.dtype for f, w in zip(found, wanted, strict=True))
