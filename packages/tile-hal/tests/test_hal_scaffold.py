"""A repository for a new backend: what is written, what is refused, and that it conforms from the start."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tile_hal.interfaces import HAL_API
from tile_hal.scaffold import KINDS, new_backend, rendered
from tile_hal.scaffold.__main__ import main
from tile_ir.diagnostics import TileDeviceError
from tile_ir.target import Target

EVERY = pytest.mark.parametrize("kind", list(KINDS))


@EVERY
def test_a_repository_is_complete(kind: str, tmp_path: Path) -> None:
    path = new_backend("my_chip", kind, tmp_path, "MIT")
    assert path == tmp_path / "tile-my-chip" and [p.name for p in tmp_path.iterdir()] == ["tile-my-chip"]
    project = tomllib.loads((path / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == "tile-my-chip" and project["license"] == "MIT"
    assert project["entry-points"]["tile_hal"] == {"my_chip": "tile_my_chip.plugin"}
    plugin = (path / "src/tile_my_chip/plugin.py").read_text("utf-8")
    assert "class MyChipDriver(Driver):" in plugin and f"api = {HAL_API}" in plugin
    assert Target.from_json((path / "src/tile_my_chip/target.json").read_text("utf-8")).name == "my_chip"
    assert "--backend my_chip" in (path / ".github/workflows/conformance.yml").read_text("utf-8")
    assert "badge" in (path / "README.md").read_text("utf-8") and (path / ".gitignore").exists()


@EVERY
def test_no_word_of_a_template_is_left(kind: str) -> None:
    for path, text in rendered("my_chip", kind).items():
        assert not re.search(r"@\w+@|MODULE", path + text), path
        if path.endswith(".py"):
            ast.parse(text)


def test_the_licence_is_the_users_choice() -> None:
    assert "license" not in tomllib.loads(rendered("my_chip")["pyproject.toml"])["project"]


def test_a_c_device_is_short() -> None:
    lines = {p: len(t.splitlines()) for p, t in rendered("my_chip", "c").items() if p.startswith("src/")}
    assert sum(lines.values()) <= 150


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "cannot be the name"),
        ("My_chip", "cannot be the name"),
        ("my-chip", "cannot be the name"),
        ("1chip", "cannot be the name"),
        ("my__chip", "cannot be the name"),
        ("chip_", "cannot be the name"),
        ("chíp", "cannot be the name"),
        ("class", "cannot be the name"),
        ("../chip", "cannot be the name"),
        ("chip\n", "cannot be the name"),
        ("x" * 41, "cannot be the name"),
        ("interp", "is taken"),
        ("ir", "is taken"),
        ("nn", "is taken"),
    ],
)
def test_bad_names_are_refused(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TileDeviceError, match=message):
        new_backend(name, into=tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_never_touched(tmp_path: Path) -> None:
    (tmp_path / "tile-chip").write_text("mine")
    (tmp_path / "tile-chap").mkdir()
    (tmp_path / "tile-chop").symlink_to(tmp_path / "nowhere")
    for name in ("chip", "chap", "chop"):
        with pytest.raises(TileDeviceError, match="is there already"):
            new_backend(name, into=tmp_path)
    assert (tmp_path / "tile-chip").read_text() == "mine" and not list((tmp_path / "tile-chap").iterdir())
    assert len(list(tmp_path.iterdir())) == 3


def test_other_mistakes_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(TileDeviceError, match="is no folder"):
        new_backend("chip", into=tmp_path / "missing")
    with pytest.raises(TileDeviceError, match="the kinds are c, stripe"):
        new_backend("chip", "verilog", tmp_path)
    with pytest.raises(TileDeviceError, match="no SPDX expression"):
        new_backend("chip", "c", tmp_path, 'MIT"\nname = "evil')


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs a user who may not write everywhere")
def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(TileDeviceError, match="cannot be written"):
        new_backend("chip", into=tmp_path)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chip", "--into", str(tmp_path)]) == 0
    assert "pytest" in capsys.readouterr().out
    assert main(["chip", "--into", str(tmp_path)]) == 1
    assert "is there already" in capsys.readouterr().err


def conformance(folder: Path, level: int) -> str:
    """What its own tests print."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-p", "no:xdist"]
    env = os.environ | {"CONFORMANCE_LEVEL": str(level)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


@EVERY
@pytest.mark.parametrize("level", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_its_tests_are_green_at_once(kind: str, level: int, tmp_path: Path) -> None:
    """Not installed; where there is no C compiler, the C device is skipped by its own test."""
    printed = conformance(new_backend(f"fresh_{kind}", kind, tmp_path), level)
    assert "1 passed" in printed or "there is no device here" in printed


def test_a_missing_compiler_is_a_skip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert "1 skipped" in conformance(new_backend("fresh", "c", tmp_path), 0)


def test_reports_say_who_made_the_device(tmp_path: Path) -> None:
    path = new_backend("fresh", "stripe", tmp_path)
    command = [
        sys.executable,
        "-m",
        "tile_hal.conformance",
        "--backend=fresh",
        "--plugin=tile_fresh.plugin",
        "--level=0",
    ]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(path / "src"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([*command, "--json=report.json"], cwd=tmp_path, env=env, capture_output=True, check=False)
    assert done.returncode == 0
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert report["devices"][0]["name"] == "Fresh (Stripe interpreter)"
