"""Tuning: several plans of each kernel are measured, failures are survived, winners are kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock

import numpy as np
import pytest
import tile_runtime as tile
from tile_hal import Device
from tile_hal.disk_cache import DiskCache
from tile_ir.diagnostics import Diagnostic
from tile_ir.stripe.nodes import Block
from tile_opt.plan.text import parse_plans
from tile_runtime.lowered import Lowered
from tile_runtime.measuring import tuning, winners
from tile_runtime.measuring.measure import Launch, kernel_seconds

TWICE = "function (A[M, L], B[L, N]) -> (C, D) { C[i, j : M, N] = +(A[i, k] * B[k, j]); D[x, y : M, N] = +(B[x, z] * A[z, y]); }"
MIXED = "function (A[M, L], B[L, N]) -> (C, D) { C[i, j : M, N] = +(A[i, k] * B[k, j]); D[x : M] = >(A[x, y]); }"
A = np.arange(64, dtype=np.float32).reshape(8, 8)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def low(planned: Device, matmul: tile.Function) -> Lowered:
    return matmul.lower(A, A, device=planned)


def hold(monkeypatch: pytest.MonkeyPatch, best: int, broken: Sequence[int] = ()) -> None:
    """Kernels take 1 s, 2 s with pieces of another size than `best`; those of `broken` sizes fail."""

    def seconds(self: Launch) -> float:
        self.prepared.run(self.buffers).wait()
        size = rows_of(self)
        if size in broken:
            raise tile.TileDeviceError(Diagnostic("TILE-D000", "out of luck"))
        return 1.0 if size == best else 2.0

    monkeypatch.setattr(Launch, "seconds", seconds)


def sizes(trials: Sequence[tuning.Trial]) -> list[int]:
    return [t.plan.levels[0].covers[0].size for t in trials]


def test_kernels_are_timed_one_by_one(planned: Device) -> None:
    made = tile.Function(MIXED).lower(A, A, device=planned)
    times = kernel_seconds(made, rounds=1)
    assert list(times) == [k.name for k in made.kernels.kernels] and all(s > 0 for s in times.values())


def test_the_fastest_plan_wins(low: Lowered, monkeypatch: pytest.MonkeyPatch) -> None:
    hold(monkeypatch, best=8)
    tuned = tuning.measure(low, 3)
    assert sizes(tuned.trials) == [8, 4, 2] and [t.own for t in tuned.trials] == [False, True, False]
    assert [c.size for c in tuned.lowered.plans["kernel_0"].levels[0].covers] == [8]
    np.testing.assert_array_equal(tuned.lowered.executable.run_arrays([A, A])[0], A @ A)


def test_no_more_plans_than_asked_for(low: Lowered, monkeypatch: pytest.MonkeyPatch) -> None:
    hold(monkeypatch, best=8)
    assert sizes(tuning.measure(low, 2).trials) == [4, 2]
    assert tuning.measure(low, 1).lowered is low


def test_plans_may_be_drawn_from_all_that_are_weighed(low: Lowered, monkeypatch: pytest.MonkeyPatch) -> None:
    hold(monkeypatch, best=8)
    every = tuning.measure(low, 1000).trials
    some = tuning.measure(low, 3, spread=True).trials
    order = [t.plan for t in sorted(every, key=lambda t: not t.own)]
    assert 2 <= len(some) <= 3 and {str(t.plan) for t in some} <= {str(p) for p in order}


def test_kernels_run_while_the_device_is_held(low: Lowered, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Lock()
    found: list[bool] = []

    def seconds(self: Launch) -> float:
        found.append(held.locked())
        return 1.0

    monkeypatch.setattr(Launch, "seconds", seconds)
    tuning.measure(low, 2, alone=held)
    assert found and all(found) and not held.locked()


def rows_of(launch: Launch) -> int:
    """Iterations of the outermost loop of a launch's kernel."""
    (kernel,) = launch.prepared.kernel_list.kernels
    block = kernel.stripe.body[0]
    assert isinstance(block, Block)
    return next(i.range for i in block.indexes if i.value is None)


