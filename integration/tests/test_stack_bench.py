"""The benchmark itself: it runs, and its gate and verdicts are right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from stack import ROOT

BENCH = ROOT / "integration" / "bench"


def test_it_runs_and_reports(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, str(BENCH / "run.py"), "--small", "--rounds", "1", "--rows", "matmul,call,row-sum"]
    done = subprocess.run([*command, "--json", str(report)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode in (0, 1), done.stderr
    rows = json.loads(report.read_text("utf-8"))
    assert [r["unit"] for r in rows] == ["x", "x", "us"]
    for row in rows:
        assert row["rounds"] >= 1 and row["peak"] > 1 and row["measured"] > 0
    assert done.returncode == (0 if all(r["passed"] for r in rows) else 1)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


@pytest.mark.usefixtures("bench")
def test_rounds_of_a_slow_machine_do_not_count() -> None:
    import rounds

    speeds = iter([100.0] * 20 + [100, 99, 50, 100, 100, 60, 98, 97] + [100.0] * 99)
    timing = rounds.measure({"tile": lambda: 1.0, "peer": lambda: 2.0}, lambda: next(speeds), 3, patience=30)
    assert len(timing.rounds) == 3 and timing.discarded == 2
    assert timing.median("peer") == 2.0


@pytest.mark.usefixtures("bench")
def test_verdicts() -> None:
    from rounds import Round, Timing
    from rows import Contest, Limit

    timing = Timing([Round({"tile": 1.0, "a": 3.0, "b": 0.9}, 1.0)] * 3, 0, 1.0)
    contest = Contest("x", 0.85, lambda _: {})
    assert contest.result(timing).passed and contest.result(timing).measured == 0.9
    assert not Contest("x", 0.95, lambda _: {}).result(timing).passed
    apart = Timing([Round({"tile": 0.1, "numpy": 0.05}, 1.0)], 0, 1.0)
    assert Limit("x", 60, "ms", lambda _: {}).result(apart).passed
    assert not Limit("x", 40, "ms", lambda _: {}).result(apart).passed
    assert timing.spread(contest.value) == 0
