"""Operators where numbers end: infinities, NaNs and zeros of either sign, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import inf, nan

import pytest
import torch
from torch import Tensor

PAIRS = torch.tensor(list(product([nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 2.5, -7.5], repeat=2)))

OPERATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sign": lambda x, y: x.sign(),
    "erfinv": lambda x, y: x.erfinv(),
    "floor_divide": torch.floor_divide,
    "hypot": torch.hypot,
    "remainder": torch.remainder,
}


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("name", OPERATORS)
def test_ends(name: str) -> None:
    operator = OPERATORS[name]
    found, wanted = (f(*PAIRS.T) for f in (torch.compile(operator, backend="tile"), operator))
    assert torch.allclose(found, wanted, rtol=1e-6, equal_nan=True)
    assert torch.equal(found.signbit()[~wanted.isnan()], wanted.signbit()[~wanted.isnan()])
