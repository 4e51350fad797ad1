"""The benchmark itself: it runs, its draws repeat, and its gate and verdicts are right. Nothing here is timed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tile_lang
import tile_runtime as tile
from stack import ROOT
from tile_ir.target import Target

BENCH = ROOT / "integration" / "bench"
TINY = 8
"""Largest size of the draws that are computed here."""


@pytest.fixture(autouse=True)
def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


def test_it_runs_and_reports(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, str(BENCH / "run.py"), "--small", "--rounds", "1", "--rows", "matmul,call,row-sum"]
    done = subprocess.run([*command, "--json", str(report)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr
    rows = json.loads(report.read_text("utf-8"))["fixed"]
    assert [r["unit"] for r in rows] == ["x", "x", "us"]
    for row in rows:
        assert row["rounds"] >= 1 and row["peak"] > 1 and row["measured"] > 0
    assert done.returncode == (0 if all(r["passed"] for r in rows) else 1)


def test_a_case_is_repeated_by_its_name(tmp_path: Path) -> None:
    report, name = tmp_path / "report.json", "matmul:m=5,k=6,n=7,layout=nt"
    command = [sys.executable, str(BENCH / "run.py"), "--case", name, "--rounds", "1", "--peers", "numpy"]
    done = subprocess.run([*command, "--json", str(report)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(report.read_text("utf-8"))["rows"]
    assert row["name"] == name and row["peer"] == "NumPy" and row["kernels"] >= 1 and not row["problem"]
    assert row["ratio"] > 0 and row["share"] > 0 and row["predicted"] > 0


def test_rounds_of_a_slow_machine_do_not_count() -> None:
    import rounds

    speeds = iter([100.0] * 20 + [100, 99, 50, 100, 100, 60, 98, 97] + [100.0] * 99)
    timing = rounds.measure({"tile": lambda: 1.0, "peer": lambda: 2.0}, lambda: next(speeds), 3, patience=30)
    assert len(timing.rounds) == 3 and timing.discarded == 2
    assert timing.median("peer") == 2.0


def test_a_kernel_is_measured_until_two_rounds_agree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Runs that were interrupted do not count, as far as others were not."""
    import recorder
    from recorded import Run, begin, read

    interrupted, seconds = iter([0, 1, 1, 1, 1, 1, 1, 1, 1, 1]), iter([1.0, 4, 3, 5, 6])
    monkeypatch.setattr(recorder, "getrusage", lambda who: SimpleNamespace(ru_nivcsw=next(interrupted)))
    assert recorder._round(SimpleNamespace(seconds=lambda: next(seconds))) == 3
    rounds = iter([4.0, 2, 1, 1.05, 9])
    monkeypatch.setattr(recorder, "_round", lambda launch: next(rounds))
    begin(file := tmp_path / "recording.jsonl", Target.preset("cpu"))
    recording = recorder._Recorder(file, 5, nullcontext(), set())
    recording.watched.append([recorder._Running(Run("", "", "", "", ("text",), ()), SimpleNamespace())])
    recording.end()
    (run,) = read(file).points
    assert run.settled and run.measured == 1 and run.rounds == (4, 2, 1, 1.05)
    assert next(rounds) == 9 and not recording.watched


def test_recordings_go_on_where_they_were_cut_off(tmp_path: Path) -> None:
    from recorded import Run, append, begin, read

    begin(file := tmp_path / "recording.jsonl", Target.preset("cpu"))
    append(file, Run("class", "case", "kernel", "", ("text",), (2.0,)))
    with file.open("a") as open_file:
        open_file.write('{"class_": "cl')
    begin(file, Target.preset("gpu"))
    append(file, Run("class", "case", "kernel", "", (), (1.0,)))
    for n in range(3):
        append(file, Run("class", "case", "kernel", f"plan {n}", ("text",), (1.0,)))
    found = read(file)
    assert found.target == Target.preset("cpu") and found.cases == {"case": "class"}
    assert found.points == [Run("class", "case", "kernel", "", ("text",), (2.0, 1.0))]
    assert [[run.plan for run in runs] for runs in found.orders] == [["plan 0", "plan 1", "plan 2"]]


