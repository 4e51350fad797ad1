"""Calibration: the fit finds a machine behind its times, what is kept is used again, and what fails changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import tile_runtime as tile
from hal_llvm import binding
from hal_llvm.cpu import host_target
from tile_hal.interfaces import Device
from tile_ir.diagnostics import TileDeviceError, TileMachineWarning
from tile_ir.machine import Machine
from tile_ir.stripe.nodes import Block
from tile_opt.model.estimate import estimate
from tile_runtime.cli.app import app
from tile_runtime.measuring import calibration, machines, probing
from tile_runtime.measuring.calibration import Program, Timed, calibrate, fitted, judged
from tile_runtime.measuring.machines import applied, forget, keep, stored
from tile_runtime.measuring.probing import Probe, Trial, probes, trials
from typer.testing import CliRunner


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """The CPU as its document describes it, with a folder of its own and its target put back."""
    monkeypatch.setenv("TILE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(machines, "_probed", {})
    found, processor = tile.device("llvm"), binding.host()
    target = found.target
    described = host_target(processor.triple, processor.features, target.machine.cores).machine
    found.target = replace(target, machine=described)
    yield found
    found.target = target


def times(device: Device, machine: Machine, programs: Sequence[Program]) -> list[Timed[Program]]:
    """Programs as they would be on another machine."""
    target = replace(device.target, machine=machine)
    found: list[Timed[Program]] = []
    for program in programs:
        blocks = [k.stripe for k in calibration._lowered(device, program).kernels.kernels]
        found.append(Timed(program, blocks, sum(estimate(b, target).seconds for b in blocks)))
    return found


def probed(device: Device, machine: Machine) -> list[Timed[Probe]]:
    return times(device, machine, [*probes(device.target.machine)])


def calibrated(device: Device, found: Sequence[Timed[Probe]], judges: Sequence[Timed[Trial]] = ()) -> Machine:
    return judged(device, found, fitted(device, found), judges)


def other(machine: Machine) -> Machine:
    """A machine with another clock, faster memory and a slower last cache."""
    machine = probing.clock(probing.handoff(probing.start(machine, 2.5), 0.5), 1.4)
    machine = probing.read(probing.past(probing.write(machine, 0.6), 0.6), 0.7)
    return probing.rate_of(2)(machine, 1.5)


@pytest.mark.parametrize("cores", [2, 16, 32])
def test_the_fit_finds_the_machine_behind_the_times(device: Device, cores: int) -> None:
    device.target = replace(device.target, machine=replace(device.target.machine, cores=cores))
    found = probed(device, other(device.target.machine))
    target = replace(device.target, machine=calibrated(device, found))
    for timed in found:
        predicted = sum(estimate(b, target).seconds for b in timed.blocks)
        assert predicted == pytest.approx(timed.seconds, rel=0.15), timed.program.name


def test_times_as_predicted_change_nothing(device: Device) -> None:
    machine = device.target.machine
    same = calibrated(device, probed(device, machine))
    assert same.clock_ghz == pytest.approx(machine.clock_ghz, rel=0.03)
    assert same.memory.one_core.read == pytest.approx(machine.memory.one_core.read, rel=0.03)


def test_a_cache_is_not_made_faster_for_what_another_cause_saves(device: Device) -> None:
    """Were the hand-off shorter, and nothing fitted to it, the caches' probes would be shorter, too."""
    machine = replace(device.target.machine, cores=2)
    device.target = replace(device.target, machine=machine)
    found = [t for t in probed(device, probing.handoff(machine, 0.01)) if t.program.name != "hand-off"]
    caches = zip(calibrated(device, found).caches, machine.caches, strict=True)
    assert all(after.bandwidth < 2 * before.bandwidth for after, before in caches)


def test_nothing_changes_by_more_than_the_limit(device: Device) -> None:
    found = [replace(t, seconds=t.seconds * 1e6) for t in probed(device, device.target.machine)]
    machine = calibrated(device, found)
    assert 1.5 < device.target.machine.clock_ghz / machine.clock_ghz <= calibration.MOST * 1.001


def test_what_makes_the_trials_predictions_worse_is_not_taken_over(device: Device) -> None:
    """A probe that was disturbed says that memory is three times as slow: the trials know better."""
    machine = device.target.machine
    judges = times(device, machine, [*trials(machine)][:6])
    disturbed = [replace(t, seconds=t.seconds * 3) for t in probed(device, machine)]
    assert calibrated(device, disturbed) != machine
    assert calibrated(device, disturbed, judges) == machine


def test_what_makes_them_better_is(device: Device) -> None:
    machine = device.target.machine
    slower = probing.clock(machine, 1.4)
    judges = times(device, slower, [*trials(machine)][:6])
    assert calibrated(device, probed(device, slower), judges).clock_ghz == pytest.approx(slower.clock_ghz, rel=0.1)


def test_probes_that_fail_leave_their_numbers(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(device: Device, programs: Sequence[Trial], watch: object) -> list[tuple[Sequence[Block], float]]:
        return [((), float("inf"))] * len(programs)

    monkeypatch.setattr(calibration, "_timed", fails)
    result = calibrate(device)
    assert result.machine == device.target.machine
    assert all(m.seconds == float("inf") for m in (*result.probes, *result.trials))


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
    found = probed(device, other(device.target.machine))

    def timed(device: Device, programs: Sequence[Trial], watch: object) -> list[tuple[Sequence[Block], float]]:
        return [*((t.blocks, t.seconds) for t in found), *[((), float("inf"))] * (len(programs) - len(found))]

    monkeypatch.setattr(calibration, "_timed", timed)
    done = CliRunner().invoke(app, ["calibrate", "--device", "llvm", "--json"])
    document = json.loads(done.stdout)
    assert done.exit_code == 0 and document["device"] == "llvm:0" and Path(document["file"]).exists()
    assert [p["program"] for p in document["probes"]] == [t.program.name for t in found] and document["trials"]
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
