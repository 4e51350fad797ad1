"""Rows about what surrounds the computation: compiling, calling, importing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from itertools import count

import numpy as np
import tile_runtime as tile
from compute import CONV
from rounds import Contestant

CALLS = 3_000
COLD = """
import importlib, pkgutil, time
begin = time.perf_counter()
for name in {libraries!r}:
    importlib.import_module(name)
for name in {packages!r}:
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(package.__path__, name + "."):
        if not any(part in found.name for part in ("conformance", "__main__", "cli")):
            importlib.import_module(found.name)
import tile_runtime as tile
imported = time.perf_counter()
function = tile.Function.from_file({path!r})
shapes = ({shape}, (3, 3, {channels}, {channels}))
lowered = function.lower(*(tile.placeholder("float32", s, n) for s, n in zip(shapes, "DK")), device="llvm")
lowered.executable
print(imported - begin, time.perf_counter() - imported)
"""
LIBRARIES = ("numpy", "lark", "islpy", "llvmlite.binding")
PACKAGES = ("tile_ir", "tile_lang", "tile_opt", "tile_hal", "hal_llvm", "tile_runtime")


def cold_compile(small: bool) -> Mapping[str, Contestant]:
    """From source text to machine code in a fresh process; importing is over before the clock starts."""
    channels = 16 if small else 64
    names = {"libraries": LIBRARIES, "packages": PACKAGES}
    code = COLD.format(path=str(CONV), shape=(32, 56, 56, channels), channels=channels, **names)
    return {"tile": lambda: float(_fresh(code, TILE_CACHE="off").split()[1])}


def scaling(small: bool) -> Mapping[str, Contestant]:
    """CPU seconds per kernel of compiling one program of 60 distinct layers (tile) and one of 15 (15 kernels)."""
    fewer, more = (3, 12) if small else (15, 60)
    turn = count()
    return {
        "tile": lambda: _compiled(more, next(turn)) / more,
        f"{fewer} kernels": lambda: _compiled(fewer, next(turn)) / fewer,
    }


def _compiled(layers: int, turn: int) -> float:
    """CPU seconds from Tile text to machine code; the widths span the same range for every number of layers."""
    widths = [64 + turn % 16 + 60 * i // layers for i in range(layers + 1)]
    heads = ", ".join(f"W{i}[N{i}, N{i + 1}]" for i in range(layers))
    body = " ".join(
        f"H{i}[b, o : B, N{i + 1}] = +(R{i}[b, k] * W{i}[k, o]); R{i + 1} = relu(H{i} + {i}.5);" for i in range(layers)
    )
    function = tile.Function(f"function (R0[B, N0], {heads}) -> (R{layers}) {{ {body} }}")
    shapes = {"R0": (8, widths[0]), **{f"W{i}": (widths[i], widths[i + 1]) for i in range(layers)}}
    inputs = [tile.placeholder("float32", shape, name) for name, shape in shapes.items()]
    start = time.process_time()
    tile.device("llvm").compiler.build(function.lower(*inputs, device="llvm").kernels)
    return time.process_time() - start


def warm_call(small: bool) -> Mapping[str, Contestant]:
    """Eight floats in and out, everything compiled: seconds of one call."""
    add = tile.Function("function (A, B) -> (C) { C = A + B; }")
    a = np.arange(8, dtype=np.float32)
    calls = 100 if small else CALLS

    def run() -> float:
        start = time.perf_counter()
        for _ in range(calls):
            add(a, a)
        return (time.perf_counter() - start) / calls

    np.testing.assert_array_equal(add(a, a), a + a)
    return {"tile": run}


def importing(small: bool) -> Mapping[str, Contestant]:
    """`import tile_runtime` and `import numpy`, each in a fresh process."""
    del small
    return {"tile": lambda: _import_seconds("tile_runtime"), "numpy": lambda: _import_seconds("numpy")}


def _import_seconds(name: str) -> float:
    return float(_fresh(f"import time; t = time.perf_counter(); import {name}; print(time.perf_counter() - t)"))


def _fresh(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout
