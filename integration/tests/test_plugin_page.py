"""The page that teaches how to write a plugin: its code blocks are the sample plugin, and they conform."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "plugin.md"
SAMPLE = ROOT / "integration" / "plugins" / "tile-sample"
BLOCK = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
QUICK = (
    "level0 or level1 or test_for or test_if or test_private_arrays or test_deep_expressions or test_groups or level4"
)
"""Levels 0, 1 and 4 (with few random programs), and something of level 3."""


def files() -> dict[str, str]:
    """The page's files by path; a file may be told in several blocks."""
    parts: defaultdict[str, list[str]] = defaultdict(list)
    for path, text in BLOCK.findall(PAGE.read_text("utf-8")):
        parts[path].append(text)
    return {path: "\n".join(texts) for path, texts in parts.items()}


def code(text: str) -> list[str]:
    """Lines that are not blank: where a file is cut into blocks, blank lines get lost."""
    return [line for line in text.splitlines() if line.strip()]


def test_the_page_tells_every_file_of_the_sample() -> None:
    sources = [p for p in (SAMPLE / "src").rglob("*") if p.suffix in (".py", ".json")]
    expected = {p.relative_to(SAMPLE).as_posix() for p in [*sources, SAMPLE / "pyproject.toml"]}
    assert set(files()) == expected


@pytest.mark.parametrize("path", sorted(files()))
def test_a_file_is_as_the_page_tells_it(path: str) -> None:
    assert code(files()[path]) == code((SAMPLE / path).read_text("utf-8"))


def write(folder: Path) -> tuple[Path, str]:
    """Lay the page's distribution out in `folder`; its source folder and the module that its entry point names."""
    for path, text in files().items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    return folder / "src", project["entry-points"]["tile_hal"]["sample"]


def test_the_plugin_of_the_page_conforms(tmp_path: Path) -> None:
    """Not installed, in a process of its own, from the page's text alone."""
    source, module = write(tmp_path)
    report = tmp_path / "report.json"
    # Where tile-sample is installed, its entry point is there already, and PYTHONPATH goes before the installed module.
    plugin = [] if find_spec("tile_sample") else ["--plugin", module]
    command = [sys.executable, "-m", "tile_hal.conformance", "--backend", "sample", *plugin]
    command += ["--examples", "2", "--json", str(report), "--", "-q", "-p", "no:xdist", "-k", QUICK]
    env = os.environ | {"PYTHONPATH": str(source)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    document = json.loads(report.read_text("utf-8"))
    passed = {
        level: sum(c["level"] == level and c["outcome"] == "passed" for c in document["cases"]) for level in range(6)
    }
    assert document["passed"] and document["devices"][0]["name"] == "Python functions"
    assert passed[0] >= 7 and passed[1] >= 15 and passed[3] >= 20 and passed[4] >= 10, passed


def test_the_support_page_is_that_of_the_reports() -> None:
    """`nox -s support` writes both; neither is edited by hand."""
    made = subprocess.run(
        [sys.executable, str(ROOT / "integration" / "support.py"), "--print"], capture_output=True, check=True
    )
    assert made.stdout.decode("utf-8") == (ROOT / "docs" / "support.md").read_text("utf-8")
