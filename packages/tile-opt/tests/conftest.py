"""Lets the tests of this folder import the helper modules beside them; the slow ones wait for `--run-slow`."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    with suppress(ValueError):  # another folder of the same run brought it
        parser.addoption("--run-slow", action="store_true", help="run the long versions, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--run-slow", default=False):
        return
    for item in items:
        if "slow" in item.keywords and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="long; --run-slow runs it"))
