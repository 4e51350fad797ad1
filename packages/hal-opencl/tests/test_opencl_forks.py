"""Forked children of a process that uses OpenCL: a clear error at once, whatever the parent was doing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

SCRIPT = """
import os, signal, sys, threading
import tile_hal
from tile_ir.diagnostics import TileDeviceError

HOW = sys.argv[1]
found = tile_hal.devices("opencl")
if not found:
    sys.exit(77)
device = found[0]


def run():
    first, second = (device.memory.allocate(4096) for _ in range(2))
    first.map_discard()[:] = bytes([7]) * 4096
    first.unmap().wait()
    copied = device.executor.copy(first, second, [device.executor.fill(second)])
    return second.map_current([copied])[4095]


def keep(running):
    while True:
        run()
        running.set()


if HOW != "probed":
    assert run() == 7
if HOW == "busy":
    running = threading.Event()
    threading.Thread(target=keep, args=(running,), daemon=True).start()
    running.wait()
child = os.fork()
if child == 0:
    signal.alarm(100)  # rather than hang
    try:
        code = 4 if run() == 7 else 5
    except TileDeviceError as problem:
        code = 3 if "does not survive a fork" in str(problem) and problem.diagnostics[0].hint else 6
    sys.exit(code) if HOW == "exits" else os._exit(code)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)
"""


def child(how: str, **environment: str) -> int:
    """The exit code of a child: 3 for a clear error, 4 for the right result."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    command = [sys.executable, "-c", SCRIPT, how]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    if done.returncode == 77:
        pytest.skip("no OpenCL device")
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


@pytest.mark.parametrize("how", ["probed", "busy", "exits"])
def test_a_forked_child_is_told_so(how: str) -> None:
    assert child(how, TILE_ISOLATE="") == 3


def test_a_forked_child_computes_with_a_worker_of_its_own() -> None:
    assert child("busy", TILE_ISOLATE="opencl") == 4
