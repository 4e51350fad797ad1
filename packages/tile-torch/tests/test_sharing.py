"""Common subexpressions of a training step's graph: what is shared, and what stays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from tile_torch.sharing import share
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

A = torch.arange(6, dtype=torch.float32).reshape(2, 3)


def calls(module: GraphModule) -> int:
    return sum(node.op == "call_function" for node in module.graph.nodes)


def shared(function: Callable[[Tensor], object]) -> tuple[int, int]:
    """How many calls a captured function makes, and how many after `share`; it gives the same."""
    traced = make_fx(function, tracing_mode="fake")(A.clone())
    before = calls(traced)
    share(traced.graph)
    traced.graph.lint()
    traced.recompile()
    torch.testing.assert_close(traced(A.clone()), function(A.clone()), equal_nan=True)
    return before, calls(traced)


def test_equal_calls_become_one() -> None:
    def function(x: Tensor) -> Tensor:
        return (x + 1).sin() * (x + 1).sin() + x.sum(0)

    assert shared(function) == (7, 5)


def test_pairs_of_results_become_one() -> None:
    def function(x: Tensor) -> Tensor:
        return x.max(1).values + x.max(1).values * x.max(1).values

    assert shared(function) == (11, 5)


def test_numbers_of_other_kinds_are_not_equal() -> None:
    def function(x: Tensor) -> Tensor:
        return ((x + 1).cos() + (x + 1.0).cos() + (x * 0.0).cos() + (x * -0.0).cos()).sin()

    before, after = shared(function)
    assert after == before


def test_outputs_stay_tensors_of_their_own() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        return x.sin(), x.sin(), x.sin() + 1

    assert shared(function) == (4, 4)


def test_a_write_ends_what_is_known() -> None:
    def function(x: Tensor) -> Tensor:
        before = x.sin() * 2
        x.add_(1)
        return before + x.sin() * 2

    assert shared(function) == (6, 6)


def test_random_numbers_are_drawn_again() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.rand_like(x) - torch.rand_like(x)

    traced = make_fx(function, tracing_mode="fake")(A)
    share(traced.graph)
    assert calls(traced) == 3


@pytest.mark.slow
def test_a_training_step_imports_no_inductor() -> None:
    text = """
import sys, torch
layer = torch.nn.Linear(3, 2)
torch.compile(layer, backend="tile")(torch.ones(4, 3)).sum().backward()
assert "torch._inductor.lowering" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", text], check=True)
