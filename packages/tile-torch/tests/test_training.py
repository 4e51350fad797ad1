"""Training: losses follow PyTorch's step by step, gradients are as close to float64's as float32 allows."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from networks import TASKS, Residual, Task
from torch import nn

STEPS = 20


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def settled(network: nn.Module) -> nn.Module:
    """With residual branches that begin at zero, as ResNets are trained: else rounding alone leads losses apart."""
    for module in network.modules():
        if isinstance(module, Residual):
            nn.init.zeros_(module.norms[1].weight)
    return network


def losses(task: Task, network: nn.Module, forward: Callable[[torch.Tensor], torch.Tensor]) -> list[float]:
    """The loss before each of some steps of gradient descent; batches are drawn by a seed of their own."""
    made = torch.optim.SGD(network.parameters(), lr=0.01)
    torch.manual_seed(1)
    found: list[float] = []
    for _ in range(STEPS):
        x, y = task.batch()
        made.zero_grad()
        loss = task.loss(forward, x, y)
        loss.backward()
        made.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("name", TASKS)
def test_losses_follow_eager(name: str) -> None:
    task = TASKS[name]
    ours = settled(task.network())
    theirs = copy.deepcopy(ours)
    found = losses(task, ours, torch.compile(ours, backend="tile"))
    expected = losses(task, theirs, theirs)
    assert found == pytest.approx(expected, rel=1e-4)
    assert found[-1] != found[0]


@pytest.mark.parametrize("name", TASKS)
def test_gradients_are_those_of_float64(name: str) -> None:
    task = TASKS[name]
    ours = task.network()
    exact = copy.deepcopy(ours).double()
    x, y = task.batch()
    task.loss(torch.compile(ours, backend="tile"), x, y).backward()
    task.loss(exact, x.double() if x.is_floating_point() else x, y).backward()
    for (label, parameter), wide in zip(ours.named_parameters(), exact.parameters(), strict=True):
        assert parameter.grad is not None and wide.grad is not None
        apart = (parameter.grad.double() - wide.grad).norm() / wide.grad.norm()
        assert apart <= 1e-4, f"{label}: {apart:.1e}"
