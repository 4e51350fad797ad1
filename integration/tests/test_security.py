"""The claims of SECURITY.md and of docs/trust.md: each has a test; those on security that are about the whole stack are here."""

from __future__ import annotations

import ast
import io
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tile_hal
import tile_runtime as tile
from tile_ir.diagnostics import TileLimitError
from tile_runtime.cli.app import app
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
PAGES = ("SECURITY.md", "docs/trust.md")
CLAIM = re.compile(r"`((?:packages|integration)/[\w./-]+\.py)(?:::(\w+))?` \|$", re.MULTILINE)
NAMED = sorted({claim for page in PAGES for claim in CLAIM.findall((ROOT / page).read_text("utf-8"))})
ONE = np.ones(3, np.float32)


@pytest.mark.parametrize("page", PAGES)
def test_every_row_ends_with_its_test(page: str) -> None:
    tables = re.findall(
        r"^\|[^\n]*\| test \|\n\|[-|]+\n((?:\|[^\n]*\n)+)", (ROOT / page).read_text("utf-8"), re.MULTILINE
    )
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) > 20
    assert [row for row in rows if not CLAIM.search(row)] == []


@pytest.mark.parametrize(("file", "test"), NAMED, ids=lambda part: part.rpartition("/")[2])
def test_every_claim_names_a_test_that_there_is(file: str, test: str) -> None:
    text = (ROOT / file).read_text("utf-8")
    assert re.search(rf"^def {test or 'test_'}", text, re.MULTILINE), f"{file} has no {test}"


# --- files ---

WORDS = re.compile(r"pickle|\b(?:dill|marshal|shelve|joblib|eval|exec)\b")
RUNS = re.compile(r"\b((?:pickle|cloudpickle|dill|marshal|shelve|joblib)\.\w+|eval|exec)$")
"""What makes objects, or runs text, that a file may hold."""
RUNNING = {
    ("tile_dask/kernels.py", "pickle.dumps"),
    ("tile_dask/kernels.py", "pickle.loads"),  # what dask's own pickles bring to a worker
    ("tile_ir/frozen.py", "exec"),  # methods of our own classes, written from their fields
}


