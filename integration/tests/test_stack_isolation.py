"""Real drivers in worker processes: conformance, and evaluators that outlive a crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import tile_hal
import tile_runtime as tile
from tile_ir.diagnostics import TileDeviceError

DRIVERS = [name for name in ("llvm", "opencl") if name in tile_hal.drivers() and tile_hal.devices(name)]
SAMPLE = "level0 or level1 or (level4 and matmul) or temporaries or outlives or out_of_memory"

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="worker processes need Unix sockets")


@pytest.fixture(params=DRIVERS)
def evaluator(request: pytest.FixtureRequest) -> tile.Evaluator:
    return tile.Evaluator(request.param, isolate=True)


@pytest.mark.parametrize("driver", [*DRIVERS[:1], *(pytest.param(d, marks=pytest.mark.slow) for d in DRIVERS[1:])])
def test_the_suite_passes_in_a_worker(driver: str) -> None:
    """A sample; the session `isolated` of noxfile.py runs all of it."""
    command = [sys.executable, "-m", "tile_hal.conformance", "--backend", driver, "--examples", "3", "--", "-k", SAMPLE]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TILE_ISOLATE": driver}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


SOFTMAX = tile.Function("""
function (A[M, N]) -> (S) {
    X[m, 0 : M, 1] = >(A[m, n]);
    E = exp(A - X);
    T[m, 0 : M, 1] = +(E[m, n]);
    S = E / T;
}""")


def test_the_same_bits_as_in_this_process(evaluator: tile.Evaluator) -> None:
    a = np.random.default_rng(0).standard_normal((37, 53)).astype(np.float32)
    plain = tile.Evaluator(evaluator.device.id)
    assert evaluator(SOFTMAX, a).tobytes() == plain(SOFTMAX, a).tobytes()
    gradient = tile.vjp(SOFTMAX, "A")
    assert evaluator(gradient, a, a).tobytes() == plain(gradient, a, a).tobytes()


def test_evaluators_share_a_worker(evaluator: tile.Evaluator) -> None:
    assert tile.Evaluator(evaluator.device.id, isolate=True).device is evaluator.device
    assert tile.Evaluator(evaluator.device).device is evaluator.device


def test_tensors_and_programs_outlive_their_worker(evaluator: tile.Evaluator) -> None:
    a = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    t = tile.asarray(a, evaluator.device)
    before = evaluator(SOFTMAX, t)
    first = before.numpy()
    worker = evaluator.device.compiler._link.worker()  # type: ignore[attr-defined]
    os.kill(worker._process.pid, signal.SIGKILL)
    assert worker._over.wait(100)
    if isinstance(before.buffer, tile_hal.HostBuffer):
        assert before.numpy().tobytes() == first.tobytes()
        assert evaluator(SOFTMAX, t).numpy().tobytes() == first.tobytes()
    assert evaluator(SOFTMAX, a).tobytes() == first.tobytes()
    assert evaluator.device.compiler._link.worker() is not worker  # type: ignore[attr-defined]


def test_a_tensor_of_this_process_is_not_one_of_the_worker(evaluator: tile.Evaluator) -> None:
    a = np.zeros((2, 2), np.float32)
    plain = tile.Evaluator(evaluator.device.id)
    with pytest.raises(TileDeviceError, match=f"{plain.device.id}, the call runs on {plain.device.id} in a worker"):
        evaluator(SOFTMAX, tile.asarray(a, plain.device))
    moved = tile.asarray(tile.asarray(a, plain.device), evaluator.device)
    assert evaluator(SOFTMAX, moved).numpy().tolist() == [[0.5, 0.5]] * 2


def test_composition_updates_its_tensors(evaluator: tile.Evaluator) -> None:
    add = tile.Function("function (A, B) -> (C) { C = A + B; }")
    weights = tile.asarray(np.ones(4, np.float32), evaluator.device)
    x = tile.placeholder("float32", (4,), "x")
    y = add(x, weights)
    step = tile.compose([x], [y], updates=[(weights, y)])
    for _ in range(3):
        result = evaluator(step, np.ones(4, np.float32))
    assert result.tolist() == [4] * 4 and weights.numpy().tolist() == [4] * 4
