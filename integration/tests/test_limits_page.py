"""The page of limits says what the code does, and all of it."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
import tile_hal.disk_cache
import tile_hal.host_memory
import tile_hal.submission
from tile_ir.diagnostics import TileSettingError
from tile_ir.settings import Settings
from tile_lang.limits import DEFAULT_LIMITS, Limits
from tile_opt.lowering import endless

PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text("utf-8")
VARIABLES = {
    "analysis_seconds": "TILE_ANALYSIS_SECONDS",
    "compile_seconds": "TILE_COMPILE_SECONDS",
    "long_kernels": "TILE_LONG_KERNELS",
    "memory": "TILE_MEMORY",
    "num_threads": "TILE_NUM_THREADS",
    "isolate_seconds": "TILE_ISOLATE_SECONDS",
    "plugin_seconds": "TILE_PLUGIN_SECONDS",
}
"""Settings that bound something, by field."""
OTHERS = {"device", "dump_ir", "verify", "prove", "cache_dir", "cache", "isolate", "compile_apart", "plugins"}
"""Settings that bound nothing."""


def test_every_limit_of_the_language_is_on_the_page() -> None:
    rows = dict(re.findall(r"^\| `(max_\w+)` \| ([\d,]+) \|", PAGE, re.MULTILINE))
    assert rows == {f.name: f"{getattr(DEFAULT_LIMITS, f.name):,}" for f in fields(Limits)}


def test_every_setting_that_bounds_something_is_on_the_page() -> None:
    assert {f.name for f in fields(Settings)} == VARIABLES.keys() | OTHERS
    for name, variable in VARIABLES.items():
        (row,) = [line for line in PAGE.splitlines() if line.startswith("|") and f"`{variable}" in line][:1]
        default = getattr(Settings(), name)
        assert not isinstance(default, float) or f"| {default:g} s |" in row


def test_numbers_in_code_are_those_of_the_page() -> None:
    assert f"{endless.MOST_OPERATIONS:.0e}".replace("+", "") in PAGE
    assert f"{endless.MOST_PER_BYTE:.0e}".replace("+0", "") in PAGE and endless.MANY == 1e11
    kept = {tile_hal.disk_cache.MAX_BYTES, tile_hal.host_memory.MOST_KEPT, tile_hal.workspaces.MAX_WORKSPACE_BYTES}
    assert kept == {1 << 30} and tile_hal.workspaces.MAX_WORKSPACES == 64 and tile_hal.host_memory.KEPT_SHARE == 1 / 32


@pytest.mark.parametrize(("given", "bytes_"), [("", None), ("0", 0), ("4K", 4096), ("3M", 3 << 20), ("8G", 8 << 30)])
def test_memory_is_given_in_bytes(given: str, bytes_: int | None) -> None:
    assert Settings.from_environment({"TILE_MEMORY": given}).memory == bytes_


@pytest.mark.parametrize("given", ["all", "-1", "1.5G", "8GB", "G", "1" * 20])
def test_memory_that_is_no_number_is_refused(given: str) -> None:
    with pytest.raises(TileSettingError, match="TILE_MEMORY must be a number of bytes"):
        Settings.from_environment({"TILE_MEMORY": given})
