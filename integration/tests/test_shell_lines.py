"""Shell lines of the README and of docs/ run as printed: in this process, in a folder with the files that pages speak of."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from stack import ROOT
from tile_runtime.cli.app import app
from typer.testing import CliRunner

BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
ELSEWHERE = {
    r"git clone|python3 -m venv|cd tile\b|\. env/": "the job `matrix` of the workflow installs so",
    r"python3 dev\.py": "a session of its own",
    r"python integration/examples/first\.py": "test_the_first_answer",
    r"pip install|tile new-backend|python -m tile_hal\.scaffold|cd tile-": "test_plugin_page, conformance(sample)",
    r"python -m tile_hal\.conformance|tile conformance": "conformance(sample)",
    r"tile lsp|tile-lsp": "a server that waits: packages/tile-lsp/tests",
    r"(\w+=\S+ )*python train|tile devices .*sample:0": "packages/tile-jax/tests, packages/tile-torch/tests",
    r"tile plan .*--edit": "packages/tile-runtime/tests: an editor waits",
}
"""Lines that other tests and sessions run, and which."""
FILES = {
    "matmul.tile": "function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }",
    "layer.tile": "function (X[N, K], W[K, M], B[M]) -> (Y) { Z[i, j : N, M] = +(X[i, k] * W[k, j]); Y = relu(Z + B); }",
    "blur.tile": "function (D[N, M], Weight) -> (Out) { S[i, j : N, M] = +(D[i + a - 1, j + b - 1]), a < 3, b < 3; Out = Weight * S; }",
}


def lines() -> Iterator[tuple[str, int, str]]:
    """Page, number and text of each line that is run here."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        blocks = BLOCK.findall(page.read_text("utf-8"))
        for number, line in enumerate(part for block in blocks for part in block.splitlines()):
            if line.strip() and not any(re.match(pattern, line) for pattern in ELSEWHERE):
                yield page.name, number, line


PAGES = sorted({page for page, _, _ in lines()})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "integration" / "examples", tmp_path / "integration" / "examples")
    for place in (tmp_path, tmp_path / "integration" / "examples"):
        for name, text in FILES.items():
            if not (place / name).exists():
                (place / name).write_text(text)
        for name in ("a.npy", "b.npy"):
            np.save(place / name, np.ones((256, 256), np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_the_lines_of_a_page(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _, _, line in (found for found in lines() if found[0] == page):
        command, *words = shlex.split(line, comments=True)
        target = words[words.index(">") + 1] if ">" in words else None
        words = words[: words.index(">")] if ">" in words else words
        match command:
            case "cd":
                monkeypatch.chdir(words[0])
            case "python":
                assert words[0] == "-c"
                exec(compile(words[1], page, "exec"), {})
            case "tile":
                done = CliRunner().invoke(app, words)
                assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception!r}"
                if target is not None:
                    Path(target).write_text(done.stdout)
            case _:
                pytest.fail(f"nothing runs {line!r}")


def test_the_first_answer(capsys: pytest.CaptureFixture[str]) -> None:
    import first

    first.main()
    assert "right, in 1 kernel" in capsys.readouterr().out
