"""For every test of the repository, from whichever folder it is run: what is slow, and what random examples are drawn."""

from __future__ import annotations

import gc
import signal
from collections import Counter

import pytest
from hypothesis import settings

settings.register_profile("fixed", deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, print_blob=True)
# The same examples in every run, on every machine: a failure comes from the change at hand and stays until it is mended.
# `--hypothesis-profile=explore` draws others each time, as the nightly session does.
settings.load_profile("fixed")
SHARE = 4
"""By default a property is tried on one in so many of the examples that it asks for; `--run-slow` tries it on all."""
FEW = 4
"""Examples that are not too many for every run."""
SETTINGS = "_hypothesis_internal_use_settings"
"""Where Hypothesis keeps what a test's own settings say, which come before those of a profile."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="run the long versions, too")
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected files of the golden tests")


def pytest_configure() -> None:
    """A run that a shell started in the background ignores interrupts, and so would the processes of its tests.

    Collecting makes little garbage and much that stays, which the collector would look through again and again.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.set_threshold(100_000, 20, 100)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--run-slow"):
        return
    for test in dict.fromkeys(getattr(item, "function", None) for item in items):
        draw_fewer(test)
    cases: Counter[object] = Counter()
    left: list[pytest.Item] = []
    kept: list[pytest.Item] = []
    for item in items:
        (left if is_slow(item, cases) else kept).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


def draw_fewer(test: object) -> None:
    """A property is tried on a share of its examples."""
    own = getattr(test, SETTINGS, None)
    if isinstance(own, settings) and own.max_examples > FEW:
        setattr(test, SETTINGS, settings(own, max_examples=max(FEW, own.max_examples // SHARE)))


def pytest_collection_finish() -> None:
    """What is there before the first test stays, so the collector need not look through it."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    """What is garbage goes in one round: pytest makes five at the end, and Python another one."""
    gc.collect()
    gc.freeze()


def is_slow(item: pytest.Item, cases: Counter[object]) -> bool:
    """Whether `--run-slow` alone runs it; `cases` counts those of each test with the mark `diagonal`."""
    if mark := item.get_closest_marker("diagonal"):
        test = item.nodeid.partition("[")[0]
        number, cases[test] = cases[test], cases[test] + 1
        return diagonal(item, number) % mark.args[0] != 0
    return item.get_closest_marker("slow") is not None


def diagonal(item: pytest.Item, number: int) -> int:
    """The sum of the places of a test's case `number` in its parameters' lists, the last of which varies slowest, and of
    the number of its fixtures' parameters.

    Of the grid that several ``parametrize`` span, those whose sum is a multiple of n are a Latin square: each value
    of one parameter still meets some of each other's.
    """
    total = 0
    for mark in reversed([*item.iter_markers("parametrize")]):
        number, place = divmod(number, len(mark.args[1]))
        total += place
    return total + number
