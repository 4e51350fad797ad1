"""The rows whose sizes never change: what every version is compared by."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace

import compute
import gradients
import jobs
import large
import memory
import overhead
import waves
from machine import Probe
from report import console
from restarting import restarting
from rich.table import Table
from rounds import measure
from rows import Contest, Growth, Limit, Result

ROWS: dict[str, Contest | Limit | Growth] = {
    "matmul": Contest("matmul 1024³ float32", 0.85, compute.matmul),
    "conv": Contest("conv 3×3 + ReLU 32×56×56×64 → 64", 0.85, compute.convolution),
    "chain": Contest("8 elementwise operations, 16 M floats", 2.0, memory.chain),
    "row-sum": Contest("row sums of 4096²", 0.8, memory.sums("row")),
    "column-sum": Contest("column sums of 4096²", 0.8, memory.sums("column")),
    "full-sum": Contest("full sum of 4096²", 0.8, memory.sums("full")),
    "transpose": Contest("transpose of 2048²", 0.8, memory.transpose),
    "stencil": Contest("Laplace operator of four shifts over 2048²", 1.0, memory.stencil),
    "wave-64": Contest("wave equation 64², 1000 steps", 0.7, waves.wave(64)),
    "wave-512": Contest("wave equation 512², 1000 steps", 1.0, waves.wave(512)),
    "rounds": Limit("10⁴ trivial rounds of a loop", 10, "ms", waves.trivial),
    "mlp-gradient": Contest("MLP 784-512-512-10, batch 128, forward + backward", 0.6, gradients.mlp),
    "conv-gradient": Contest("conv 3×3 32×56×56×64, forward + backward", 0.6, gradients.convolution),
    "compile": Limit("cold compile of conv + ReLU", 0.4, "s", overhead.cold_compile),
    "restart-network": Limit("ResNet-50 from the disk cache, CPU seconds", 0.6, "s", restarting("resnet")),
    "restart-kernels": Limit("60 kernels from the disk cache, CPU seconds", 0.4, "s", restarting("kernels")),
    "scaling": Contest("compiling 60 distinct kernels, per kernel, against 15", 0.84, overhead.scaling),
    **jobs.ROWS,
    **large.ROWS,
    "call": Limit("warm call on eight elements", 4, "us", overhead.warm_call("arrays")),
    "output": Limit("warm call on eight elements, output given", 4, "us", overhead.warm_call("output")),
    "tensors": Limit("warm call on eight elements in Tensors", 3, "us", overhead.warm_call("tensors")),
    "import": Limit("import tile_runtime beyond import numpy", 60, "ms", overhead.importing),
}


def results(probe: Probe, options: argparse.Namespace) -> Iterator[Result]:
    """Of the rows whose names begin or end as asked."""
    for key, row in ROWS.items():
        if options.rows and not any(key.startswith(r) or key.endswith(r) for r in options.rows.split(",")):
            continue
        with console.status(f"{row.name} …"):
            result = _run(row, probe, options)
        console.print(f"[dim]{row.name}: {result.measured:.3g} {result.unit}[/]")
        yield result


def _run(row: Contest | Limit | Growth, probe: Probe, options: argparse.Namespace) -> Result:
    try:
        contestants = row.prepare(options.small)
    except ModuleNotFoundError as missing:
        return Result(row.name, "", float("nan"), "", False, f"{missing}; nox -s bench installs it")
    timing = measure(contestants, probe, options.rounds, options.patience)
    return replace(
        row.result(timing), spread=timing.spread(row.value), rounds=len(timing.rounds),
        discarded=timing.discarded, peak=timing.peak,
    )  # fmt: skip


def table(results: Sequence[Result], threads: int) -> Table:
    """One line per row: what is required and what was measured."""
    made = Table(title=f"medians on {threads} threads", title_justify="left")
    for heading in ("row", "required", "measured", "spread", "rounds", "", "medians"):
        made.add_column(heading, justify="right" if heading in ("required", "measured", "spread", "rounds") else "left")
    for r in results:
        verdict = "[green]pass[/]" if r.passed else "[bold red]fail[/]"
        rounds = f"{r.rounds}" + (f" of {r.rounds + r.discarded}" if r.discarded else "")
        made.add_row(r.name, r.required, f"{r.measured:.3g} {r.unit}", f"± {r.spread:.0%}", rounds, verdict, r.note)
    if results:
        made.caption = f"fastest probe {max(r.peak for r in results):.0f} GFLOP/s of float32 multiply-adds"
    return made
