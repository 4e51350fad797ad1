"""Sizes that a compiled graph meets for the first time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tile_torch.newcomers
import torch
from tile_runtime.evaluator import Evaluator
from tile_torch.newcomers import Newcomers
from torch import Tensor
from torch.fx import symbolic_trace


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every program that an evaluator ran."""
    found: list[Any] = []
    run = Evaluator.call

    def counted(self: Evaluator, program: Any, *given: Any) -> Any:
        found.append(program)
        return run(self, program, *given)

    monkeypatch.setattr(Evaluator, "call", counted)
    return found


def test_a_cache_that_grows_makes_two_programs(calls: list[Any]) -> None:
    def step(query: Tensor, new: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        keys = torch.cat([cache, new])
        return torch.softmax(query @ keys.T, -1) @ keys, keys

    fast = torch.compile(step, backend="tile", dynamic=True)  # pyright: ignore[reportUnknownMemberType]
    found = expected = torch.randn(3, 4)
    for _ in range(8):
        query, new = torch.randn(2, 4), torch.randn(1, 4)
        (made, found), (answer, expected) = fast(query, new, found), step(query, new, expected)
        assert agree(made, answer) and agree(found, expected)
    assert len(calls) == 2


def agree(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, atol=1e-5)


class Clock:
    """Each run of PyTorch's takes a second."""

    def perf_counter(self) -> float:
        self.now = getattr(self, "now", 0.0) + 1
        return self.now


@pytest.fixture
def newcomers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Newcomers]:
    monkeypatch.setattr(tile_torch.newcomers, "time", Clock())
    yield Newcomers(symbolic_trace(_after))


def _after(x: Tensor) -> list[Tensor]:
    return [x + 1]


def test_a_size_gets_its_program_when_it_has_cost_as_much(newcomers: Newcomers) -> None:
    assert not newcomers.wait((2,))  # what a program costs is not known
    newcomers.bought((2,), 2.5)
    runs = 0
    while newcomers.wait((3,)):
        found = newcomers.run((3,), [torch.ones(3)])
        assert found is not None and agree(found[0], torch.full((3,), 2.0))
        runs += 1
    assert runs == 3


def test_what_pytorch_cannot_run_is_left_to_programs(newcomers: Newcomers) -> None:
    newcomers.bought((2,), 9.0)
    assert newcomers.run((3,), []) is None
    assert not newcomers.wait((4,))


def test_whoever_records_programs_sees_all(newcomers: Newcomers, monkeypatch: pytest.MonkeyPatch) -> None:
    newcomers.bought((2,), 9.0)
    monkeypatch.setattr(tile_torch.newcomers, "RECORDERS", [print])
    assert not newcomers.wait((3,))
