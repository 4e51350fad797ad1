"""The `tile` command: every subcommand, its JSON, its exit codes, and no tracebacks for mistakes of the user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tile_autodiff
import tile_hal
from tile_hal import Device
from tile_hal.disk_cache import DiskCache
from tile_ir.diagnostics import TileFallbackWarning
from tile_ir.dtype import DType
from tile_runtime.cli import main
from tile_runtime.cli.app import app
from typer.testing import CliRunner

MATMUL = "function (A[M, L], B[L, N]) -> (C) {\n    C[i, j : M, N] = +(A[i, k] * B[k, j]);\n}\n"
SHAPES = ["--shape", "A=float32[4,3]", "-s", "B=[3,5]"]
COMMANDS = [
    "devices", "doctor", "check", "fmt", "ir", "explain", "plan", "run", "grad", "bench", "profile", "tune", "build", "calibrate", "new", "plugins", "new-backend",
    "conformance", "cache info", "cache clear", "cache verify",
]  # fmt: skip


class Result:
    def __init__(self, *arguments: object, input: str | None = None) -> None:
        done = CliRunner().invoke(app, [str(a) for a in arguments], input=input, env={"COLUMNS": "200"})
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        self.code, self.out, self.err = done.exit_code, done.stdout, done.stderr
        assert "Traceback" not in self.out + self.err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "matmul.tile"
    path.write_text(MATMUL, encoding="utf-8")
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.tile"
    path.write_text("function (A) -> (B) {\n    B = A +;\n}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_the_exit_codes(command: str) -> None:
    got = Result(*command.split(), "--help")
    text = " ".join(got.out.split())
    assert got.code == 0
    assert f"Example: tile {command}" in text and "Exit codes: 0" in text


def test_top_level() -> None:
    text = Result("--help").out
    assert all(command.split()[0] in text for command in COMMANDS)
    assert Result("--version").out.startswith("tile 0.")
    assert Result("nonesuch").code == 2
    assert Result("devices", "--nonesuch").code == 2


def test_new_backend(tmp_path: Path) -> None:
    made = Result("new-backend", "my_chip", "--into", tmp_path, "--kind", "stripe")
    assert made.code == 0 and str(tmp_path / "tile-my-chip") in made.out
    assert (tmp_path / "tile-my-chip" / "src" / "tile_my_chip" / "device.py").exists()
    again = Result("new-backend", "my_chip", "--into", tmp_path)
    assert again.code == 1 and "is there already" in again.err
    assert Result("new-backend", "My Chip", "--into", tmp_path).code == 1
    assert Result("new-backend", "other", "--kind", "verilog").code == 2


def test_devices_doctor_plugins() -> None:
    rows = Result("devices", "--json").json
    assert {"interp:0", "llvm:0", "null:0"} <= {r["id"] for r in rows}
    assert [r["id"] for r in rows if r["default"]] == ["llvm:0"]
    assert "* llvm:0" in Result("devices").out
    report = Result("doctor", "--json")
    assert report.code == 0 and report.json["works"] and report.json["versions"]["tile-runtime"]
    assert "llvm:0" in Result("doctor").out
    assert {"interp", "llvm", "null"} <= {p["name"] for p in Result("plugins", "--json").json}
    assert "tile-hal" in Result("plugins").out


def test_doctor_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILE_DEVICE", "null")
    got = Result("doctor")
    assert got.code == 1 and "only compiles" in got.out


def test_check(file: Path, bad: Path) -> None:
    assert Result("check", file).code == 0
    got = Result("check", file, bad)
    assert got.code == 1 and "bad.tile:2:" in got.out and "^" in got.out
    (line,) = Result("check", "--json", bad).out.splitlines()
    assert json.loads(line)["line"] == 2
    got = Result("check", file, "--shape", "A=[4,3]", "--shape", "B=[4,5]")
    assert got.code == 1 and "matmul.tile:1:" in got.out
    assert Result("check", file, *SHAPES).code == 0


def test_fmt(tmp_path: Path) -> None:
    path = tmp_path / "ugly.tile"
    path.write_text("function(A)->(B){B=A+A;}", encoding="utf-8")
    got = Result("fmt", "--check", path)
    assert got.code == 1 and "would be reformatted" in got.out
    assert Result("fmt", path).code == 0
    assert path.read_text(encoding="utf-8") == "function (A) -> (B) {\n    B = A + A;\n}\n"
    assert Result("fmt", "--check", path).code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--stage", "ast"], ["Function 1:1", "Contraction 2:5"]),
        (["--stage", "program", *SHAPES], ["float32[4, 3]"]),
        (SHAPES, ["kernel", "main"]),
        (["--stage", "stripe", "--after", "initial", *SHAPES], ["kernel"]),
        (["--stage", "semtree", *SHAPES], ["float32"]),
        (["--stage", "source", *SHAPES, "--device", "llvm"], ["define"]),
        (["--stage", "asm", *SHAPES, "-d", "llvm"], ["kernel0"]),
    ],
)
def test_ir(file: Path, options: list[str], words: list[str]) -> None:
    got = Result("ir", file, *options)
    assert got.code == 0, got.err
    assert all(word in got.out for word in words)


def test_files_and_shapes_that_cannot_be_read(tmp_path: Path, file: Path) -> None:
    np.savez(tmp_path / "several.npz", a=np.ones(3), b=np.ones(3))
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 is how a zip file begins")
    for name, message in (("several.npz", "holds several arrays"), ("broken.npz", "is no .npy file")):
        got = Result("run", file, "-i", f"A={tmp_path / name}")
        assert got.code == 2 and message in got.err
    for size in ("3 4", "9" * 5000):
        got = Result("check", file, "-s", f"A=[{size}]")
        assert got.code == 2 and "has a size that is no number" in got.err


def test_explain_and_bench(file: Path) -> None:
    got = Result("explain", file, *SHAPES)
    assert got.code == 0 and "operations" in got.out
    assert Result("explain", file, *SHAPES, "--json").json["kernels"][0]["operations"] > 0
    facts = Result("bench", file, *SHAPES, "--seconds", "0.01", "--json").json
    assert facts["device"] == "llvm:0" and facts["calls"] > 0 and facts["median_seconds"] > 0
    assert "gflops" in Result("bench", file, *SHAPES, "--seconds", "0").out


SQUARE = ["-s", "A=[8,8]", "-s", "B=[8,8]", "--device", "interp"]
GIVEN = "plan kernel_0 {\n  serial i:3\n}\n"


@pytest.mark.usefixtures("planned")
def test_tune(tmp_path: Path, file: Path) -> None:
    rows = Result("tune", file, *SQUARE, "--trials", "3", "--json").json
    assert sorted(r["own"] for r in rows) == [False, False, True] and all("serial i:" in r["plan"] for r in rows)
    assert [r["seconds"] for r in rows] == sorted(r["seconds"] for r in rows)
    got = Result("tune", file, *SQUARE, "--trials", "2", "--save", tmp_path / "best.plan")
    assert "serial i:4 (the compiler’s choice)" in got.out and "serial i:2" in got.out
    assert Result("plan", file, *SQUARE, "--use", tmp_path / "best.plan").out == (tmp_path / "best.plan").read_text()
    assert "only one plan" in Result("tune", file, *SQUARE, "--trials", "1").out
    assert Result("tune", file, *SHAPES, "--device", "null").code == 1


def test_tune_shows_a_progress_bar_on_a_terminal(planned: Device, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    updates: list[dict[str, Any]] = []
    monkeypatch.setattr("rich.progress.Progress.update", lambda self, bar, **facts: updates.append(facts))
    Result("tune", file, *SQUARE, "--trials", "2")
    assert [u["completed"] for u in updates] == list(range(1, updates[-1]["total"] + 1))
    assert updates[-1]["description"].startswith("best ")


@pytest.mark.usefixtures("planned")
def test_plans_are_printed_and_used(file: Path, tmp_path: Path) -> None:
    got = Result("plan", file, *SQUARE)
    assert got.code == 0 and got.out.startswith(
        "// C[i, j : M, N] = +(A[i, k] * B[k, j]);\n// loops i: 8, j: 8, k: 8\n"
    )
    (tmp_path / "my.plan").write_text(got.out.replace("serial i:4", "serial i:3"), encoding="utf-8")
    changed = Result("plan", file, *SQUARE, "--use", tmp_path / "my.plan")
    assert "serial i:3" in changed.out
    assert Result("plan", file, *SQUARE, "--plan", "-", input=changed.out).out == changed.out
    assert (
        "serial i:3" in Result("plan", file, *SQUARE, "--use", tmp_path / "my.plan", "--json").json["plans"]["kernel_0"]
    )
    for command in ("ir", "bench"):
        assert Result(command, file, *SQUARE, "--plan", tmp_path / "my.plan").code == 0
    np.save(tmp_path / "a.npy", np.ones((8, 8), np.float32))
    inputs = [f"--input={n}={tmp_path / 'a.npy'}" for n in "AB"]
    assert "8" in Result("run", file, *inputs, "-d", "interp", "--plan", tmp_path / "my.plan").out


@pytest.mark.usefixtures("planned")
def test_plans_are_timed_and_compared(file: Path, tmp_path: Path) -> None:
    (tmp_path / "my.plan").write_text(GIVEN, encoding="utf-8")
    got = Result("plan", file, *SQUARE, "--use", tmp_path / "my.plan", "--time")
    assert got.code == 0 and "kernel_0" in got.out and "Results: the same" in got.out
    facts = Result("plan", file, *SQUARE, "--use", tmp_path / "my.plan", "--time", "--json").json
    assert (
        facts["seconds"]["kernel_0"] > 0 and facts["own_seconds"]["kernel_0"] > 0 and facts["largest_difference"] == 0
    )


@pytest.mark.usefixtures("planned")
def test_plans_that_do_not_fit_have_their_place(file: Path, tmp_path: Path) -> None:
    for text, code, message in (
        (GIVEN.replace("i:3", "q:3"), 1, f"{tmp_path / 'my.plan'}:2:10: error TILE-E631"),
        (GIVEN.replace("serial", "sereal"), 1, "did you mean 'serial'?"),
        (GIVEN.replace("kernel_0", "kernel_7"), 1, "did you mean 'kernel_0'?"),
    ):
        (tmp_path / "my.plan").write_text(text, encoding="utf-8")
        got = Result("plan", file, *SQUARE, "--use", tmp_path / "my.plan")
        assert got.code == code and message in got.err and not got.out
    got = Result("plan", file, *SQUARE, "--use", tmp_path / "missing.plan")
    assert got.code == 2 and "missing.plan" in got.err
    assert Result("plan", file, *SQUARE[:-1], "null", "--time").code == 1


@pytest.mark.usefixtures("planned")
def test_plans_are_edited(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "editor.py"
    monkeypatch.setenv("VISUAL", f"{sys.executable} {script}")
    editing = "import sys, pathlib; p = pathlib.Path(sys.argv[1]); p.write_text(p.read_text().replace('i:4', {!r}))"
    script.write_text(editing.format("i:2"), encoding="utf-8")
    got = Result("plan", file, *SQUARE, "--edit", "--save", tmp_path / "my.plan")
    assert got.code == 0 and not got.out and "serial i:2" in (tmp_path / "my.plan").read_text(encoding="utf-8")
    script.write_text(editing.format("q:2"), encoding="utf-8")
    got = Result("plan", file, *SQUARE, "--edit")
    assert got.code == 1 and "<edited>:5:10: error TILE-E631" in got.err
    script.write_text("raise SystemExit(3)", encoding="utf-8")
    assert "failed, so nothing is changed" in Result("plan", file, *SQUARE, "--edit").err
    monkeypatch.setenv("VISUAL", str(tmp_path / "no such editor"))
    assert Result("plan", file, *SQUARE, "--edit").code == 2


@pytest.mark.parametrize("device", ["interp", "llvm"])
def test_run(file: Path, tmp_path: Path, device: str) -> None:
    a, b = np.arange(12, dtype=np.float32).reshape(4, 3), np.arange(15, dtype=np.float32).reshape(3, 5)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", np.asfortranarray(b))
    result = tmp_path / "c.npy"
    options = ["--input", f"A={tmp_path / 'a.npy'}", "-i", f"B={tmp_path / 'b.npy'}"]
    got = Result("run", file, *options, "--output", f"C={result}", "--device", device)
    assert got.code == 0, got.err
    np.testing.assert_array_equal(np.load(result), a @ b)
    (row,) = Result("run", file, *options, "--json", "-d", device).json
    assert row["max"] == float((a @ b).max()) and row["shape"] == [4, 5]


@pytest.fixture
def product(tmp_path: Path) -> Path:
    path = tmp_path / "product.tile"
    path.write_text("function (A, B) -> (C) { C = A * B; }", encoding="utf-8")
    return path


NUMBERS = ["-i", "A=3", "-i", "B=2.5"]


def test_run_takes_numbers(product: Path) -> None:
    (row,) = Result("run", product, *NUMBERS, "--json").json
    assert row["max"] == 7.5 and row["dtype"] == "float32"


def test_drivers_in_worker_processes(product: Path) -> None:
    (row,) = Result("run", product, *NUMBERS, "--isolate", "-d", "interp", "--json").json
    assert row["max"] == 7.5
    shapes = ["-s", "A=float32", "-s", "B=float32", "--seconds", "0"]
    assert Result("bench", product, *shapes, "--isolate", "-d", "interp", "--json").json["calls"] == 1


def test_what_a_device_lacks_runs_on_the_fallback(product: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And that is said once; without a fallback the program is refused."""
    interp = tile_hal.device("interp")
    monkeypatch.setattr(interp, "capabilities", replace(interp.capabilities, dtypes=frozenset({DType.INT32})))
    assert Result("run", product, *NUMBERS, "-d", "interp").code == 1
    with pytest.warns(TileFallbackWarning, match="these steps run on llvm") as said:
        (row,) = Result("run", product, *NUMBERS, "-d", "interp", "--fallback", "llvm", "--json").json
    assert row["max"] == 7.5 and len(said) == 1
    shapes = ["-s", "A=float32", "-s", "B=float32"]
    with pytest.warns(TileFallbackWarning):
        assert "llvm" in Result("explain", product, *shapes, "-d", "interp", "--fallback", "llvm").out
    assert Result("run", product, *NUMBERS, "--fallback", "nonesuch").code == 1


