"""Plugins as they were written for earlier versions of the HAL API: they work on unchanged, and conform to what the suite asks today.

`former_plugins/hal_X_Y` holds the sample plugin's sources of that time, which nobody edits. What breaks one of them breaks every
vendor's plugin of its age.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tile_hal

FORMER = sorted((Path(__file__).parent / "former_plugins").iterdir())
"""From the first version to the last one before today's, by names of one digit."""
SAMPLE = "level0 or level1 or test_for or test_if or test_private_arrays or test_failed or matmul_of"
"""Something of every level, for little of the C compiler's time."""


def conformance(folder: Path, report: Path, *arguments: str) -> dict[str, Any]:
    """The report of the suite on the plugin in `folder`, with no other plugin but those of tile-hal."""
    command = [sys.executable, "-m", "tile_hal.conformance", "--backend", "sample", "--plugin", "tile_sample.plugin"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path]), "TILE_PLUGINS": "tile-hal"}
    done = subprocess.run(
        [*command, "--json", str(report), *arguments], cwd=report.parent, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return json.loads(report.read_text("utf-8"))


@pytest.mark.parametrize(
    "folder",
    [FORMER[0], *(pytest.param(folder, marks=pytest.mark.slow) for folder in FORMER[1:])],
    ids=lambda folder: folder.name,
)
def test_a_former_plugin_works(folder: Path, tmp_path: Path) -> None:
    found = conformance(folder, tmp_path / "r.json", "--examples", "2", "--", "-q", "-p", "no:xdist", "-k", SAMPLE)
    assert {c["level"] for c in found["cases"] if c["outcome"] == "passed"} >= {0, 1, 3, 4}
    assert "direct" not in found["devices"][0]["features"] and "wrap" in found["devices"][0]["features"]


@pytest.mark.slow
@pytest.mark.parametrize("folder", FORMER, ids=lambda folder: folder.name)
def test_a_former_plugin_reaches_the_last_level(folder: Path, tmp_path: Path) -> None:
    found = conformance(folder, tmp_path / "r.json", "--", "-q", "-p", "no:xdist")
    assert found["devices"][0]["level"] == 5


def test_last_versions_plugin_is_among_them() -> None:
    """Whoever raises the minor version keeps the sample plugin as it was before."""
    major, minor = tile_hal.HAL_API
    assert FORMER[-1].name == f"hal_{major}_{minor - 1}"
    assert f"api = ({major}, {minor - 1})" in (FORMER[-1] / "tile_sample/plugin.py").read_text("utf-8")


def test_optional_features_are_those_of_this_minor_version() -> None:
    """A minor version adds names, and every name says since when."""
    since = {feature.since for feature in tile_hal.FEATURES.values()}
    assert max(since) == tile_hal.HAL_API
    assert all(feature.member and feature.otherwise for feature in tile_hal.FEATURES.values())


def test_the_page_lists_the_optional_features() -> None:
    text = (Path(__file__).parents[2] / "docs" / "plugin.md").read_text("utf-8")
    for name, feature in tile_hal.FEATURES.items():
        members = ", ".join(f"`{member}`" for member in feature.member.split(", "))
        row = f"| `{name}` | {'.'.join(map(str, feature.since))} | {members} | {feature.otherwise} |"
        assert row in text, row