def test_verdicts_of_fixed_rows() -> None:
    from rounds import Round, Timing
    from rows import Contest, Limit

    timing = Timing([Round({"tile": 1.0, "a": 3.0, "b": 0.9}, 1.0)] * 3, 0, 1.0)
    contest = Contest("x", 0.85, lambda _: {})
    assert contest.result(timing).passed and contest.result(timing).measured == 0.9
    assert not Contest("x", 0.95, lambda _: {}).result(timing).passed
    found = Contest("x", 0.85, lambda _: {}, optional=("a", "absent")).result(timing)
    assert "absent is not installed" in found.note and "a is" not in found.note
    apart = Timing([Round({"tile": 0.1, "numpy": 0.05}, 1.0)], 0, 1.0)
    assert Limit("x", 60, "ms", lambda _: {}).result(apart).passed
    assert not Limit("x", 40, "ms", lambda _: {}).result(apart).passed
    assert timing.spread(contest.value) == 0


def test_verdicts_of_classes() -> None:
    from classes import Class
    from classes.table import LARGE, Limits
    from report import Row, verdicts

    class_ = Class(0.5, 1.0, (), Limits(1, 1), share=0.6)
    rows = [Row("c", "slow", 0.5, share=0.1), Row("c", "fast", 2.0, share=0.6, moved=2 * LARGE)]
    (passed,) = verdicts(rows, {"c": class_, "without rows": class_})
    assert passed.passed and passed.worst == 0.5 and passed.mean == pytest.approx(1.0)
    for worse in (Row("c", "x", 0.49), Row("c", "x", 1.0, share=0.5, moved=2 * LARGE), Row("c", "x", problem="wrong")):
        assert not verdicts([*rows, worse], {"c": class_})[0].passed


def _classes() -> list[tuple[str, Any]]:
    sys.path.insert(0, str(BENCH))
    try:
        from classes import cpu, gpu
    finally:
        sys.path.remove(str(BENCH))
    return [(f"{device} {n}", c) for device, m in (("cpu", cpu), ("gpu", gpu)) for n, c in m.CLASSES.items()]


@pytest.mark.parametrize(("name", "class_"), [pytest.param(n, c, id=n) for n, c in _classes()])
def test_draws_repeat_and_are_legal(name: str, class_: Any) -> None:
    from classes import named

    first = class_.sample(name, 1, 24)
    assert [c.name for c in first[:5]] == [c.name for c in class_.sample(name, 1, 5)]
    assert [c.name for c in first] != [c.name for c in class_.sample(name, 2, 24)]
    for case in first:
        assert class_.limits.allow(case.work) and case.work.size > 0
        assert all(s > 0 for shape in case.work.inputs.values() for s in shape)
        assert named(case.name).work == case.work


def _drawn() -> Iterator[Any]:
    """The classes; those all of whose kinds another has are slow."""
    met: set[object] = set()
    for name, class_ in _classes():
        yield pytest.param(name, class_, id=name, marks=[pytest.mark.slow] * met.issuperset(class_.kinds))
        met.update(class_.kinds)


@pytest.mark.parametrize(("name", "class_"), [*_drawn()])
def test_tiny_draws_agree(name: str, class_: Any) -> None:
    """Every kind of each class compiles, and equals the reference evaluator; NumPy's expression does too."""
    from contest import compared, listed
    from on_host import OnHost
    from peers import PEERS

    evaluator = tile.Evaluator("llvm")
    for case in class_.sample(name, 3, len(class_.kinds), largest=TINY):
        ready = OnHost(case, evaluator)
        program = ready.lowered.program
        given = dict(zip((p.name for p in program.inputs), ready.inputs, strict=True))
        expected = tile_lang.evaluate(program, given)
        compared("ours", case.work, ready.outputs, list(expected.values()))
        if "numpy" in class_.peers and "bfloat16" not in case.name:
            for run in PEERS["numpy"].contestants(case.work, ready.inputs).values():
                compared("numpy", case.work, listed(run()), list(expected.values()))


