"""What commands are given: functions of Python, stated and random inputs, new projects; help, colours, wrong use."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from tile_runtime.cli import brought, progress
from tile_runtime.cli.app import app
from tile_runtime.cli.colours import painted
from tile_runtime.cli.starter import files
from typer.main import get_command
from typer.testing import CliRunner

resource = pytest.importorskip("resource", reason="processor time of other processes")

PYTHON = """
import numpy as np
import tile_runtime as tile
import tile_runtime.numpy as tnp

matmul = tile.Function("function (A[M, L], B[L, N]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[k, j]); }")
x = tile.placeholder("float32", (4, 3), name="x")
net = tile.compose([x], [matmul(x, tile.asarray(np.ones((3, 2), np.float32), device="interp"))])

def made():
    return net

def plain(a, b):
    return tnp.exp(a) + b.sum()

jitted = tile.jit(plain)
number = 3

def wrong():
    return 3

def torn(a):
    return a.nonesuch

def many(*a):
    return a
"""


def run(*arguments: object, code: int = 0, input: str | None = None) -> Any:
    done = CliRunner().invoke(app, [str(a) for a in arguments], input=input, env={"COLUMNS": "200"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    return done


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "somebodys.py").write_text(PYTHON, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("somebodys", None)
    return tmp_path


def test_composed_programs(module: Path) -> None:
    """With the types that they are composed for, and what they are bound to."""
    (row,) = json.loads(run("run", "somebodys:net", "-d", "interp", "--json").stdout)
    assert row["name"] == "C" and row["shape"] == [4, 2]
    assert json.loads(run("bench", "somebodys:made", "-d", "interp", "--seconds", "0", "--json").stdout)["calls"] == 1
    assert "kernel_0" in run("explain", "somebodys.py:net", "-d", "null").stdout
    assert "plan kernel_0" in run("plan", "somebodys:net", "-d", "llvm").stdout
    assert "d_C" in run("grad", "somebodys:net", "--wrt", "x").stdout
    found = json.loads(
        run("profile", "somebodys:net", "-d", "interp", "--calls", "2", "--trace", "t.json", "--json").stdout
    )
    assert {k["launches"] for k in found["kernels"]} == {2}
    assert json.loads((module / "t.json").read_text())["traceEvents"]


def test_python_functions_are_traced_for_shapes(module: Path) -> None:
    np.save(module / "a.npy", np.zeros(3, np.float32))
    (row,) = json.loads(run("run", "somebodys:plain", "-i", "a=a.npy", "-i", "b=2", "-d", "interp", "--json").stdout)
    assert (row["shape"], row["min"], row["max"]) == ([3], 3.0, 3.0)
    assert (
        "exp"
        in run("ir", "somebodys:jitted", "-s", "a=[3]", "-s", "b=[4]", "--stage", "program", "-d", "interp").stdout
    )


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        ("somebodys:number", 2, "is a int, not a function"),
        ("somebodys:wrong", 2, "returns a int, not a Tile function"),
        ("somebodys:jited", 2, "did you mean jitted?"),
        ("somebodys:many", 1, "takes any number of arguments"),
        ("nobodys:net", 2, "there is no module nobodys"),
        ("nobodys.py:net", 2, "no such file: nobodys.py"),
        ("somebodys:plain", 2, "the types of a, b are needed"),
    ],
)
@pytest.mark.usefixtures("module")
def test_what_is_no_function(what: str, code: int, said: str) -> None:
    assert said in run("explain", what, "-d", "null", code=code).stderr


def test_mistakes_of_others_have_a_place(module: Path) -> None:
    said = run("explain", "somebodys:torn", "-s", "a=[3]", "-d", "null", code=1).stderr
    assert "torn failed at" in said and "somebodys.py" in said and "nonesuch" in said
    (module / "broken.py").write_text("1 / 0")
    assert "ZeroDivisionError" in run("run", "broken:f", code=1).stderr


TEXT = "// shapes: A=float32[3,4]\nfunction (A[N, M], B[M]) -> (C) { C = A * B; }\n"


def test_random_and_stated_inputs(tmp_path: Path) -> None:
    file = tmp_path / "scale.tile"
    file.write_text(TEXT)
    first, again, other = (
        run("run", file, "-s", "B=[4]", "-d", "interp", "--seed", seed, "-o", f"C={tmp_path / 'c.npy'}").stdout
        for seed in (0, 0, 1)
    )
    assert first == again != other
    assert np.load(tmp_path / "c.npy").shape == (3, 4)
    assert "the types of B are needed" in run("run", file, "-d", "interp", code=2).stderr
    file.write_text(TEXT.replace("A * B", "A * Q"))
    assert "Q is not defined" in run("check", file, code=1).stdout


# --- projects ------------------------------------------------------------------------------------


def test_a_new_project_is_green(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = run("new", "my_filter", "--into", tmp_path).stdout
    folder = tmp_path / "my_filter"
    assert "python -m pytest" in said and {str(p.relative_to(folder)) for p in folder.rglob("*.*")} >= {
        *files("my_filter")
    }
    monkeypatch.syspath_prepend(str(folder / "src"))
    space: dict[str, Any] = {}
    exec((folder / "tests" / "test_my_filter.py").read_text("utf-8"), space)
    space["test_blur"]()
    assert run("check", folder / "src" / "my_filter" / "my_filter.tile").stdout == ""
    run("fmt", "--check", folder / "src" / "my_filter" / "my_filter.tile")
    cells = json.loads((folder / "my_filter.ipynb").read_text("utf-8"))["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), space)
    assert "is there already" in run("new", "my_filter", "--into", tmp_path, code=1).stderr
    assert "is no folder" in run("new", "other", "--into", tmp_path / "none", code=2).stderr


@pytest.mark.parametrize("name", ["1x", "My", "class", "tile_x", "a-b", "", "test"])
def test_names_that_no_project_can_have(tmp_path: Path, name: str) -> None:
    assert "cannot be a project" in run("new", name, "--into", tmp_path, code=2).stderr
    assert not [*tmp_path.iterdir()]


# --- help, colours, completion, wrong use --------------------------------------------------------


def commands() -> list[str]:
    group: Any = get_command(app)
    names = [n for n in group.commands if not hasattr(group.commands[n], "commands")]
    return [*names, *(f"cache {n}" for n in group.commands["cache"].commands)]


def test_summaries_are_whole() -> None:
    text = " ".join(run("--help").stdout.split())
    group: Any = get_command(app)
    for name, command in group.commands.items():
        first = re.split(r"(?<=\.) ", " ".join(command.help.split()))[0]
        assert f"{name} {first}" in text, name
    assert "..." not in text.partition("[ARGS]...")[2]


@pytest.mark.parametrize("command", commands())
def test_wrong_use_is_a_sentence(command: str) -> None:
    for wrong in (["--nonesuch"], ["a", "b", "c", "d"]):
        if command == "conformance" or (command in ("check", "fmt") and wrong[0] == "a"):
            continue  # these hand arguments on, and take any number of files
        said = run(*command.split(), *wrong, code=2).stderr
        assert "Usage:" in said and ("No such option" in said or "argument" in said or "Missing" in said)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a.tile:1:2: error TILE-E101: Q is not defined\n    1 | A = Q\n      |     ^\n  hint: did you mean A?"
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    coloured = painted(text, Terminal())
    assert (
        "\x1b[31;1merror TILE-E101:\x1b[0m" in coloured
        and "\x1b[31;1m^\x1b[0m" in coloured
        and "\x1b[36mhint:" in coloured
    )
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == text
    assert painted(text, io.StringIO()) == text
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
        assert painted(text, Terminal()) == text
        monkeypatch.undo()


def test_long_work_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.waiting("compiling"), progress.measuring(0.2) as show:
            show(0.1)
            import time

            time.sleep(0.05)
        assert bool(stream.getvalue()) is shown


MAIN = "import sys; sys.argv[0] = 'tile'; from tile_runtime.cli import main; main()"


def test_shells_complete_commands() -> None:
    env = os.environ | {"_TILE_COMPLETE": "complete_bash", "COMP_WORDS": "tile ex", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-c", MAIN], env=env, capture_output=True, text=True)
    assert done.stdout.split() == ["explain"]


def processor_seconds(*arguments: str) -> float:
    """Of a Python process with these arguments; the best of three."""
    seconds: list[float] = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)


def test_help_is_there_at_once() -> None:
    """In a few times what the library of commands takes alone; the arrays' library and that of tables are not even imported."""
    assert processor_seconds("-c", MAIN, "--help") < 5 * processor_seconds("-c", "import typer")
    look = "import sys, tile_runtime.cli.app; print(*{'numpy', 'rich', 'llvmlite', 'tile_opt'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout.split() == []


def test_other_packages_bring_functions_of_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    seen: list[list[str]] = []

    def main(arguments: list[str]) -> int:
        """Serve an editor. And more."""
        seen.append(arguments)
        return 3

    monkeypatch.setattr(EntryPoint, "load", lambda _self: main)
    monkeypatch.setattr(brought, "entry_points", lambda group: [EntryPoint("serve", "somebody:main", group)])
    run("serve", "--tcp", "here", "--help", code=3)
    assert seen == [["--tcp", "here", "--help"]]
    assert "Serve an editor." in run("--help").stdout
    assert isinstance(app, typer.Typer)
