"""What is compiled for the first time by a compiler that may crash is compiled in a worker process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="worker processes need Unix sockets")

PLUGIN = '''
"""The interpreter's device with a compiler that ends its process over exponential functions, and writes down where it works."""
import os, signal
from dataclasses import replace

import tile_hal
from tile_hal.builtin.interp import InterpCompiler, InterpDriver, InterpExecutor
from tile_hal.host import HostDevice, HostDeviceSet
from tile_ir.semtree.printer import print_function


class Compiler(InterpCompiler):
    def build(self, kernels):
        with open(os.environ["BUILDS"], "a") as log:
            log.write(f"{os.getpid()}\\n")
        if any("exp(" in print_function(k.function) for k in kernels.kernels):
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().build(kernels)


class Driver(InterpDriver):
    name = "frailc"

    def device_sets(self):
        (group,) = super().device_sets()
        like = group.devices[0]
        able = replace(like.capabilities, compiles_apart=True, loads_outlines=False)
        compiler = Compiler(like.capabilities.nodes)
        return [HostDeviceSet([HostDevice("frailc:0", "Frail", like.target, able, compiler, InterpExecutor())])]


@tile_hal.hookimpl
def tile_hal_driver():
    return Driver()
'''
USE = """
import os, sys
sys.path.insert(0, sys.argv[1])
import frail_compiler, numpy as np, tile_hal, tile_runtime as tile
tile_hal.register(frail_compiler)
a = np.arange(4, dtype=np.float32)
double = tile.Function("function (A) -> (B) { B = A * 2; }")
assert tile.Evaluator("frailc")(double, a).tolist() == [0, 2, 4, 6]
"""
CRASH = """
grow = tile.Function("function (A) -> (B) { B = exp(A); }")
try:
    tile.Evaluator("frailc")(grow, a)
except tile.TileDeviceError as problem:
    assert "died of SIGSEGV" in str(problem) and "while compiling kernels 'kernel_0'" in str(problem), problem
else:
    raise SystemExit("it did not crash")
assert tile.Evaluator("frailc")(tile.Function("function (A) -> (B) { B = A * 3; }"), a)[1] == 3
assert np.allclose(tile.Evaluator("frailc", fallback="interp")(grow, a), np.exp(a))
"""


def run(folder: Path, text: str, **environment: str) -> list[int]:
    """Processes that compiled something, this one as 0."""
    (folder / "frail_compiler.py").write_text(PLUGIN)
    log = folder / "builds"
    log.write_text("")
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "BUILDS": str(log),
        "TILE_CACHE_DIR": str(folder / "c"),
    }
    command = [sys.executable, "-W", "ignore", "-c", text + "print(os.getpid())", str(folder)]
    done = subprocess.run(command, env=env | environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    own = int(done.stdout.split()[-1])
    return [0 if pid == own else pid for pid in map(int, log.read_text().split())]


def test_the_first_time_is_in_a_worker_and_the_second_from_the_cache(tmp_path: Path) -> None:
    (builder,) = run(tmp_path, USE)
    assert builder
    assert run(tmp_path, USE) == []


def test_it_may_be_compiled_here(tmp_path: Path) -> None:
    assert run(tmp_path, USE, TILE_COMPILE_APART="0") == [0]


def test_without_a_cache_it_is_in_a_worker_each_time(tmp_path: Path) -> None:
    assert [bool(b) for b in run(tmp_path, USE, TILE_CACHE="off")] == [True]


def test_a_compiler_that_crashes_is_an_error_and_the_next_program_works(tmp_path: Path) -> None:
    assert 0 not in run(tmp_path, USE + CRASH)