@pytest.mark.skipif(not hasattr(tile_autodiff, "gradient"), reason="tile_autodiff has no gradient yet")
def test_grad(file: Path) -> None:
    got = Result("grad", file, "--wrt", "A", *SHAPES)
    assert got.code == 0 and "d_C" in got.out
    assert Result("grad", file, *SHAPES).code == 0
    assert Result("grad", file, "--wrt", "Q", *SHAPES).code == 1


MISTAKES: list[tuple[int, str, list[str]]] = [
    (2, "nowhere.tile", ["check", "nowhere.tile"]),
    (2, "nowhere.tile", ["ir", "nowhere.tile"]),
    (2, "the types of A, B are needed", ["ir", "FILE"]),
    (2, "is not like A=float32", ["ir", "FILE", "--shape", "A:3"]),
    (1, "no input is called Q", ["ir", "FILE", *SHAPES, "--shape", "Q=[1]"]),
    (1, "complex", ["ir", "FILE", "--shape", "A=complex64[3]"]),
    (1, "matmul.tile:1:", ["ir", "FILE", "--shape", "A=[4,3]", "--shape", "B=[4,3]"]),
    (1, "no pass 'nonesuch'", ["ir", "FILE", "--after", "nonesuch", *SHAPES]),
    (2, "--after goes with", ["ir", "FILE", "--stage", "asm", "--after", "schedule_kernels", *SHAPES]),
    (2, "nonesuch", ["ir", "FILE", "--stage", "nonesuch"]),
    (1, "no device 'nonesuch'", ["explain", "FILE", *SHAPES, "--device", "nonesuch"]),
    (1, "bad.tile:2:", ["run", "BAD"]),
    (1, "misses input 'A', 'B'", ["run", "FILE"]),
    (1, "no input 'Q'", ["run", "FILE", "--input", "Q=1"]),
    (1, "no output 'Q'", ["run", "FILE", "--output", "Q=1"]),
    (2, "is not like A=file.npy", ["run", "FILE", "--input", "A"]),
    (2, "given twice", ["run", "FILE", "--input", "A=1", "--input", "A=1"]),
    (2, "missing.npy", ["run", "FILE", "--input", "A=missing.npy"]),
    (2, "is no .npy file", ["run", "FILE", "--input", "A=FILE"]),
    (1, "", ["run", "FILE", "--input", "A=1", "--input", "B=2"]),
    (2, "backend", ["conformance"]),
]


