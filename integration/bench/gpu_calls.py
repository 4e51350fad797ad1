"""What a warm call with Tensors costs the host on an OpenCL device, and what it takes of the device's memory.

    python integration/bench/gpu_calls.py                    the first OpenCL device
    python integration/bench/gpu_calls.py --device opencl:1 --json calls.json

Enqueueing alone is timed, by the clock and by the thread's own time: on a device that shares its processors with the host the
clock counts kernels, too. The work is waited for between rounds. Allocations are counted after ten warm rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tile_runtime as tile
from tile_hal.interfaces import Device

LIMIT = 15e-6
"""Seconds of host time that one enqueued call may take."""
CALLS, KEPT, ROUNDS, WARM = 100, 10, 21, 10
ADD = tile.Function("function (A, B) -> (C) { C = A + B; }", "add")
STEPS = tile.Function(
    """function (A[M, N], B[M, N]) -> (E) {
        C[i, j : M, M] = +(A[i, k] * B[j, k]); D[i, j : M, M] = +(C[i, k] * C[k, j]); E[i, j : M, N] = +(D[i, k] * A[k, j]); }""",
    "three",
)
Call = Callable[[], tile.Tensor]


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one call."""

    name: str
    seconds: float
    """By the clock, the median of the rounds."""
    thread_seconds: float
    """Of the calling thread, the least of the rounds: without what else the machine does."""
    allocations: float
    """Blocks of memory taken from the device."""


def calls(device: Device) -> dict[str, Callable[[], Call]]:
    """What is timed: each makes a call that returns a result whose end is the end of all calls before it."""
    x, y = (tile.asarray(np.full((8, 8), v, np.float32), device=device) for v in (1.0, 0.5))
    wide, tall = (tile.asarray(np.full((64, 64), v, np.float32), device=device) for v in (1e-2, 1e-3))
    given = tile.Tensor(device, (8, 8), "float32")

    def chained(function: tile.Function, a: tile.Tensor, b: tile.Tensor) -> Call:
        last = [a]

        def call() -> tile.Tensor:
            last[0] = function(last[0], b)
            return last[0]

        return call

    def kept() -> Call:
        results: list[tile.Tensor] = []

        def call() -> tile.Tensor:
            if len(results) == KEPT:
                results.clear()
            results.append(ADD(x, y))
            return results[-1]

        return call

    return {
        "one call, its result dropped": lambda: lambda: ADD(x, y),
        "one call, its result kept": kept,
        "one call, its result given": lambda: lambda: ADD(x, y, out=given),
        "each on the last one's result": lambda: chained(ADD, x, y),
        "three kernels": lambda: chained(STEPS, wide, tall),
    }


def cost(device: Device, name: str, call: Call, count: int) -> Cost:
    """Of one of `count` calls that are enqueued one after the other."""
    for _ in range(WARM):
        _round(call, count)
    before = _allocations(device)
    taken = [_round(call, count) for _ in range(ROUNDS)]
    allocations = (_allocations(device) - before) / (ROUNDS * count)
    return Cost(name, statistics.median(t[0] for t in taken), min(t[1] for t in taken), allocations)


def _round(call: Call, count: int) -> tuple[float, float]:
    start, own = time.perf_counter(), time.thread_time()
    for _ in range(count):
        result = call()
    seconds = time.perf_counter() - start, time.thread_time() - own
    result.wait()
    return seconds[0] / count, seconds[1] / count


def _allocations(device: Device) -> int:
    usage = device.memory.usage
    return usage.allocations if usage is not None else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="such as opencl:1; the first OpenCL device when left out")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args(arguments)
    device = tile.device(options.device or next(d.id for d in tile.devices() if d.id.startswith("opencl:")))
    print(f"{device.id} {device.name}")
    found: list[Cost] = []
    for name, make in calls(device).items():
        for count in (1, CALLS):
            found.append(cost(device, f"{name}, {count} at a time", make(), count))
            print(_line(found[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(c) for c in found], indent=1), encoding="utf-8")
    return 0


def _line(cost: Cost) -> str:
    within = "" if cost.seconds <= LIMIT else f"  above {LIMIT * 1e6:.0f} µs"
    return (
        f"{cost.name:<48} {cost.seconds * 1e6:7.1f} µs, thread {cost.thread_seconds * 1e6:6.1f} µs, "
        f"{cost.allocations:.2f} allocations{within}"
    )


if __name__ == "__main__":
    sys.exit(main())
