"""For every test of the repository, from whichever folder it is run: what is slow, and what random examples are drawn."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("fixed", deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, print_blob=True)
# The same examples in every run, on every machine: a failure comes from the change at hand and stays until it is mended.
# `--hypothesis-profile=explore` draws others each time, as the nightly session does.
settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="run the long versions, too")
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected files of the golden tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--run-slow"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="long; --run-slow runs it"))
