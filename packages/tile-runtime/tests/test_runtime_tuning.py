"""Tuning: several schedules are measured, failures are survived, winners are kept."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tile_hal
import tile_runtime as tile
from tile_hal.host_queue import HostEvent
from tile_ir.diagnostics import Diagnostic
from tile_ir.target import PassConfig
from tile_runtime import hazards, tuning, winners
from tile_runtime.executable import Executable


def test_trials_choose_among_right_schedules(matmul: tile.Function) -> None:
    a, b = np.random.default_rng(3).random((2, 48, 48), np.float32)
    evaluator = tile.Evaluator("llvm", tile_trials=4)
    np.testing.assert_allclose(evaluator(matmul, a, b), a @ b, rtol=1e-5)
    trials = tuning.measure(tile.Evaluator("llvm").lower(matmul, a, b), 9)
    assert len(trials) > 2
    for trial in trials:
        np.testing.assert_allclose(trial.lowered.executable.run_arrays([a, b])[0], a @ b, rtol=1e-5)


def test_tiles_of_matrix_instructions_are_varied(matmul: tile.Function) -> None:
    """Register files and caches do not matter to them: the number of multiprocessors does."""
    target = tile.device("interp").target
    gpu = replace(
        target,
        settings=replace(target.settings, threads=256, use_global=False, max_mem=49152, buffer_align=128, cores=132),
        model={**target.model, "reduced_precision": True, "matrix": ["mma_m16n8k8_tf32"], "subgroup": 32},
        passes=tuple(PassConfig(name) for name in ("inline", "fuse", "merge", "accumulate", "tensor_tile", "gpu_tile")),
    )
    groups: set[tuple[int, int, int]] = set()
    for _, varied in tuning.targets(gpu):
        a, b = (tile.placeholder("float32", (512, 512), name=n) for n in "AB")
        (kernel,) = matmul.lower(a, b, device="interp").retargeted(varied).kernels.kernels
        groups.add(kernel.groups)
    assert len(groups) >= 3


def test_schedules_that_fail_are_survived(matmul: tile.Function, monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.ones((40, 40), np.float32)
    base = tile.Evaluator("llvm").lower(matmul, a, a)
    run = Executable.run_tensors

    def fragile(self: Executable, *arguments: Any) -> Any:
        if self is not base.executable:
            raise tile.TileDeviceError(Diagnostic("TILE-D000", "out of luck"))
        return run(self, *arguments)

    monkeypatch.setattr(Executable, "run_tensors", fragile)
    trials = tuning.measure(base, 4)
    assert len(trials) > 1 and trials[0].lowered is base
    assert [t.failure is None for t in trials] == [True] + [False] * (len(trials) - 1)


def test_a_schedule_that_fails_does_not_fail_those_after_it(
    matmul: tile.Function, late: tile_hal.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with several kernels: what is waited for has failed, while the rest of the same work is pending yet."""
    a = np.ones((8, 8), np.float32)
    base = tile.Evaluator(late).lower(matmul, a, a)
    run, broken, held = Executable.run_tensors, list[Executable](), HostEvent()

    def fragile(self: Executable, tensors: Any, out: Any) -> Any:
        if self is not base.executable and (not broken or self in broken):
            broken.append(self)
            results = run(self, tensors, out)
            for tensor in results:
                tensor.wait()
                hazards.written(tensor, held)
            threading.Timer(0.1, lambda: held.fail(RuntimeError("out of luck, too"))).start()
            raise tile.TileDeviceError(Diagnostic("TILE-D000", "out of luck"))
        return run(self, tensors, out)

    monkeypatch.setattr(Executable, "run_tensors", fragile)
    trials = tuning.measure(base, 4)
    assert len(trials) > 2
    assert [t.failure is None for t in trials] == [True] * (len(trials) - 1) + [False]


def test_the_winner_is_stored_even_when_interrupted(matmul: tile.Function, monkeypatch: pytest.MonkeyPatch) -> None:
    a = np.ones((44, 44), np.float32)
    base = tile.Evaluator("llvm").lower(matmul, a, a)
    assert winners.find(base, 3) is None

    def impatient(trials: Sequence[tuning.Trial]) -> None:
        if trials[-1].seconds < float("inf"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tuning.measure(base, 3, impatient)
    monkeypatch.setattr(tuning, "measure", None)  # the stored one is taken, nothing is measured again
    np.testing.assert_allclose(tuning.best(base, 3).executable.run_arrays([a, a])[0], a @ a)
