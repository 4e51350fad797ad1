"""The page that teaches how to write a plugin: its code blocks are the sample plugin, which `tile new-backend` writes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest
from tile_hal.scaffold import rendered

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "plugin.md"
SAMPLE = ROOT / "integration" / "plugins" / "tile-sample"
BLOCK = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
QUICK = "level0 or level1 or test_for or test_if or test_private_arrays or test_deep_expressions or test_groups or matmul_of"
"""Levels 0 and 1, and something of levels 3 and 4; the conformance session runs all."""


def files(page: Path = PAGE) -> dict[str, str]:
    """A page's files by path; a file may be told in several blocks."""
    parts: defaultdict[str, list[str]] = defaultdict(list)
    for path, text in BLOCK.findall(page.read_text("utf-8")):
        parts[path].append(text)
    return {path: "\n".join(texts) for path, texts in parts.items()}


def code(text: str) -> list[str]:
    """Lines that are not blank: where a file is cut into blocks, blank lines get lost."""
    return [line for line in text.splitlines() if line.strip()]


def test_the_sample_is_what_new_backend_writes(pytestconfig: pytest.Config) -> None:
    expected = rendered("sample", license="Apache-2.0")
    if pytestconfig.getoption("--update-golden"):
        for path, text in expected.items():
            (SAMPLE / path).write_text(text, "utf-8")
    listed = subprocess.run(["git", "ls-files"], cwd=SAMPLE, capture_output=True, text=True, check=True).stdout.split()
    assert sorted(listed) == sorted(expected)
    assert [path for path, text in expected.items() if (SAMPLE / path).read_text("utf-8") != text] == []


@pytest.mark.parametrize("path", sorted(rendered("sample")))
def test_the_page_counts_the_lines_of_the_files(path: str) -> None:
    found = re.search(
        rf"^\| `{re.escape(path.removeprefix('src/tile_sample/'))}` \| (\d+) \|", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert found is None or int(found[1]) == len((SAMPLE / path).read_text("utf-8").splitlines())


def test_the_page_tells_every_file_of_the_sample() -> None:
    sources = [p for p in (SAMPLE / "src").rglob("*") if p.suffix in (".py", ".json")]
    expected = {p.relative_to(SAMPLE).as_posix() for p in [*sources, SAMPLE / "pyproject.toml"]}
    assert set(files()) == expected


@pytest.mark.parametrize("path", sorted(files()))
def test_a_file_is_as_the_page_tells_it(path: str) -> None:
    assert code(files()[path]) == code((SAMPLE / path).read_text("utf-8"))


def test_the_stripe_device_of_its_page_is_what_new_backend_writes() -> None:
    told, made = files(ROOT / "docs" / "stripe-devices.md"), rendered("loops", "stripe")
    assert len(told) == 2 and [path for path, text in told.items() if code(text) != code(made[path])] == []


def write(folder: Path) -> tuple[Path, str]:
    """Lay the page's distribution out in `folder`; its source folder and the module that its entry point names."""
    for path, text in files().items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    return folder / "src", project["entry-points"]["tile_hal"]["sample"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which(os.environ.get("CC") or "cc") is None, reason="the sample needs a C compiler")
def test_the_plugin_of_the_page_conforms(tmp_path: Path) -> None:
    """Not installed, in a process of its own, from the page's text alone.

    The tests above compare this text with the sample's files, which the conformance session runs each time.
    """
    source, module = write(tmp_path)
    report = tmp_path / "report.json"
    # Where tile-sample is installed, its entry point is there already, and PYTHONPATH goes before the installed module.
    command = [sys.executable, "-m", "tile_hal.conformance", "--backend", "sample", "--plugin", module]
    command += ["--examples", "2", "--json", str(report), "--", "-q", "-p", "no:xdist", "-k", QUICK]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    document = json.loads(report.read_text("utf-8"))
    passed = {
        level: sum(c["level"] == level and c["outcome"] == "passed" for c in document["cases"]) for level in range(6)
    }
    assert document["passed"] and document["devices"][0]["name"].startswith("C by ")
    assert passed[0] >= 7 and passed[1] >= 15 and passed[3] >= 20 and passed[4] >= 1, passed


@pytest.mark.parametrize(("script", "page"), [("support.py", "support.md"), ("operations.py", "operations.md")])
def test_a_page_is_what_its_script_writes(script: str, page: str) -> None:
    """Neither is edited by hand: `nox -s support` writes the one, `python integration/operations.py` the other."""
    command = [sys.executable, str(ROOT / "integration" / script), "--print"]
    made = subprocess.run(command, capture_output=True, check=True)
    assert made.stdout.decode("utf-8") == (ROOT / "docs" / page).read_text("utf-8")
