"""The device does what any Tile device has to do. CONFORMANCE_LEVEL=1 stops after the first levels."""

from __future__ import annotations

import os

import pytest
from tile_hal.conformance import run

LEVEL = int(os.environ.get("CONFORMANCE_LEVEL", "5"))


def test_every_device_conforms() -> None:
    report = run("sample", plugins=["tile_sample.plugin"], strict=False, level=LEVEL)
    if not report.devices:
        pytest.skip("there is no device here; `tile doctor` says what is missing")
    assert report.passed
    assert {report.highest_level(device.id) for device in report.devices} == {LEVEL}
