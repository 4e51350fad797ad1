"""`tile conformance --performance`: shapes, shares, reports and exit codes. What is fast is no matter of tests."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tile_lang
from tile_hal.conformance import __main__ as conformance
from tile_ir.diagnostics import TileDeviceError
from tile_ir.dtype import from_numpy
from tile_ir.program.nodes import TensorType
from tile_runtime.function import Function
from tile_runtime.performance import measuring, run
from tile_runtime.performance.command import main
from tile_runtime.performance.kernels import SMALL, TASKS, Task, drawn
from tile_runtime.performance.report import DeviceReport, Measurement, Peaks, PerformanceReport, RunFacts

BRIEF = 1e-4


def values(task: Task, shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    kinds = {name: task.dtypes.get(name, "float32") for name in shapes}
    return {
        name: rng.integers(0, 9, shape).astype(kinds[name]) if kinds[name] == "int32" else rng.random(shape, np.float32)
        for name, shape in shapes.items()
    }


@pytest.mark.parametrize(("task", "factors"), drawn(3), ids=lambda value: getattr(value, "name", "drawn"))
def test_a_kernel_is_what_its_text_says(task: Task, factors: tuple[float, float, float]) -> None:
    inputs = values(task, dict(task.dims(measuring.FIRST, *factors)))
    types = {name: TensorType(from_numpy(value.dtype), value.shape) for name, value in inputs.items()}
    (expected,) = tile_lang.evaluate(tile_lang.bind(tile_lang.parse(task.source), types), inputs).values()
    np.testing.assert_allclose(Function(task.source)(**inputs, device="llvm"), expected, rtol=1e-4, atol=1e-5)


def test_shapes_are_drawn_by_the_seed() -> None:
    assert len(TASKS) >= 12 and len({task.name for task in TASKS}) == len(TASKS)
    assert drawn(1) == drawn(1) and drawn(1) != drawn(2)
    assert [task.name for task, _ in drawn(1, ["copy"])] == ["copy"]
    assert drawn(1, ["copy"])[0] in drawn(1)  # whatever else is measured


def test_all_kernels_on_a_device(tmp_path: Path) -> None:
    report = run("llvm", seconds=BRIEF, json=tmp_path / "r.json", markdown=tmp_path / "r.md")
    assert report.passed
    document = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert document["backend"] == "llvm" and document["seed"] == 0 and document["versions"]["tile-runtime"]
    rows = document["devices"][0]["kernels"]
    assert [row["name"] for row in rows] == [task.name for task in TASKS]
    assert all(row["share"] > 0 and row["bound"] in ("arithmetic", "memory", "start") for row in rows)
    assert all(part["causes"] and part["measured"] > 0 for row in rows for part in row["parts"])
    text = (tmp_path / "r.md").read_text("utf-8")
    assert "# Performance of `llvm`" in text and "Peaks: " in text and text.count("### ") == 3
    assert all(f"| {task.name} |" in text for task in TASKS)


def test_a_device_without_a_machine_is_its_own_measure() -> None:
    (device,) = run("interp", seconds=BRIEF, kernels=["copy", "cast"]).devices
    assert not device.peaks.stated and max(device.share(m) for m in device.kernels) == pytest.approx(1.0)


def test_a_kernel_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(low: Any) -> Any:
        raise TileDeviceError("the chip is on fire", code="TILE-E706")

    monkeypatch.setattr(measuring, "launches", fail)
    assert main(["--backend", "interp", "--kernels", "copy"]) == 1
    assert "| copy | error TILE-E706: the chip is on fire |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "nonesuch"], "there is no device 'nonesuch'"),
        (["--backend", "null"], "no device here that runs anything"),
        (["--backend", "llvm", "--kernels", "fast"], "there is no kernel fast; there are matmul"),
        (["--backend", "llvm", "--plugin", "no_such_module"], "no_such_module"),
        (
            ["--backend", "llvm", "--kernels", "cast", "--seconds", "0.0001", "--json", "/no/such/folder/r.json"],
            "/no/such",
        ),
    ],
)
def test_mistakes_are_sentences(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "deed", ["raise ValueError('no such chip')", "import sys; sys.exit('no such chip')", "chip = 'no such chip' +"]
)
def test_a_plugin_that_fails_at_its_import_is_a_sentence(
    deed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken_chip.py").write_text(deed)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_chip", raising=False)
    assert main(["--backend", "chip", "--plugin", "broken_chip"]) == 2
    said = capsys.readouterr().err
    assert "broken_chip" in said and "Traceback" not in said and len(said.splitlines()) <= 2


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--backend", "llvm", "--seconds", "-1"], ["--backend", "llvm", "--seed", "x"]):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert left.value.code == 2
    capsys.readouterr()


def test_the_suite_finds_it_by_its_entry_point(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Point:
        def load(self) -> Any:
            return lambda arguments: 7 if arguments == ["--backend", "x"] else 8

    monkeypatch.setattr(conformance, "entry_points", lambda group: [Point()])
    assert conformance.main(["--performance", "--backend", "x"]) == 7
    monkeypatch.setattr(conformance, "entry_points", lambda group: [])
    assert conformance.main(["--backend", "x", "--performance"]) == 2
    assert "dev.py install tile-runtime" in capsys.readouterr().err


# --- shares ------------------------------------------------------------------------------------------

PEAKS = Peaks(1e9, (1e8, 5e7), 1e-6, True, ((1 << 20, 1e9, 1e9),))
RUN = Measurement("x", "", {}, 1.0, 1.0, operations=10**8, read=10**8, written=10**6)


@pytest.mark.parametrize(
    ("measured", "bound", "floor"),
    [
        (RUN, "memory", 1.02),
        (replace(RUN, operations=10**10), "arithmetic", 10.0),
        (replace(RUN, operations=0, read=0, written=0, launches=3), "start", 3e-6),
        (replace(RUN, operations=0, read=10**5, written=10**5), "memory", 2e-4),  # from the cache
    ],
)
def test_what_bounds_a_run(measured: Measurement, bound: str, floor: float) -> None:
    name, seconds = PEAKS.floor(measured)
    assert name == bound and seconds == pytest.approx(floor)


def test_the_lowest_are_explained_and_small_calls_last() -> None:
    rows = (
        replace(RUN, name="slow", seconds=100.0),
        replace(RUN, name="fast", seconds=1.1),
        replace(RUN, name=SMALL, seconds=1e4),
    )
    device = DeviceReport("x:0", "X", "", False, PEAKS, (*rows, Measurement("broken", "", problem="why")))
    assert [m.name for m in device.lowest] == ["slow", "fast", SMALL]
    report = PerformanceReport(RunFacts("x", 0, 0.1), (device,))
    text = report.to_markdown()
    assert "| broken | why | | | | | not measured | |" in text and not report.passed
    assert "### slow: 1.0%" in text and "share above 100 %" not in text
