"""Speed against the peers, as ratios: interleaved, gated on the machine's own speed, on two threads.

    python integration/bench/run.py [--rows matmul,sum] [--rounds 9] [--json FILE]

Exit code 0 when every row holds what is required, otherwise 1.
"""

from __future__ import annotations

import os

THREADS = 2
# Before anything is imported: libraries read these once. The last one puts OpenBLAS's workers to sleep between runs.
os.environ |= {
    n: str(THREADS) for n in ("TILE_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
}
os.environ |= {"OPENBLAS_THREAD_TIMEOUT": "22"}

import argparse  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from dataclasses import asdict, replace  # noqa: E402
from pathlib import Path  # noqa: E402

import compute  # noqa: E402
import gradients  # noqa: E402
import memory  # noqa: E402
import overhead  # noqa: E402
from machine import Probe  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from rounds import measure  # noqa: E402
from rows import Contest, Limit, Result  # noqa: E402

ROWS: dict[str, Contest | Limit] = {
    "matmul": Contest("matmul 1024³ float32", 0.85, compute.matmul),
    "conv": Contest("conv 3×3 + ReLU 32×56×56×64 → 64", 0.85, compute.convolution),
    "chain": Contest("8 elementwise operations, 16 M floats", 2.0, memory.chain),
    "row-sum": Contest("row sums of 4096²", 0.8, memory.sums("row")),
    "column-sum": Contest("column sums of 4096²", 0.8, memory.sums("column")),
    "full-sum": Contest("full sum of 4096²", 0.8, memory.sums("full")),
    "transpose": Contest("transpose of 2048²", 0.8, memory.transpose),
    "stencil": Contest("Laplace operator of four shifts over 2048²", 1.0, memory.stencil),
    "mlp-gradient": Contest("MLP 784-512-512-10, batch 128, forward + backward", 0.6, gradients.mlp),
    "conv-gradient": Contest("conv 3×3 32×56×56×64, forward + backward", 0.6, gradients.convolution),
    "compile": Limit("cold compile of conv + ReLU", 0.4, "s", overhead.cold_compile),
    "scaling": Contest("compiling 60 distinct kernels, per kernel, against 15", 0.84, overhead.scaling),
    "call": Limit("warm call on eight elements", 15, "us", overhead.warm_call),
    "import": Limit("import tile_runtime beyond import numpy", 60, "ms", overhead.importing),
}
console = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 140)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    _two_threads_of_torch()
    probe = Probe(THREADS)
    results: list[Result] = []
    for key, row in ROWS.items():
        if options.rows and not any(key.startswith(r) or key.endswith(r) for r in options.rows.split(",")):
            continue
        with console.status(f"{row.name} …"):
            results.append(_run(row, probe, options))
        console.print(f"[dim]{row.name}: {results[-1].measured:.3g} {results[-1].unit}[/]")
    console.print(table(results))
    if options.json:
        text = json.dumps([asdict(r) for r in results], indent=2, ensure_ascii=False)
        Path("/dev/stdout" if options.json == "-" else options.json).write_text(text + "\n", encoding="utf-8")
    return 0 if all(r.passed for r in results) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", help=f"comma-separated beginnings or ends of row names: {', '.join(ROWS)}")
    parser.add_argument("--rounds", type=int, default=9, help="rounds at full machine speed that each row needs")
    parser.add_argument("--patience", type=float, default=60, help="seconds after which a row takes what it has")
    parser.add_argument("--small", action="store_true", help="small data: to try the benchmark itself")
    parser.add_argument("--json", metavar="FILE", help="also write the results here (- for standard output)")
    return parser.parse_args(arguments)


def _two_threads_of_torch() -> None:
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(THREADS)


def _run(row: Contest | Limit, probe: Probe, options: argparse.Namespace) -> Result:
    try:
        contestants = row.prepare(options.small)
    except ModuleNotFoundError as missing:
        return Result(row.name, "", float("nan"), "", False, f"{missing}; nox -s bench installs it")
    timing = measure(contestants, probe, options.rounds, options.patience)
    return replace(
        row.result(timing), spread=timing.spread(row.value), rounds=len(timing.rounds),
        discarded=timing.discarded, peak=timing.peak,
    )  # fmt: skip


def table(results: Sequence[Result]) -> Table:
    """One line per row: what is required and what was measured."""
    made = Table(title=f"medians on {THREADS} threads", title_justify="left")
    for heading in ("row", "required", "measured", "spread", "rounds", "", "medians"):
        made.add_column(heading, justify="right" if heading in ("required", "measured", "spread", "rounds") else "left")
    for r in results:
        verdict = "[green]pass[/]" if r.passed else "[bold red]fail[/]"
        rounds = f"{r.rounds}" + (f" of {r.rounds + r.discarded}" if r.discarded else "")
        made.add_row(r.name, r.required, f"{r.measured:.3g} {r.unit}", f"± {r.spread:.0%}", rounds, verdict, r.note)
    if results:
        made.caption = f"fastest probe {max(r.peak for r in results):.0f} GFLOP/s of float32 multiply-adds"
    return made


if __name__ == "__main__":
    sys.exit(main())