def test_nothing_of_ours_unpickles_a_file_or_runs_its_text() -> None:
    found = {
        (f"{path.parent.name}/{path.name}", call.group(1))
        for path in ROOT.glob("packages/*/src/**/*.py")
        if WORDS.search(text := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and (call := RUNS.search(ast.unparse(node.func)))
    }
    assert found == RUNNING


# --- sources ---

WATCH = r"""
import os, sys

HARM = ("subprocess", "os.", "socket.", "shutil.", "pty.", "webbrowser.", "urllib.", "ftplib.", "ctypes.dlopen", "winreg.", "signal.pthread_kill")
HARMLESS = ("os.listdir", "os.scandir", "os.walk", "os.putenv", "os.unsetenv", "os.fwalk")
done = []

def watch(event, arguments):
    if event == "open":
        _, mode, flags = arguments
        writes = any(letter in (mode or "") for letter in "wax+") or (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes and watching:
            done.append((event, arguments))
    elif watching and event.startswith(HARM) and event not in HARMLESS:
        done.append((event, arguments))

watching = False
sys.addaudithook(watch)
"""

STRANGER = (
    WATCH
    + r"""
import numpy as np
import tile_runtime as tile
from tile_ir.diagnostics import TileError

SOURCES = [
    "function (A[N]) -> (B) { B = __import__('os').system('touch harm'); }",
    "function (A[N]) -> (B) { B = open('harm', 'w'); }",
    "function (A[N]) -> (open, exec, system, eval) { open = A; exec = A; system = open + exec; eval = system; }",
    "function (None[N], True[N]) -> (NULL, INFINITY) { NULL = None + True; INFINITY = NULL * None; }",
    "function (__class__[N]) -> (__del__) { __del__ = __class__ * 2; }",
    "function (A[N]) -> (B) { B = A + 1; // \\\n#include \"/etc/passwd\"\n }",
    "function (A[N]) -> (B) { B = A; } // */ $(touch harm) `touch harm` ; import os",
    "function (A[N]) -> (B) { B[i : N] = +(A[i - 1000000000]); }",
    "function (A[N]) -> (B) { B = gather(A, as_int(A * 1e9, 32)); }",
    "function (A[N]) -> (B) { B[i : 1000000000000] = =(A[0*i]); }",
    "function (A[N]) -> (B) { B = %n%s%x + A; }",
    "function (A[N]) -> (B) { B = " + "(" * 5000 + "A" + ")" * 5000 + "; }",
    "function (A[N]) -> (B) { B = A + " + "9" * 5000 + "; }",
    "function (../../harm[N]) -> (B) { B = A; }",
    "\0\x1b[2J\udcff",
]
def attempt(text):
    for device in ("llvm", "interp"):
        try:
            tile.Function(text)(np.ones(5, np.float32), device=device)
        except TileError as problem:
            str(problem)

attempt("function (A[N]) -> (B) { B[i : N] = +(A[i - j]), j < N; }")  # what is loaded once is loaded now
attempt("function (A[N]) -> (B) { B = gather(A, as_int(A, 32)) + C; }")
watching = True
for source in SOURCES:
    attempt(source)
watching = False
print(len(SOURCES), done)
"""
)


def test_a_strangers_source_touches_nothing(tmp_path: Path) -> None:
    """Python's own audit says what a process does: neither parsing, compiling nor running does anything outside of it."""
    assert _watched(STRANGER, tmp_path) == "15 []\n"
    assert list(tmp_path.iterdir()) == []


def _watched(script: str, folder: Path) -> str:
    """What a script prints, without a cache, in a folder of its own."""
    env = os.environ | {
        "TILE_CACHE": "off",
        "TILE_PLUGINS": "tile-hal,hal-llvm",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-B", "-c", script]  # modules that nobody imported before are not compiled into files
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


MODELS = (
    WATCH
    + r"""
import numpy as np
import tile_onnx
from onnx import TensorProto, helper
from tile_ir.diagnostics import TileError

TEXTS = ["$(touch harm)", "../../harm", "/etc/passwd", "a\n; import os", "*/ system(0); /*", "%n%s", "\\", "", "é\u2028x", "None", "x" * 9000]

def models(text):
    def made(*nodes, opsets=()):
        sizes = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in (text, text + "y")]
        graph = helper.make_graph(nodes, text, sizes[:1], sizes[1:], doc_string=text)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), *opsets], ir_version=10)
        model.metadata_props.add(key=text, value=text)
        return model
    yield made(helper.make_node("Relu", [text], [text + "y"], name=text, doc_string=text))
    yield made(helper.make_node(text or "Nothing", [text], [text + "y"]))
    yield made(helper.make_node("Relu", [text], [text + "y"], domain=text), opsets=[helper.make_opsetid(text, 1)])
    yield made(helper.make_node("Cast", [text], [text + "y"], to=1, saturate=1, **{"os.system": text}))
    yield made(helper.make_node("Einsum", [text], [text + "y"], equation=text))
    kept = made(helper.make_node("Add", [text, "w"], [text + "y"]))
    tensor = kept.graph.initializer.add(name="w", data_type=1, dims=[3], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=text)
    yield kept

def attempt(model):
    try:
        made = tile_onnx.load(model.SerializeToString())
        made(np.ones(3, np.float32))
    except TileError as problem:
        str(problem)

attempt(next(models("x")))  # what is loaded once is loaded now
for model in models("y"):
    attempt(model)
watching, count = True, 0
for text in TEXTS:
    for model in models(text):
        attempt(model)
        count += 1
watching = False
print(count, done)
"""
)


def test_a_strangers_model_touches_nothing(tmp_path: Path) -> None:
    """Whatever stands in its names, texts, operators and places of data."""
    assert _watched(MODELS, tmp_path) == "66 []\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "comment", ["\\", "\\ ", "??/", "*/ return; /*", "\r return;", "\u2028 return;", "\x0b\x0c\x85 return;", '"', "'''"]
)
def test_comments_and_names_stay_where_they_are(device: tile_hal.Device, comment: str) -> None:
    """What generated code quotes of a source, and what it calls things, changes nothing of what it does."""
    names = "None", "True", "INFINITY", "CLK_LOCAL_MEM_FENCE", "NULL", "EOF"
    header = f"function ({names[0]}[N], {names[1]}[N]) -> ({names[5]})"
    body = (
        f"{names[2]} = {names[0]} * {names[1]} // {comment}\n + 1; {names[3]} = {names[2]} + {names[0]}; // {comment}\n"
    )
    function = tile.Function(f"{header} {{ {body} {names[5]} = {names[3]} // {comment}\n ; }}")
    np.testing.assert_array_equal(function(ONE, 2 * ONE, device=device), 4 * ONE)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results and temporaries count; the error says what is large, and where it is made."""
    spread = tile.Function("function (A[N]) -> (B) {\n    B[i, j : 10000000, 100000] = =(A[0*i + 0*j]);\n}")
    with pytest.raises(TileLimitError, match=r"<tile>:2:5: error TILE-E518: the program needs 4000000000000 bytes"):
        spread(ONE)
    with pytest.raises(TileLimitError, match="TILE-E518"):
        spread(ONE, device="interp")
    squares = tile.Function("""function (A[M, N]) -> (B) {
        T[i, j : M, M] = +(A[i, k] * A[j, k]); U[i, j : M, M] = +(T[i, k] * T[k, j]); B[i : M] = +(U[i, j]);
    }""")
    rows = np.ones((300, 2), np.float32)
    monkeypatch.setenv("TILE_MEMORY", "300K")
    with pytest.raises(TileLimitError, match="TILE_MEMORY allows 307200"):
        tile.Evaluator("llvm")(squares, rows)
    monkeypatch.setenv("TILE_MEMORY", "3M")
    np.testing.assert_allclose(tile.Evaluator("llvm")(squares, rows), np.full(300, 300 * 300 * 4.0), rtol=1e-5)


# --- arrays ---


class Harmful:
    def __reduce__(self) -> tuple[object, ...]:
        return os._exit, (86,)


def test_array_files_are_not_unpickled(tmp_path: Path) -> None:
    source = tmp_path / "double.tile"
    source.write_text("function (A[N]) -> (B) { B = A + A; }", "utf-8")
    objects = io.BytesIO()
    np.save(objects, np.array([Harmful()], object), allow_pickle=True)
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }\n" % 10**15
    gigantic = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    for name, data in (("pickle", pickle.dumps(Harmful())), ("objects", objects.getvalue()), ("gigantic", gigantic)):
        file = tmp_path / f"{name}.npy"
        file.write_bytes(data)
        done = CliRunner().invoke(app, ["run", str(source), "--input", f"A={file}"])
        assert done.exit_code == 2 and isinstance(done.exception, SystemExit), (name, done.output)