def test_hopeless_plans_run_twice(low: Lowered, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    def seconds(self: Launch) -> float:
        size = rows_of(self)
        runs.append(size)
        return {4: 1.0, 2: 11.0, 8: 9.0}[size]

    monkeypatch.setattr(Launch, "seconds", seconds)
    tuned = tuning.measure(low, 3)
    assert runs.count(2) == 2 and runs.count(4) == runs.count(8) == 6
    assert [t.seconds for t in tuned.trials] == [1.0, 9.0, 11.0] and tuned.lowered is low


def test_a_plan_whose_first_run_was_interrupted_runs_on(low: Lowered, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    def seconds(self: Launch) -> float:
        size = rows_of(self)
        runs.append(size)
        return 100.0 if size == 2 and runs.count(2) == 1 else {4: 1.0, 2: 0.5, 8: 9.0}[size]

    monkeypatch.setattr(Launch, "seconds", seconds)
    assert [t.seconds for t in tuning.measure(low, 3).trials] == [0.5, 1.0, 9.0] and runs.count(2) == 6


def test_each_kernel_has_its_own_winner(planned: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    low = tile.Function(MIXED).lower(A, A, device=planned)

    def seconds(self: Launch) -> float:
        self.prepared.run(self.buffers).wait()
        block = next(k.stripe for k in self.prepared.kernel_list.kernels if k.stripe.name == self.kernel)
        size = next(i.range for i in block.body[0].indexes if i.value is None)  # pyright: ignore
        return 1.0 if size == {"kernel_0": 2, "kernel_1": 8}[self.kernel] else 2.0

    monkeypatch.setattr(Launch, "seconds", seconds)
    tuned = tuning.measure(low, 3)
    assert {n: p.levels[0].covers[0].size for n, p in tuned.lowered.plans.items()} == {"kernel_0": 2, "kernel_1": 8}


def test_equal_kernels_share_trials_and_winner(planned: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    low = tile.Function(TWICE).lower(A, A, device=planned)
    hold(monkeypatch, best=2)
    tuned = tuning.measure(low, 3)
    assert len(tuned.trials) == 3 and len(tuned.trials[0].kernels) == 2
    covers = {n: p.levels[0].covers[0] for n, p in tuned.lowered.plans.items()}
    assert {n: (c.loop, c.size) for n, c in covers.items()} == {"kernel_0": ("i", 2), "kernel_1": ("x", 2)}


def test_given_plans_are_kept(low: Lowered, monkeypatch: pytest.MonkeyPatch) -> None:
    hold(monkeypatch, best=8)
    given = low.planned(parse_plans("plan kernel_0 {\n serial i:3\n}"))
    tuned = tuning.measure(given, 3)
    assert tuned.lowered is given and not tuned.trials


def test_plans_that_fail_are_survived(low: Lowered, monkeypatch: pytest.MonkeyPatch) -> None:
    hold(monkeypatch, best=8, broken=[8])
    tuned = tuning.measure(low, 3)
    assert tuned.lowered is low
    assert [t.failure is None for t in tuned.trials] == [True, True, False]
    hold(monkeypatch, best=8, broken=[4])
    with pytest.raises(tile.TileDeviceError, match="out of luck"):
        tuning.measure(low, 3)


def test_the_winner_is_stored_even_when_interrupted(low: Lowered, monkeypatch: pytest.MonkeyPatch) -> None:
    decision = low.compiled.decisions["kernel_0"]
    assert winners.find(low, decision, 3) is None
    hold(monkeypatch, best=8)

    def impatient(trials: Sequence[tuning.Trial], done: int, total: int) -> None:
        assert done <= total == 18
        if done > 3 and trials[-1].measured:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuning.measure(low, 3, impatient)
    monkeypatch.setattr(tuning, "measure", None)  # the stored one is taken, nothing is measured again
    assert [c.size for c in tuning.best(low, 3).plans["kernel_0"].levels[0].covers] == [8]
    assert winners.find(low, decision, 4) is None, "more plans are wanted than were tried"


def test_winners_are_those_of_equal_kernels_anywhere(
    low: Lowered, planned: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(monkeypatch, best=2)
    tuning.measure(low, 3)
    monkeypatch.setattr(tuning, "measure", None)
    other = tile.Function("function (P[M, L], Q[L, N]) -> (R) { R[a, b : M, N] = +(P[a, c] * Q[c, b]); }")
    found = tuning.best(other.lower(A, A, device=planned), 3)
    (plan,) = found.plans.values()
    assert [(c.loop, c.size) for c in plan.levels[0].covers] == [("a", 2)]
    assert (
        winners.find(low.retargeted(replace(low.target, name="other")), low.compiled.decisions["kernel_0"], 3) is None
    )


@pytest.mark.parametrize(
    "stored",
    [
        b"no json",
        b"[]",
        json.dumps({"trials": 9}).encode(),
        json.dumps({"trials": 9, "plan": "plan winner {\n  sereal loop0:2\n}"}).encode(),
        json.dumps({"trials": 9, "plan": "plan another {}"}).encode(),
        json.dumps({"trials": 9, "plan": "plan winner {\n  serial loop7:2\n}"}).encode(),
        json.dumps({"trials": 9, "plan": "plan winner {\n  grid loop0:99999\n  group loop0:1\n}"}).encode(),
    ],
)
def test_a_stored_winner_that_does_not_fit_is_a_warning(
    low: Lowered, stored: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DiskCache, "read", lambda self, key: stored)  # pyright: ignore
    with pytest.warns(tile.TilePlanWarning, match="kept for kernel 'kernel_0' is not used"):
        assert winners.find(low, low.compiled.decisions["kernel_0"], 3) is None


def test_an_evaluator_with_trials(planned: Device, matmul: tile.Function, monkeypatch: pytest.MonkeyPatch) -> None:
    hold(monkeypatch, best=2)
    evaluator = tile.Evaluator(planned, tile_trials=3)
    np.testing.assert_array_equal(evaluator(matmul, A, A), A @ A)
    assert [c.size for c in evaluator.lower(matmul, A, A).plans["kernel_0"].levels[0].covers] == [2]
