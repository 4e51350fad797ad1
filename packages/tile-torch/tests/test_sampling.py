"""Random numbers of distributions that tensors describe, beside eager PyTorch from the same seed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributions import Beta, Dirichlet, Gamma

SAMPLES: dict[str, Callable[[Tensor], Tensor]] = {
    "gamma": lambda x: Gamma(x.exp(), x.exp() + 1, validate_args=False).rsample() * 2,
    "beta": lambda x: Beta(x.exp(), x.exp() + 1, validate_args=False).rsample().log(),
    "dirichlet": lambda x: Dirichlet(x.exp(), validate_args=False).rsample() + 1,
    "rrelu": lambda x: torch.nn.functional.rrelu(x * 2, training=True) + 1,
    "several places": lambda x: x.gather(1, torch.multinomial(x.detach().exp(), 6, replacement=True)) * 2,
    "poisson": lambda x: torch.poisson(x.exp() * 3) * x,
    "binomial": lambda x: torch.binomial(torch.full_like(x, 9), x.detach().sigmoid()) * x,
}


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_and_their_gradients_agree(name: str) -> None:
    torch._dynamo.reset()
    given, function = torch.linspace(-1, 1, 12).view(3, 4), SAMPLES[name]

    def step(function: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor | None]:
        torch.manual_seed(7)
        x = given.clone().requires_grad_()
        made = function(x)
        made.sum().backward()
        return made.detach(), x.grad

    found, wanted = step(torch.compile(function, backend="tile", fullgraph=True)), step(function)
    torch.testing.assert_close(found, wanted)
