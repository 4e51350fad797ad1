"""Calibration: the fit finds a machine behind its times, what is kept is used again, and what fails changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import tile_runtime as tile
from tile_hal.interfaces import Device
from tile_ir.diagnostics import TileDeviceError, TileMachineWarning
from tile_ir.machine import Machine
from tile_ir.stripe.nodes import Block
from tile_opt.model.estimate import estimate
from tile_runtime import calibration, machines
from tile_runtime.calibration import Probe, calibrate, fitted, probes
from tile_runtime.cli.app import app
from tile_runtime.machines import applied, forget, keep, stored
from typer.testing import CliRunner

Timed = tuple[Sequence[Block], float]


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """The CPU, with a folder of its own and its target put back."""
    monkeypatch.setenv("TILE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(machines, "_probed", {})
    found = tile.device("llvm")
    target = found.target
    yield found
    found.target = target


def times(device: Device, machine: Machine) -> list[tuple[Probe, Sequence[Block], float]]:
    """The probes as they would be on another machine."""
    target = replace(device.target, machine=machine)
    found: list[tuple[Probe, Sequence[Block], float]] = []
    for probe in probes(device.target.machine):
        blocks = [k.stripe for k in calibration._lowered(device, probe).kernels.kernels]
        found.append((probe, blocks, sum(estimate(b, target).seconds for b in blocks)))
    return found


def other(machine: Machine) -> Machine:
    """A machine with another clock, faster memory and a slower last cache."""
    machine = calibration._clock(calibration._handoff(calibration._start(machine, 2.5), 0.5), 1.4)
    machine = calibration._read(calibration._write(machine, 0.6), 0.7)
    return calibration._cache(2)(machine, 1.5)


@pytest.mark.parametrize("cores", [2, 16, 32])
def test_the_fit_finds_the_machine_behind_the_times(device: Device, cores: int) -> None:
    device.target = replace(device.target, machine=replace(device.target.machine, cores=cores))
    found = times(device, other(device.target.machine))
    target = replace(device.target, machine=fitted(device, found))
    for probe, blocks, seconds in found:
        assert sum(estimate(b, target).seconds for b in blocks) == pytest.approx(seconds, rel=0.15), probe.name


def test_times_as_predicted_change_nothing(device: Device) -> None:
    machine = device.target.machine
    same = fitted(device, times(device, machine))
    assert same.clock_ghz == pytest.approx(machine.clock_ghz, rel=0.03)
    assert same.memory.one_core.read == pytest.approx(machine.memory.one_core.read, rel=0.03)


def test_a_cache_is_not_made_faster_for_what_another_cause_saves(device: Device) -> None:
    """Were the hand-off shorter, and nothing fitted to it, the caches' probes would be shorter, too."""
    machine = replace(device.target.machine, cores=2)
    device.target = replace(device.target, machine=machine)
    found = [f for f in times(device, calibration._handoff(machine, 0.01)) if f[0].name != "hand-off"]
    caches = zip(fitted(device, found).caches, machine.caches, strict=True)
    assert all(after.bandwidth < 2 * before.bandwidth for after, before in caches)


def test_nothing_changes_by_more_than_the_limit(device: Device) -> None:
    found = [(p, b, s * 1e6) for p, b, s in times(device, device.target.machine)]
    machine = fitted(device, found)
    assert 1.5 < device.target.machine.clock_ghz / machine.clock_ghz <= calibration.MOST * 1.001


def test_probes_that_fail_leave_their_numbers(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Timed:
        return (), float("inf")

    monkeypatch.setattr(calibration, "_timed", fails)
    result = calibrate(device)
    assert result.machine == device.target.machine
    assert all(m.seconds == float("inf") for m in result.measured)


def test_a_device_that_runs_nothing_cannot_be_measured() -> None:
    with pytest.raises(TileDeviceError, match="runs nothing"):
        calibrate(tile.device("null"))


def test_what_is_kept_is_used_by_the_next_process_and_can_be_forgotten(device: Device) -> None:
    probed, machine = device.target.machine, other(device.target.machine)
    keep(device, machine)
    assert device.target.machine == machine
    device.target = replace(device.target, machine=probed)  # as a new process finds it
    assert applied(device).target.machine == machine
    assert forget(device) and device.target.machine == probed
    assert not forget(device) and applied(device).target.machine == probed


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"machine": {"clocks": 3}}', '{"machine": {"clock_ghz": "fast"}}']
)
def test_a_damaged_calibration_is_a_warning(device: Device, text: str) -> None:
    path = stored(device)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    before = device.target
    with pytest.warns(TileMachineWarning, match="damaged"):
        assert applied(device).target == before


def test_the_command_measures_keeps_and_forgets(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {p.name: (b, s) for p, b, s in times(device, other(device.target.machine))}

    def timed(_: Device, probe: Probe) -> Timed:
        return found[probe.name]

    monkeypatch.setattr(calibration, "_timed", timed)
    done = CliRunner().invoke(app, ["calibrate", "--device", "llvm", "--json"])
    document = json.loads(done.stdout)
    assert done.exit_code == 0 and document["device"] == "llvm:0" and Path(document["file"]).exists()
    assert [p["probe"] for p in document["probes"]] == list(found)
    shown = CliRunner().invoke(app, ["calibrate", "--device", "llvm"])
    assert shown.exit_code == 0 and "arithmetic" in shown.stdout
    assert "forgotten" in CliRunner().invoke(app, ["calibrate", "--forget", "--device", "llvm"]).stdout
    assert "nothing" in CliRunner().invoke(app, ["calibrate", "--forget", "--device", "llvm"]).stdout


def test_results_do_not_depend_on_a_calibration(device: Device) -> None:
    import numpy as np

    a, b = (np.random.default_rng(0).random((65, 33)).astype(np.float32) for _ in range(2))
    product = tile.Function("function (A[M, K], B[N, K]) -> (C) { C[i, j : M, N] = +(A[i, k] * B[j, k]); }")
    first = product(a, b, device=device)
    keep(device, other(device.target.machine))
    assert np.array_equal(first, product(a, b, device=device))
