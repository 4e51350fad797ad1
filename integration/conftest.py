"""Devices as a parameter."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import tile_hal

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "tests"), str(HERE / "examples")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`device`: every installed device that executes."""
    if "device" in metafunc.fixturenames:
        devices = [d for d in tile_hal.devices() if d.capabilities.executes]
        metafunc.parametrize("device", devices, ids=[d.id for d in devices], scope="session")
