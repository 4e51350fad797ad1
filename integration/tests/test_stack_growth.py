"""Compiling takes time in proportion to the program: four times the statements cost at most five times the work.

Work is counted in calls of Python functions, which are the same on a busy machine and on another one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from cProfile import Profile
from pathlib import Path

import pytest
import tile_opt
import tile_runtime as tile
from hypothesis import HealthCheck, given, settings
from stack import bind
from tile_hal.conformance import strategies
from tile_hal.conformance.strategies import Case
from tile_ir.diagnostics import TileError
from tile_ir.dtype import DType

sys.path.append(str(Path(__file__).parents[1] / "bench"))
from large import chain, differentiated, inputs, outputs, planned, punctuation, read, terms, undefined

GROWTH = 5.0
"""At most, for four times the size."""


CASES: dict[str, tuple[Callable[[int], object], int]] = {
    "a chain of statements": (lambda n: planned(chain(n)), 100),
    "outputs": (lambda n: planned(outputs(n)), 40),
    "inputs": (lambda n: planned(inputs(n)), 100),
    "terms of an expression": (lambda n: read(terms(n)), 1_000),
    "undefined names": (lambda n: read(undefined(n)), 500),
    "punctuation": (lambda n: read(punctuation(n)), 4_000),
    "a gradient": (lambda n: differentiated(chain(n)), 40),
}


def calls(work: Callable[[int], object], size: int) -> int:
    """Functions that are called, Python's own among them."""
    profile = Profile()
    profile.runcall(work, size)
    return sum(entry.callcount for entry in profile.getstats())


def growth(work: Callable[[int], object], size: int) -> float:
    work(4)  # imports
    return calls(work, 4 * size) / calls(work, size)


@pytest.mark.parametrize("name", CASES)
def test_four_times_the_size_is_at_most_five_times_the_work(name: str) -> None:
    assert growth(*CASES[name]) <= GROWTH


def test_what_every_statement_reads_is_not_gone_through_for_each() -> None:
    """Kernels are asked what they write in proportion to the statements, all of which read A."""

    def asked(size: int) -> int:
        profile = Profile()
        profile.runcall(planned, chain(size))
        return sum(e.callcount for e in profile.getstats() if getattr(e.code, "co_name", "") == "writes")

    planned(chain(4))
    assert asked(480) <= GROWTH * asked(120)


@settings(max_examples=45, suppress_health_check=[HealthCheck.too_slow])
@given(strategies.contractions(tuple(DType)))
def test_no_small_program_takes_long(case: Case) -> None:
    """Whatever meets in it: the hardest of some thousands took a tenth of a second, and a quarter of what is allowed here."""
    program = bind(case.source, case.inputs)
    profile = Profile()
    profile.runcall(tile_opt.compile, program, tile.device("llvm").target)
    assert sum(entry.callcount for entry in profile.getstats()) < 500_000


def test_many_outputs_that_differ_in_a_number_are_one_kernel() -> None:
    text = outputs(80)
    values = [tile.placeholder("float32", (8,), "A")]
    assert len(tile.Function(text).lower(*values, device="llvm").kernels.kernels) == 1


def test_a_hundred_mistakes_are_shown_and_the_rest_are_counted() -> None:
    with pytest.raises(TileError) as caught:
        tile.Function(undefined(350)).lower(tile.placeholder("float32", (4,), "A"))
    found = caught.value.diagnostics
    assert len(found) == 101 and {d.code for d in found[:-1]} == {"TILE-E101"}
    assert (found[-1].code, found[-1].message) == ("TILE-E051", "250 more errors are not shown")
