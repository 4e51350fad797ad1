"""`tile bench`."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tile_runtime.cli.common import (
    Device,
    Isolate,
    Json,
    Named,
    Plan,
    Reduced,
    Shapes,
    lowered,
    print_json,
    print_pairs,
    random_inputs,
    read_any,
)
from tile_runtime.cli.progress import measuring, waiting

if TYPE_CHECKING:
    from tile_runtime.lowered import Lowered


def bench(
    file: Named,
    shape: Shapes = [],  # noqa: B006 - typer copies it
    device: Device = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, help="How long to measure.")] = 1.0,
    plan: Plan = None,
    reduced: Reduced = False,
    isolate: Isolate = False,
    json: Json = False,
) -> None:
    """Time a function on random inputs that stay on the device: median of many calls, FLOP/s and bytes per second."""
    from tile_runtime.tensor import asarray

    function = read_any(file)
    start = time.perf_counter()
    with waiting("compiling"):
        low = lowered(function, shape, device, reduced, plan, isolate=isolate)
        executable = low.executable
    compiled = time.perf_counter() - start
    tensors = [asarray(array, low.device) for array in random_inputs(low.program)]
    out = executable.run_tensors(tensors, [None] * len(executable.outputs))
    times: list[float] = []
    began = time.perf_counter()
    with measuring(seconds) as show:
        while not times or time.perf_counter() < began + seconds:
            start = time.perf_counter()
            for tensor in executable.run_tensors(tensors, out):
                tensor.wait()
            times.append(time.perf_counter() - start)
            show(start - began)
    facts = _facts(low, compiled, times)
    print_json(facts) if json else print_pairs(facts)


def _facts(low: Lowered, compiled: float, times: list[float]) -> dict[str, Any]:
    from tile_ir.kernels import StepKind

    median = statistics.median(times)
    launched = [low.kernels.kernels[s.kernel] for s in low.kernels.steps if s.kind is StepKind.KERNEL]
    return {
        "device": low.device.id,
        "kernels": len(launched),
        "compile_seconds": round(compiled, 6),
        "calls": len(times),
        "median_seconds": float(f"{median:.4g}"),
        "best_seconds": float(f"{min(times):.4g}"),
        "gflops": round(sum(k.flops for k in launched) / median / 1e9, 3),
        "gbytes_per_second": round(sum(k.bytes for k in launched) / median / 1e9, 3),
    }
