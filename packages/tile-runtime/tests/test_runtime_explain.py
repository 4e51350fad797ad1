"""`tile explain` and the reports of Lowered."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import tile_runtime as tile
from tile_runtime.cli.app import app
from typer.testing import CliRunner

MATMUL = "function (A[M, L], B[L, N]) -> (C) {\n    C[i, j : M, N] = +(A[i, k] * B[k, j]);\n}\n"
SHAPES = ["--shape", "A=float32[64,32]", "-s", "B=[32,64]", "--device", "interp"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "matmul.tile"
    path.write_text(MATMUL)
    return path


def _explain(file: Path, *arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["explain", str(file), *SHAPES, *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_html_goes_to_the_file(file: Path, tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    assert _explain(file, "--html", str(page)) == (0, "", "")
    root = ElementTree.fromstring(page.read_text(encoding="utf-8"))
    assert root.findtext("head/title") == "matmul on interp"
    assert [e.get("data-k") for e in root.iter("section")] == ["0"]


def test_html_into_a_missing_folder_is_an_error_with_a_sentence(file: Path, tmp_path: Path) -> None:
    code, _, errors = _explain(file, "--html", str(tmp_path / "nowhere" / "out.html"))
    assert code != 0 and "cannot write" in errors and "Traceback" not in errors


def test_candidates_and_json(file: Path) -> None:
    assert "Candidates (" not in _explain(file)[1]
    assert "Candidates (" in _explain(file, "--candidates")[1]
    document = json.loads(_explain(file, "--json", "--candidates")[1])
    (kernel,) = document["kernels"]
    assert document["device"] == "interp:0" and kernel["operations"] == 2 * 64 * 32 * 64
    assert [e["relation"] for e in document["errors"]] == ["terms"]
    assert kernel["plan"]["candidates"] and document["memory"]["peak"] == 4 * (64 * 32 * 2 + 64 * 64)


def test_lowered_reports() -> None:
    function = tile.Function(MATMUL)
    low = function.lower(
        tile.placeholder("float32", (8, 8), name="A"), tile.placeholder("float32", (8, 8), name="B"), device="interp"
    )
    assert low.report().kernels[0].name in low.explain()
    assert low.report().kernels[0].name in low.explain_html()
    ((name, bound),) = low.error_bounds.items()
    assert f"Rounding errors:\n  {name}  {bound.text}" in low.explain()
    assert 8 * 2.0**-24 <= (bound.factor or 0.0) < 9 * 2.0**-24
