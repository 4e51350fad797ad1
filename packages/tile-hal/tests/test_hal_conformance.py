"""The conformance suite's own machinery: entry, capabilities, quirks, reports, tolerances, strategies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tile_hal.conformance
from hypothesis import HealthCheck, given, settings
from tile_hal.conformance import __main__, strategies, tolerance
from tile_hal.conformance.programs import bind, fill
from tile_hal.conformance.record import Record
from tile_hal.conformance.report import Case, DeviceFacts, Report, RunFacts, matches
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction
from tile_lang import evaluate, format_source, parse

QUIRKY = """
from dataclasses import replace
import tile_hal
from tile_hal.builtin.interp import InterpDriver, InterpExecutor
from tile_hal.host import HostMemory

class Memory(HostMemory):
    def wrap(self, view):
        raise OSError("wrapping is broken here")

class Quirky(InterpDriver):
    name = "quirky"

    def device_sets(self):
        (group,) = super().device_sets()
        device = group.devices[0]
        device.id = "quirky:0"
        device.memory = Memory()
        device.capabilities = replace(device.capabilities, quirks=QUIRKS)
        return [group]

@tile_hal.hookimpl
def tile_hal_driver():
    return Quirky()
"""


def conformance(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tile_hal.conformance", *arguments], capture_output=True, text=True, cwd=cwd
    )


def quirky(folder: Path, quirks: dict[str, str]) -> tuple[int, dict[str, str]]:
    """Exit code and outcomes of the cases about wrapping on a device whose wrapping is broken."""
    (folder / "quirky.py").write_text(f"QUIRKS = {quirks!r}\n{QUIRKY}")
    done = conformance(
        "--backend=quirky",
        "--plugin=quirky",
        "--level=1",
        "--json=report.json",
        "--",
        "-k",
        "wrap or views",
        "--ignore-glob=/*test_level[!1]*",
        cwd=folder,
    )
    report = json.loads((folder / "report.json").read_text())
    return done.returncode, {c["name"]: c["outcome"] for c in report["cases"]}


def test_reports_of_a_whole_level(tmp_path):
    done = conformance("--backend", "interp", "--level", "0", "--json", "r.json", "--markdown", "r.md", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["passed"] and report["format"] == 2 and report["time"] and report["versions"]["numpy"]
    assert report["devices"][0]["id"] == "interp:0" and report["devices"][0]["level"] == 0
    assert "0" not in report["devices"][0]["left_out"] and report["devices"][0]["left_out"]["1"] > 10
    assert {c["level"] for c in report["cases"]} == {0}
    text = (tmp_path / "r.md").read_text()
    assert "## `interp:0`" in text and "| 0 | plugin and device facts |" in text


def test_a_declared_quirk_is_expected_to_fail(tmp_path):
    names = ["test_wrapped_memory_is_used_in_place", "test_wrap_refuses_or_takes_any_view"]
    code, outcomes = quirky(tmp_path, dict.fromkeys(names, "wrapping is broken"))
    assert code == 0
    assert [outcomes[n] for n in names] == ["quirk", "quirk"]


def test_a_quirk_that_passes_is_an_error(tmp_path):
    code, outcomes = quirky(tmp_path, {"test_wrap*": "wrapping is broken", "test_views*": "no longer true"})
    assert code == 1
    assert outcomes["test_views_share_the_bytes_of_their_buffer"] == "failed"


def test_a_missing_backend_is_an_error():
    done = conformance("--backend", "imaginary", "--level", "0")
    assert done.returncode == 2
    assert "there is no device 'imaginary'" in done.stdout + done.stderr


def test_what_the_suite_needs_and_lacks_is_named(monkeypatch, capsys):
    monkeypatch.setattr(__main__, "find_spec", lambda name: None if name == "hypothesis" else object())
    assert __main__.main(["--backend", "interp"]) == 2
    assert "hypothesis is not installed; pip install pytest hypothesis" in capsys.readouterr().err


def test_without_a_backend_nothing_is_collected():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, "--pyargs", "tile_hal.conformance"], capture_output=True, text=True)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "needs --backend NAME" in done.stdout + done.stderr


def test_a_lenient_run_skips_a_missing_backend():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
        "--pyargs",
        "tile_hal.conformance",
    ]
    done = subprocess.run([*command, "--backend", "imaginary", "--tile-level", "0"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "backend 'imaginary' has no device here" in done.stdout


def facts(**more: object) -> DeviceFacts:
    base = {
        "id": "x:0", "name": "X", "driver": "x", "distribution": "hal-x 1.0", "dtypes": ("float32", "int32"),
        "nodes": (), "quirks": {}, "is_async": False, "executes": True, "max_group_size": 1, "subgroup": 1,
    }  # fmt: skip
    return DeviceFacts(**{**base, **more})


def report_of(*cases: Case, planned: dict[int, int] | None = None, **more: object) -> Report:
    """Of a device x:0, whose suite has these cases and no others unless `planned` says so."""
    counts = {level: sum(c.level == level for c in cases) for level in range(6)}
    return Report(RunFacts("x"), (facts(**more),), cases, {"x:0": counts | (planned or {})})


def test_report_counts_levels_and_dtypes():
    cases = (
        Case("x:0", 0, "test_a", "passed"),
        Case("x:0", 3, "test_math[sin-float32]", "failed", "too far off"),
        Case("x:0", 3, "test_math[sin-int32]", "passed"),
        Case("x:0", 4, "test_b", "skipped", "why"),
    )
    report = report_of(*cases)
    assert not report.passed
    assert report.highest_level("x:0") == 0
    text = report.to_markdown()
    row = next(line for line in text.splitlines() if line.startswith("| support |")).split(" | ")
    table = dict(zip([d.value for d in DType], [cell.strip("| ") for cell in row[1:]], strict=True))
    assert (table["float32"], table["int32"], table["float64"]) == ("fails", "yes", "–")
    assert "failed `test_math[sin-float32]`: too far off" in text
    assert "a `run` that has to wait blocks;" in text
    assert not report_of(Case("x:0", 0, "test_a", "skipped")).passed
    assert not Report(RunFacts("x"), (), cases[:1], {}).passed


def test_a_level_that_does_not_apply_is_passed_over():
    below = (Case("x:0", 0, "test_a", "passed"), Case("x:0", 3, "test_b", "inapplicable", "not applicable: why"))
    above = (Case("x:0", 4, "test_c", "passed"),)
    report = report_of(*below, *above, codegen="stripe")
    assert report.passed and report.highest_level("x:0") == 4
    assert report_of(*below).highest_level("x:0") == 0
    assert "| 3 | operations, dtypes, semtree nodes | 0 | 0 | 0 | 0 | 1 | 0 |" in report.to_markdown()
    assert "Takes scheduled Stripe." in report.to_markdown()


def test_a_level_counts_only_when_all_of_its_tests_ran():
    cases = [Case("x:0", level, "test_a", "passed") for level in range(6)]
    assert report_of(*cases).highest_level("x:0") == 5
    filtered = report_of(*cases, planned={2: 3, 5: 2})
    assert filtered.passed and filtered.highest_level("x:0") == 1
    assert "3 tests of level 2, 5 did not run" in filtered.standing("x:0")
    assert json.loads(filtered.to_badge())["message"] == "level 1 of 5"
    assert json.loads(filtered.to_json())["devices"][0]["left_out"] == {"2": 2, "5": 1}
    assert report_of(*cases, planned={0: 2}).highest_level("x:0") is None
    assert json.loads(report_of(*cases).to_badge())["color"] == "brightgreen"


def test_a_filtered_run_says_so(tmp_path):
    """Whatever the filter, files and single tests named among them."""
    done = conformance("--backend=interp", "--level=0", "--json=r.json", "--", "-k", "fingerprint", cwd=tmp_path)
    assert done.returncode == 0 and "reached no level; 6 tests of level 0 did not run" in done.stdout
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["filters"] == ["-k fingerprint"] and report["devices"][0]["level"] is None
    file = Path(tile_hal.conformance.__file__).with_name("test_level0_plugin.py")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--backend=interp",
        "--tile-json=one.json",
        "-p",
        "no:cacheprovider",
    ]
    subprocess.run([*command, f"{file}::test_driver_has_a_doctor"], cwd=tmp_path, check=True, capture_output=True)
    assert json.loads((tmp_path / "one.json").read_text())["devices"][0]["level"] is None


@pytest.mark.parametrize(
    ("quirk", "name", "fits"),
    [
        ("test_math[sin-float16]", "test_math[sin-float16]", True),
        ("test_math[sin-float16]", "test_math[sin-float32]", False),
        ("test_math[*-float16]", "test_math[sin-float16]", True),
        ("test_math[s?n-float16]", "test_math[sin-float16]", False),
        ("test_math", "test_math[sin-float16]", False),
    ],
)
def test_quirks_are_matched_letter_by_letter(quirk, name, fits):
    assert matches(quirk, name) == fits


def test_a_quirk_that_is_of_no_test_says_so():
    quirks = {"test_math[sin-*]": "coarse", "test_maths": "misspelt"}
    text = report_of(Case("x:0", 3, "test_math[sin-float16]", "quirk"), quirks=quirks).to_markdown()
    assert "- quirk `test_math[sin-*]`: coarse\n" in text
    assert "- quirk `test_maths`: misspelt (no test that ran is called so)" in text


def test_a_record_goes_on_where_a_process_ended(tmp_path):
    file = tmp_path / "record.jsonl"
    first = Record(file)
    first.begin(RunFacts("x", filters=("-k a",)), ())
    first.plan({"x:0": {0: 2}})
    first.start(("x:0", 0, "test_a"))
    first.add(Case("x:0", 0, "test_a", "passed"))
    first.start(("x:0", 0, "test_b"))
    with file.open("a") as out:
        out.write('{"case": {"dev')  # what a dying process may leave
    second = Record(file)
    assert second.started == ("x:0", 0, "test_b") and not second.finished
    second.died("the process died: Segmentation fault (SIGSEGV)")
    second.finish()
    report = Record(file).report()
    assert report == second.report() and Record(file).finished
    assert [(c.name, c.outcome) for c in report.cases] == [("test_a", "passed"), ("test_b", "failed")]
    assert report.left_out("x:0", 0) == 0 and report.run.filters == ("-k a",)


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_float])
def test_ulp_distance(dtype):
    kind = dtype.numpy
    one = np.array([1.0], kind)
    step = np.array([1.0 + tolerance.eps(dtype)], kind)
    assert tolerance.ulp_distance(one, step) == 1
    assert tolerance.ulp_distance(-one, one) > 2 ** (dtype.bits - 3)
    zeros, nan = np.array([0.0, -0.0], kind), np.array([np.nan], kind)
    assert (tolerance.ulp_distance(zeros, zeros[::-1].copy()) == 0).all()
    assert tolerance.ulp_distance(nan, nan) == 0 and np.isinf(tolerance.ulp_distance(nan, one))
    tolerance.assert_ulp(one, step, 1.0, [one])
    with pytest.raises(pytest.fail.Exception, match="1 ULP"):
        tolerance.assert_ulp(one, step, 0.0, [one])


def test_tolerances_bite():
    wanted = np.ones(3, np.float32)
    with pytest.raises(pytest.fail.Exception):
        tolerance.assert_close(wanted + np.float32(1e-3), wanted, np.full(3, 1e-4), "x")
    with pytest.raises(pytest.fail.Exception):
        tolerance.assert_close(np.full(3, np.nan), wanted, np.full(3, 1e9), "x")
    bound = tolerance.sum_bound(np.full(3, 1000), wanted.astype(float), DType.FLOAT32, DType.FLOAT32, wanted)
    assert (bound < 1e-3).all() and (bound > 1e-5).all()


QUIET = settings(max_examples=60, suppress_health_check=list(HealthCheck))


@QUIET
@given(strategies.contractions(list(DType)))
def test_drawn_contractions_are_legal_programs(case):
    program = bind(case.source, case.inputs)
    inputs = {n: fill(t, case.data, case.seed) for n, t in case.inputs.items()}
    assert len(evaluate(program, inputs)) >= 1
    assert parse(format_source(case.source))


@QUIET
@given(strategies.elementwise(list(DType)))
def test_drawn_expressions_are_legal_programs(case):
    program = bind(case.source, case.inputs)
    assert evaluate(program, {n: fill(t, case.data, case.seed) for n, t in case.inputs.items()})


def test_the_strategy_covers_the_language():
    seen: set[str] = set()
    nonempty = total = 0

    @settings(QUIET, max_examples=400)
    @given(strategies.contractions(list(DType)))
    def look(case):
        nonlocal nonempty, total
        program = bind(case.source, case.inputs)
        op = next((o for o in program.ops if isinstance(o, Contraction)), None)
        first = case.source.splitlines()[1]
        seen.update(m for m in ("default", "==", "?", "/", "2*", " - ", "O[]", ", 0]", "[]") if m in first)
        seen.update({case.agg.name, case.data.name, *(t.dtype.value for t in case.inputs.values())})
        seen.update({"empty dimension"} if any(0 in t.shape for t in case.inputs.values()) else ())
        seen.update({"twice"} if first.count("A[") > 1 else ())
        seen.update({"second contraction"} if "M[" in case.source else ())
        total += op is not None
        inputs = {n: fill(t, case.data, case.seed) for n, t in case.inputs.items()}
        nonempty += any(np.any(o != o.dtype.type(0)) for o in evaluate(program, inputs).values())

    look()
    expected = {*(a.name for a in Aggregation), *(d.name for d in strategies.Data), *(d.value for d in DType)}
    expected |= {"default", "==", "?", "/", "2*", " - ", "O[]", "[]", "empty dimension", "twice", "second contraction"}
    assert expected <= seen, expected - seen
    assert nonempty > total / 2
