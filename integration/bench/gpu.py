"""Ratios against PyTorch on a GPU: the same work through an OpenCL device and through CUDA, side by side.

    python integration/bench/gpu.py                          a sample of every class, and the fixed rows
    python integration/bench/gpu.py --classes memory --per-class 20 --budget 200
    python integration/bench/gpu.py --case NAME              one case again, by its name in the table
    python integration/bench/gpu.py --classes attention --case NAME    as its class allows it: here with matrix units
    python integration/bench/gpu.py --only "matmul 4096"     fixed rows alone
    python integration/bench/gpu.py --continuity matmul      no cliffs from size to size and layout to layout

Times are the device's own: OpenCL profiling events on one side, CUDA events on the other, so that launch overhead of
neither counts; rounds alternate between the two. Needs an OpenCL GPU device and a CUDA build of PyTorch. Shapes are
drawn by a seed that changes every day.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import continuity
import session
import tile_runtime as tile
from classes import Case, Class, named
from classes.gpu import CLASSES, LIMITS, PEERS
from drawn import Bench
from machine import Probe
from on_gpu import OnGpu, copied
from report import Row, console, row_table
from roofline import probed
from tile_hal.interfaces import Device

FOOTPRINTS = (1 << 22, 1 << 25, 1 << 28, 1 << 31)
FIXED: Mapping[str, tuple[str, bool]] = {
    "matmul 4096": ("matmul:m=4096,k=4096,n=4096", False),
    "matmul 1024": ("matmul:m=1024,k=1024,n=1024", False),
    "matmul 4096 tf32": ("matmul:m=4096,k=4096,n=4096", True),
    "matmul 4096 bf16": ("matmul:m=4096,k=4096,n=4096,dtype=bfloat16", True),
    "matmul 4096 f16": ("matmul:m=4096,k=4096,n=4096,dtype=float16", True),
    "conv + relu": ("conv-relu:n=32,size=224,channels=64", False),
    "chain 2^27": ("chain:shape=134217728", False),
    "softmax rows": ("softmax:shape=8192x8192,over=1", False),
    "layer norm rows": ("layer-norm:shape=8192x8192,over=1", False),
    "sum of rows": ("reduce:shape=8192x8192,over=1", False),
    "sum of columns": ("reduce:shape=8192x8192,over=0", False),
    "transpose": ("permute:shape=8192x8192,order=10", False),
}
"""Rows whose sizes never change -> their case, and whether matrix instructions are allowed."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    device = tile.device(options.device) if options.device else _first()
    evaluators = {reduced: tile.Evaluator(device, reduced_precision=reduced) for reduced in (False, True)}
    found = session.Found(options.seed)
    if options.continuity is not None:
        once = partial(_measured, evaluators[False])
        findings = continuity.found(options.continuity, continuity.GPU_CURVES, continuity.GPU_LAYOUTS, once)
        session.walk(found, findings, options.budget)
        return session.finish(found, CLASSES, options)
    groups = device.target.settings.goal_groups
    arithmetic, nothing = Probe(device, 4 * groups, items=256, steps=4000), Probe(device, 1, steps=1)
    roofline = probed(arithmetic, copied, FOOTPRINTS, nothing.seconds)
    ready = lambda class_, case: OnGpu(case, evaluators[class_.reduced])  # noqa: E731
    bench = Bench(ready, lambda: 1.0, roofline, options.rounds, patience=60, pause=0)
    if options.only is None:
        session.measure(found, bench, CLASSES, options)
    if not (options.classes or options.case):
        rows = list(_fixed(bench, options.only or ""))
        console.print(row_table(rows, "fixed rows"))
        found.rows += rows
    return session.finish(found, CLASSES, options)


def _fixed(bench: Bench, only: str) -> Iterator[Row]:
    for name, (case, reduced) in FIXED.items():
        if only in name:
            yield bench.row(f"fixed: {name}", Class(0.0, None, (), LIMITS, PEERS, reduced=reduced), named(case))


def _measured(evaluator: tile.Evaluator, case: Case) -> continuity.Measured:
    """The best of a few samples."""
    ready = OnGpu(case, evaluator)
    sample = ready.sample()
    return continuity.Measured(min(sample() for _ in range(3)), ready.moved / copied(int(ready.moved)))


def _first() -> Device:
    """The first OpenCL device of the maker that CUDA is of."""
    return next(d for d in tile.devices() if "NVIDIA" in d.name)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    session.add_options(parser, CLASSES)
    parser.add_argument("--device", help="an OpenCL GPU; the first one when left out")
    parser.add_argument("--only", nargs="?", const="", help="fixed rows alone: those whose name contains this")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
