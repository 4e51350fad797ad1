"""PyTorch's own samples of its operators beside eager, forward and backward; `op_samples.json` says which pass.

By default a few samples of some operators, drawn by a seed; `--run-slow` runs all that the record names, and it is held to
the record both ways.
"""

from __future__ import annotations

import random

import op_samples
import pytest
import torch
import torch_support

SOME = 12
"""Operators of which one sample each is run by default."""


def _passing() -> list[str]:
    return sorted(key for key, record in op_samples.recorded().items() if record.passing and not record.failing)


def _parts(key: str) -> tuple[str, torch.dtype]:
    name, _, dtype = key.rpartition(" ")
    return name, getattr(torch, dtype)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", random.Random(0).sample(_passing(), SOME))
def test_a_sample_agrees(key: str) -> None:
    sample = next(op_samples.samples(*_parts(key)))
    assert op_samples.outcome(sample).why is None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", sorted(op_samples.recorded()))
def test_every_sample_does_as_recorded(key: str) -> None:
    known, found = op_samples.recorded()[key], op_samples.record(*_parts(key))
    assert found.failing == known.failing, "python op_samples.py NAME --dtype DTYPE --write renews the record"
    assert found.passing == known.passing


def test_the_page_is_up_to_date() -> None:
    assert torch_support.PAGE.read_text(encoding="utf-8") == torch_support.text(), "run tests/torch_support.py"


def test_every_core_operator_is_there_or_refused() -> None:
    assert not [str(op) for op in torch_support.core() if torch_support.how(op) == "not supported"]
