"""Training: losses follow PyTorch's step by step, gradients are as close to float64's as float32 allows."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_networks import SMALL, Network, Residual

STEPS = 20
SLOW = pytest.mark.slow


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def cross_entropy(logits: Tensor) -> Tensor:
    """Of classes that are drawn."""
    classes = torch.randint(logits.shape[-1], logits.shape[:-1])
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), classes.reshape(-1))


def settled(network: nn.Module) -> nn.Module:
    """With residual branches that begin at zero, as ResNets are trained: else rounding alone leads losses apart."""
    for module in network.modules():
        if isinstance(module, Residual):
            nn.init.zeros_(module.body[-1][1].weight)
    return network


def losses(case: Network, network: nn.Module, forward: Callable[[Tensor], Tensor]) -> list[float]:
    """The loss before each of some steps of gradient descent; batches are drawn by a seed of their own."""
    made = torch.optim.SGD(network.parameters(), lr=0.01)
    torch.manual_seed(1)
    found: list[float] = []
    for _ in range(STEPS):
        made.zero_grad()
        loss = cross_entropy(forward(torch.cat([case.sample() for _ in range(4)])))
        loss.backward()
        made.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("name", ["resnet18", "mlp", *(pytest.param(n, marks=SLOW) for n in ("gpt", "bert"))])
def test_losses_follow_eager(name: str) -> None:
    case = SMALL[name]
    ours = settled(case.make())
    theirs = copy.deepcopy(ours)
    found = losses(case, ours, torch.compile(ours, backend="tile"))
    expected = losses(case, theirs, theirs)
    assert found == pytest.approx(expected, rel=1e-4)
    assert found[-1] != found[0]


@pytest.mark.parametrize("name", ["gpt", *(pytest.param(n, marks=SLOW) for n in ("mlp", "resnet18", "bert"))])
def test_gradients_are_those_of_float64(name: str) -> None:
    case = SMALL[name]
    ours = case.make()
    exact = copy.deepcopy(ours).double()
    x = case.sample()
    for network, given in (
        (torch.compile(ours, backend="tile"), x),
        (exact, x.double() if x.is_floating_point() else x),
    ):
        torch.manual_seed(2)
        cross_entropy(network(given)).backward()
    for (label, parameter), wide in zip(ours.named_parameters(), exact.parameters(), strict=True):
        assert parameter.grad is not None and wide.grad is not None
        apart = (parameter.grad.double() - wide.grad).norm() / wide.grad.norm().clamp_min(1e-30)
        assert apart <= 1e-4 or wide.grad.norm() < 1e-9, f"{label}: {apart:.1e}"


@pytest.mark.parametrize("kind", [torch.optim.AdamW, pytest.param(torch.optim.Adam, marks=SLOW)])
def test_an_optimiser_may_be_compiled(kind: type[torch.optim.Optimizer]) -> None:
    """Its step is a graph of its own, which writes to parameters and moments in place."""
    ours, theirs = (SMALL["mlp"].make() for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    batches = [SMALL["mlp"].sample() for _ in range(3)]
    for network, compiled in ((ours, True), (theirs, False)):
        optimiser = kind(network.parameters(), lr=0.01)
        step = torch.compile(optimiser.step, backend="tile") if compiled else optimiser.step
        for x in batches:
            optimiser.zero_grad()
            network(x).square().sum().backward()
            step()
    for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-6)