@pytest.mark.parametrize(("code", "message", "arguments"), MISTAKES, ids=[" ".join(m[2]) for m in MISTAKES])
def test_mistakes(file: Path, bad: Path, code: int, message: str, arguments: list[str]) -> None:
    got = Result(*(a.replace("FILE", str(file)).replace("BAD", str(bad)) for a in arguments))
    assert got.code == code, got.out + got.err
    if arguments[0] != "conformance":  # argparse writes past CliRunner
        assert message in got.err


def test_conformance_passes_everything_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options that are not ours, and the -- in front of pytest's."""
    seen: list[list[str]] = []
    monkeypatch.setattr("tile_hal.conformance.__main__.main", lambda given: seen.append(given) or 0)
    given = ["--backend", "interp", "--timeout=5", "--", "-k", "level3 and exp", "--tb=short"]
    assert Result("conformance", *given).code == 0 and seen == [given]
    shown = Result("conformance", "--help").out
    assert "pytest's own after --" in shown and "SECONDS (60)" in shown and len(seen) == 1


def test_bad_settings_are_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILE_CACHE", "maybe")
    got = Result("cache", "info")
    assert got.code == 2 and "TILE_CACHE must be on, read or off" in got.err


def test_cache(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kernels"
    monkeypatch.setenv("TILE_CACHE_DIR", str(folder))
    assert Result("cache", "info", "--json").json["entries"] == 0
    Result("ir", file, "--stage", "source", *SHAPES)
    facts = Result("cache", "info", "--json").json
    assert facts["entries"] == 1 and facts["bytes"] > 0 and facts["folder"] == str(folder)
    assert "1 entries are sound" in Result("cache", "verify").out
    (entry,) = folder.glob("*.tilecache")
    entry.write_bytes(entry.read_bytes()[:-1])
    got = Result("cache", "verify", "--json")
    assert got.code == 1 and got.json["damaged"] == [str(entry)]
    remembered = DiskCache(folder / "plugins")
    remembered.write("ab" * 32, b"how a plugin fared")
    assert Result("cache", "clear", "--json").json == {"removed": 1}
    assert remembered.entries() == []
    assert Result("cache", "verify").code == 0


def test_the_installed_command_reads_standard_input() -> None:
    command = [sys.executable, "-c", "from tile_runtime.cli import main; main()", "check", "-"]
    strict = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    binary = subprocess.run(command, input=b"\xff\xfe\0", capture_output=True, env=strict)
    assert binary.returncode == 2 and b"not UTF-8" in binary.stderr and b"Traceback" not in binary.stderr
    done = subprocess.run(command, input="function (A) -> (B) { B = ; }", capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout.startswith("<stdin>:1:")


@pytest.mark.skipif(os.name != "posix", reason="a pipe without a reader")
def test_a_reader_that_has_gone_is_no_error() -> None:
    command = f"{sys.executable} -c 'from tile_runtime.cli import main; main()' devices --json"
    done = subprocess.run(f"({command}; echo code $? >&2) | true", shell=True, capture_output=True, text=True)
    assert "Traceback" not in done.stderr and "Broken" not in done.stderr


def test_closed_streams_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, stream, None)
    for arguments, code in ((["plugins"], 0), (["check", "-"], 2)):
        monkeypatch.setattr(sys, "argv", ["tile", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == code


@pytest.mark.parametrize(
    "deed",
    [
        pytest.param("import ctypes; ctypes.string_at(0)", id="crash"),
        pytest.param("import time; time.sleep(1000)", id="hang", marks=pytest.mark.slow),
    ],
)
def test_a_plugin_that_does_not_survive_its_import_is_one_sentence(tmp_path: Path, deed: str) -> None:
    """Each command is a process of its own, and only the first tries the plugin."""
    facts = tmp_path / "tile_bad-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: tile-bad\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[tile_hal]\nbad = tile_bad\n")
    (tmp_path / "tile_bad.py").write_text(f"open({str(tmp_path / 'log')!r}, 'a').write('tried ')\n{deed}")
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "TILE_PLUGINS": "tile-hal,hal-llvm,tile-bad",
        "TILE_CACHE_DIR": str(tmp_path / "cache"), "TILE_PLUGIN_SECONDS": "2",
    }  # fmt: skip
    for command, code in (("devices", 0), ("plugins", 1), ("doctor", 0)):
        main = [sys.executable, "-c", "from tile_runtime.cli import main; main()", command, "--json"]
        done = subprocess.run(main, env=env, capture_output=True, text=True)
        assert done.returncode == code and json.loads(done.stdout), done.stderr
        assert done.stderr.startswith("tile: warning: plugin 'bad' of tile-bad 1.0 is broken and was left out")
        assert "died of SIGSEGV" in done.stderr or "gave no answer for 2 s" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert (tmp_path / "log").read_text() == "tried tried ", "by the first command, and again by the doctor"


def test_commands_that_others_bring(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    from tile_runtime.cli import brought

    points = [EntryPoint("mine", "tile_runtime.cli.app:cache_app", brought.GROUP), EntryPoint("torn", "nowhere:app", brought.GROUP),
              EntryPoint("run", "nowhere:app", brought.GROUP)]  # fmt: skip
    monkeypatch.setattr(brought, "entry_points", lambda group: points)
    assert "verify" in CliRunner().invoke(app, ["mine", "--help"]).output
    listed = CliRunner().invoke(app, ["--help"])
    assert "mine" in listed.output
    assert "the command 'torn' of nowhere:app cannot be loaded" in listed.stderr
    assert "Run a function on arrays" in CliRunner().invoke(app, ["run", "--help"]).output


def test_prepared_programs_are_found(product: Path) -> None:
    import tile_runtime as tile

    evaluator, function = tile.Evaluator("interp"), tile.Function.from_file(product)
    arrays = [np.ones((2, 2), np.float32) for _ in function.inputs]
    evaluator.prepare(function, *arrays)
    assert len(evaluator.programs) == 1
    evaluator(function, *arrays)
    assert len(evaluator.programs) == 1
