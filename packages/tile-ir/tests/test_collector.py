"""The garbage collector during compilations."""

from __future__ import annotations

import gc
import os

import pytest
from tile_ir.collector import MUCH, uncollected


def collections() -> int:
    """How often the collector has run, over any generation."""
    return sum(generation["collections"] for generation in gc.get_stats())


def test_collector_is_off_until_the_outermost_ends() -> None:
    assert gc.isenabled()
    with uncollected():
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collector_comes_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), uncollected():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_a_disabled_collector_stays_disabled() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_child_of_a_fork_collects() -> None:
    with uncollected():
        pid = os.fork()
        if pid == 0:
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert gc.isenabled()


def test_what_was_made_is_not_walked_at_once() -> None:
    gc.unfreeze()  # the run of all tests has frozen what it began with
    before = collections()
    with uncollected():
        made = [[k] for k in range(MUCH + 1_000)]
    assert collections() == before
    assert gc.get_count()[0] < MUCH < len(made)
    assert gc.get_freeze_count() == 0


def test_what_the_program_has_frozen_stays_frozen() -> None:
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        with uncollected():
            made = [[k] for k in range(MUCH + 1_000)]
        assert made and gc.get_freeze_count() == before
    finally:
        gc.unfreeze()
