"""`tile onnx`: found by the tile command, and what its commands print."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import onnx
import pytest
import typer.testing
from onnx_models import model
from tile_onnx.cli import app

RUN = typer.testing.CliRunner()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    onnx.save(model("(float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }"), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3))
    return tmp_path / "m.onnx"


def test_the_tile_command_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from tile_runtime.cli import brought
    from tile_runtime.cli.app import app as tile

    point = EntryPoint("onnx", "tile_onnx.cli:app", brought.GROUP)
    monkeypatch.setattr(brought, "entry_points", lambda group: [point])  # pyright: ignore[reportUnknownLambdaType]
    assert "explain" in RUN.invoke(tile, ["onnx", "--help"]).output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check"], "Input 'x': float32[N, 3]"),
        (["check", "--json"], '"name": "x"'),
        (["explain", "-s", "x=[2,3]", "-d", "llvm"], "1. A program of 1 kernel on llvm:0: from x to y"),
        (["bench", "-s", "x=[2,3]", "-d", "llvm", "--seconds", "0", "--kernels", "1"], "median: "),
        (["run", "-i", "x={folder}/x.npy", "-o", "y={folder}/y.npy", "-d", "llvm"], "float32"),
    ],
)
def test_commands(file: Path, arguments: list[str], words: str) -> None:
    command, *options = (a.format(folder=file.parent) for a in arguments)
    done = RUN.invoke(app, [command, str(file), *options])
    assert done.exit_code == 0, done.output
    assert words in done.output


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        (["-s", "x=[2,4]"], "input 'x' is float32[N, 3]", 1),
        (["-s", "z=[2,3]"], "the model has no input 'z'", 1),
        (["-s", "x"], "is not like x=[1,3,224,224]", 2),
        ([], "which shape?", 1),
    ],
)
def test_mistakes(file: Path, options: list[str], words: str, code: int) -> None:
    done = RUN.invoke(app, ["explain", str(file), *options])
    assert (done.exit_code, words in done.output + (done.stderr if done.stderr_bytes else "")) == (code, True)


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("text")
    done = RUN.invoke(app, ["check", str(tmp_path / "m.onnx")])
    assert done.exit_code == 1
    assert "no ONNX model" in done.output + done.stderr
