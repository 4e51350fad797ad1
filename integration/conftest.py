"""Devices as a parameter, and the slow tests behind `--run-slow`."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import pytest
import tile_hal

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "tests"), str(HERE / "examples")]


def pytest_addoption(parser: pytest.Parser) -> None:
    with suppress(ValueError):  # another folder of the same run brought it
        parser.addoption("--run-slow", action="store_true", help="run the long versions, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--run-slow"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="long; --run-slow runs it"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`device`: every installed device that executes."""
    if "device" in metafunc.fixturenames:
        devices = [d for d in tile_hal.devices() if d.capabilities.executes]
        metafunc.parametrize("device", devices, ids=[d.id for d in devices], scope="session")