def test_names_that_mean_nothing_are_refused() -> None:
    from classes import named

    with pytest.raises(ValueError, match="no program 'nothing'"):
        named("nothing:m=1")
    with pytest.raises(ValueError, match="no parameter 'q'"):
        named("matmul:q=1")


def test_sizes_lie_beside_powers_of_the_root_of_two() -> None:
    from continuity import grid

    assert grid(16, 32) == [15, 16, 17, 22, 23, 24, 31, 32, 33]


def test_continuity_compares_neighbours_by_work() -> None:
    from classes import Case
    from continuity import Curve, Measured, jumps

    curve = Curve("gemv", lambda s: {"m": s, "n": s}, 16, 32)
    steady = list(jumps("gemv", curve, lambda case: Measured(case.work.size, 0)))
    assert all(f.passed and f.factor == pytest.approx(1) for f in steady) and len(steady) == 8

    def found(copy: float) -> list[str]:
        """What fails where m=24 takes twice as long for each operation, of which a copy takes so much longer."""

        def measured(case: Case) -> Measured:
            more = case.work.size if "m=24," in case.name else 0
            return Measured(case.work.size + more, copy * more)

        return [f.slow for f in jumps("gemv", curve, measured) if not f.passed]

    assert found(copy=0) == found(copy=0.5) == ["gemv:m=24,n=24"] * 2
    assert not found(copy=0.7)


def test_the_roofline_is_the_larger_floor() -> None:
    from roofline import probed

    roofline = probed(lambda: 2.0, {100: 50.0, 1000: 80.0, 10000: 10.0}.__getitem__, (100, 1000, 10000))
    assert roofline.bandwidth == {100: 80.0, 1000: 80.0, 10000: 10.0}
    launched = probed(lambda: 2.0, {100: 50.0}.__getitem__, (100,), lambda: 1.0)
    assert launched.seconds(5e9, 80) == 6 and launched.seconds(1, 500) == 10
    assert roofline.seconds(5e9, 80) == 5 and roofline.seconds(1, 500) == 6.25 and roofline.seconds(1, 1e6) == 1e5


def test_tolerance_grows_with_sums_and_with_rough_dtypes() -> None:
    from classes import named
    from contest import WrongResult, compared, tolerance
    from rows import OURS

    short, long = (named(f"gemv:m=8,n={n}").work for n in (8, 80000))
    half = named("chain:shape=8,dtype=float16").work
    assert tolerance(short) < tolerance(long) < 1e-3 < tolerance(half) < 2e-2
    ones = np.ones(3)
    compared("x", short, [ones], [ones + 1e-7])
    for wrong in (ones + 1e-3, np.full(3, np.nan), np.ones(4)):
        with pytest.raises(WrongResult):
            compared("x", short, [wrong], [ones])
    summed_one_by_one = [ones + 4e-4]
    compared("x", long, summed_one_by_one, [ones])
    with pytest.raises(WrongResult):
        compared(OURS, long, summed_one_by_one, [ones])


def test_programs_and_their_parts_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Every family, drawn small; a program and its parts take the same inputs."""
    import programs
    from classes.draw import Draw

    evaluator = tile.Evaluator("llvm")
    for family in programs.FAMILIES:
        whole = family(Draw("test", family.__name__, largest=TINY))
        row = programs.measured(family.__name__, whole, evaluator, rounds=1)
        assert row.seconds > 0 and row.parts > 0 and row.kernels >= 1, capsys.readouterr()


def test_a_probe_of_tile_registers_multiplies_as_often_as_it_says() -> None:
    from tile_ir.semtree.interpret import launch
    from tile_ir.semtree.verify import verify
    from tile_products import STEP, TileProbe

    probe = TileProbe.of(2 * 3 * STEP + 1, threads=2)
    function = probe._function()
    verify(function)
    sums, ones = np.zeros(2 * 256, np.float32), np.full(256, 0x3F803F80, np.int32)
    launch(function, (2, 1, 1), [sums, ones])
    np.testing.assert_array_equal(sums, 3 * 32)
    assert probe.flops == 2 * 3 * 4 * (2 * 256 * 32)
