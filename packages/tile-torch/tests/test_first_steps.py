"""The backend as `torch.compile` finds it: forward, backward, and what it refuses."""

from __future__ import annotations

import re

import pytest
import torch
from tile_ir.diagnostics import TileTypeError
from tile_torch.registry import converters
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5), nn.Softmax(1))


def test_it_is_found_by_its_entry_point() -> None:
    assert "tile" in torch._dynamo.list_backends()


def test_inference_agrees_with_eager() -> None:
    model, x = mlp(), torch.randn(4, 20)
    with torch.no_grad():
        found = torch.compile(model, backend="tile")(x)
        assert torch.allclose(found, model(x), atol=1e-6)


def test_a_second_batch_size_works() -> None:
    model = mlp()
    compiled = torch.compile(model, backend="tile")
    for size in (4, 7, 1, 9):
        x = torch.randn(size, 20)
        with torch.no_grad():
            assert torch.allclose(compiled(x), model(x), atol=1e-6)


def test_gradients_agree_with_eager() -> None:
    model, x = mlp(), torch.randn(4, 20)
    weights = torch.randn(4, 5)
    (torch.compile(model, backend="tile")(x) * weights).sum().backward()
    found = [p.grad for p in model.parameters()]
    model.zero_grad()
    (model(x) * weights).sum().backward()
    for ours, parameter in zip(found, model.parameters(), strict=True):
        assert ours is not None and parameter.grad is not None
        assert torch.allclose(ours, parameter.grad, atol=1e-6)


def test_dropout_is_drawn_by_pytorch() -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.4)), torch.randn(16, 8)
    compiled = torch.compile(model, backend="tile")
    for seed in range(3):
        torch.manual_seed(seed)
        found = compiled(x)
        torch.manual_seed(seed)
        assert torch.allclose(found, model(x), atol=1e-6)


def test_operators_without_a_converter_are_listed_with_their_lines() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.special.airy_ai(x)
        return torch.special.bessel_j0(y)

    with pytest.raises(BackendCompilerFailed) as caught:
        torch.compile(function, backend="tile")(torch.ones(3, 3))
    problem = caught.value.inner_exception
    assert isinstance(problem, TileTypeError)
    assert {re.search(r"aten\.\w+", d.message)[0] for d in problem.diagnostics} == {  # type: ignore[index]
        "aten.special_airy_ai",
        "aten.special_bessel_j0",
    }
    assert all("test_first_steps.py:" in d.message for d in problem.diagnostics)


def test_what_only_the_backward_graph_lacks_is_listed_before_the_forward_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(converters(), torch.ops.aten.threshold_backward.default)  # type: ignore[arg-type]
    with pytest.raises(BackendCompilerFailed, match=r"TILE-E920: aten\.threshold_backward"):
        torch.compile(mlp(), backend="tile")(torch.randn(3, 20))


@pytest.mark.parametrize("options", [{"devise": "llvm"}, {"fallback": "perhaps"}])
def test_options_that_do_not_exist_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(BackendCompilerFailed, match="TILE-E921"):
        torch.compile(mlp(), backend="tile", options=options)(torch.ones(1, 20))
