"""How well the cost model knows a device: predicted and measured time of drawn kernels, and of the plans of each.

    python integration/bench/model.py [--device llvm] [--points 300] [--seed 7] [--plans 4] [--calibrate] [--json FILE]
    python integration/bench/model.py --device opencl --jobs 12 --processes 1     compilations side by side, for a device with processors of its own

Exit code 0 when 90 % of the kernels are predicted within a factor 1.5 and the median rank correlation over the plans of a
kernel is at least 0.8.

Runs that the system interrupts do not count, as far as others are not. Kernels whose two fastest rounds differ by more than
a tenth are measured again, up to sixteen rounds; how many those were, and how many differ still, is printed. All that is
done by two processes, one after the other, and the fastest round counts: where a process's memory lies decides, too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import date
from itertools import chain
from math import inf
from multiprocessing import get_context
from resource import RUSAGE_SELF, getrusage
from statistics import median

os.environ["TILE_CACHE"] = "off"  # winners of trials must not be remembered, nor found

import numpy as np
import tile_runtime as tile
from classes import Class, Work
from classes.cpu import CLASSES as ON_HOST
from classes.gpu import CLASSES as ON_GPU
from rich.console import Console
from rich.table import Table
from tile_hal.interfaces import Device
from tile_ir.diagnostics import TileError
from tile_ir.stripe.nodes import Block
from tile_ir.target import Target
from tile_opt.kernel.view import open_kernel
from tile_opt.model.estimate import Estimate, estimate
from tile_opt.passes import create
from tile_opt.passes.scheduling import SchedulingPass
from tile_opt.plan.text import print_plans
from tile_runtime.lowered import Lowered
from tile_runtime.measuring import calibration
from tile_runtime.measuring.measure import Launch, launches
from tile_runtime.measuring.tuning import measure

WITHIN = 1.5
SHARE, CORRELATION = 0.9, 0.8
LONGEST, ELEMENTS = 0.05, 2e7
"""Seconds, by a rough count, and elements of all inputs beyond which a case is left out: noise grows with them."""
ROUNDS, LATER = 5, 6
"""Runs of a kernel when its case is drawn, and again with each of so many further cases: what disturbs a machine often lasts longer
than one kernel. The best run counts."""
AGREE, MOST = 1.1, 16
"""Times the fastest round that the second fastest may take, and rounds after which a kernel whose do not agree is left as it is."""
DISTINCT = 1.1
"""Plans whose times all lie this close to each other have no order to predict."""
SAME_MEASURED, SAME_PREDICTED = 1.05, 1.02
"""Times this close to each other share a rank: another run would measure another order, and the model knows no smaller differences."""
APART = 1 << 16
"""Between the seeds of processes."""
Alone = AbstractContextManager[object]
"""Held while the device runs."""
console = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 140)


@dataclass(frozen=True, slots=True)
class Point:
    """One kernel of a case."""

    class_: str
    case: str
    kernel: str
    predicted: float
    measured: float
    bound: str
    causes: Mapping[str, float]
    """Predicted seconds by cause."""
    rounds: tuple[float, ...] = ()
    """The fastest run of each round, the fastest of all first."""
    again: int = 0
    """How many of them there were because the others did not agree."""

    def with_rounds(self, rounds: Sequence[float]) -> Point:
        """The point with further rounds."""
        found = tuple(sorted((*self.rounds, *rounds)))
        return replace(self, rounds=found, measured=found[0])

    @property
    def settled(self) -> bool:
        """Two rounds took the same."""
        return len(self.rounds) > 1 and self.rounds[1] < AGREE * self.rounds[0]

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured


@dataclass(frozen=True, slots=True)
class Tried:
    """A plan of a kernel that was run."""

    plan: str
    predicted: float
    measured: float
    causes: Mapping[str, float]
    """Predicted seconds by cause, of the kernel and of those that the plan adds."""


@dataclass(frozen=True, slots=True)
class Order:
    """The plans of one kernel."""

    case: str
    kernel: str
    tried: tuple[Tried, ...]

    @property
    def correlation(self) -> float:
        """Spearman's: that of the ranks, equal times sharing theirs."""
        predicted = _ranks([t.predicted for t in self.tried], SAME_PREDICTED)
        measured = _ranks([t.measured for t in self.tried], SAME_MEASURED)
        if predicted.std() == 0 or measured.std() == 0:
            return 0.0
        return float(np.corrcoef(predicted, measured)[0, 1])


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    points, orders = _measured(options, nullcontext()) if options.jobs == 1 else _side_by_side(options)
    for _ in range(options.processes - 1):
        points = _together(points, _side_by_side(argparse.Namespace(**{**vars(options), "orders": 0}))[0])
    return _report(points, orders, options)


def _together(points: Sequence[Point], others: Sequence[Point]) -> list[Point]:
    """The points with the rounds of other processes."""
    more = {(p.case, p.kernel): p for p in others}
    return [p.with_rounds(more[p.case, p.kernel].rounds) if (p.case, p.kernel) in more else p for p in points]


def _side_by_side(options: argparse.Namespace) -> tuple[list[Point], list[Order]]:
    """The same by several processes, each with cases of its own, one of which at a time has the device."""
    context, jobs = get_context("spawn"), options.jobs
    share = {"points": -(-options.points // jobs), "orders": -(-options.orders // jobs)}
    parts = [argparse.Namespace(**{**vars(options), **share, "seed": options.seed + APART * n}) for n in range(jobs)]
    with ProcessPoolExecutor(jobs, context, initializer=_hold, initargs=(context.Lock(),)) as pool:
        found = list(pool.map(_part, parts))
    return [p for points, _ in found for p in points], [o for _, orders in found for o in orders]


def _hold(lock: Alone) -> None:
    """In a process of several: what it holds while the device runs."""
    _held.append(lock)


_held: list[Alone] = []


def _part(options: argparse.Namespace) -> tuple[list[Point], list[Order]]:
    return _measured(options, _held[0])


def _measured(options: argparse.Namespace, alone: Alone) -> tuple[list[Point], list[Order]]:
    device = tile.device(options.device)
    if options.calibrate:
        with alone:
            device.target = replace(device.target, machine=calibration.calibrate(device).machine)
    watched: list[list[_Running]] = []
    orders: list[Order] = []
    end = time.monotonic() + options.budget
    for class_, case, low in _cases(device, options):
        if sum(map(len, watched)) >= options.points or time.monotonic() > end:
            break
        watched.append(list(_started(class_, case, low)))
        with alone:
            for running in chain.from_iterable(watched[-LATER - 1 :]):
                running.measure()
            for running in chain.from_iterable(watched[-LATER - 1 : -LATER]):
                running.settle()
        if len(orders) < options.orders:
            orders += _orders(case, low, options.plans, alone)
    with alone:
        for running in chain.from_iterable(watched[-LATER:]):
            running.settle()
    return [running.point for running in chain.from_iterable(watched)], orders


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="llvm")
    parser.add_argument("--points", type=int, default=300, help="kernels to measure")
    parser.add_argument("--orders", type=int, default=60, help="kernels whose plans are measured")
    parser.add_argument(
        "--plans", type=int, default=5, help="most plans of each of them, drawn evenly from all that are weighed"
    )
    parser.add_argument("--seed", type=int, default=date.today().toordinal(), help="what shapes are drawn from")
    parser.add_argument("--budget", type=float, default=500, metavar="SECONDS", help="no case begins after this")
    parser.add_argument("--jobs", type=int, default=1, help="processes that compile beside each other")
    parser.add_argument("--processes", type=int, default=2, help="that measure all kernels, one after the other")
    parser.add_argument("--calibrate", action="store_true", help="measure the device first")
    parser.add_argument("--json", metavar="FILE", help="also write all points here")
    return parser.parse_args(arguments)


def _cases(device: Device, options: argparse.Namespace) -> Iterator[tuple[str, str, Lowered]]:
    """(class, case, compilation) in turn from every class."""
    classes: Mapping[str, Class] = ON_GPU if device.target.machine.is_gpu else ON_HOST
    rate = 1e12 if device.target.machine.is_gpu else 2e10 * device.target.machine.cores
    drawn = {n: c.cases(n, options.seed) for n, c in classes.items() if not n.startswith("calls")}
    while True:
        for name, cases in drawn.items():
            case = next(cases)
            if case.work.operations > rate * LONGEST or case.work.elements > ELEMENTS or case.work.gradients:
                continue
            try:
                yield name, case.name, _lowered(case.work, device)
            except TileError as problem:
                console.print(f"{case.name}: {str(problem).splitlines()[0]}")


def _lowered(work: Work, device: Device) -> Lowered:
    inputs = [tile.placeholder(work.dtype_of(n), shape, name=n) for n, shape in work.inputs.items()]
    return tile.Function(work.tile).lower(*inputs, device=device)


@dataclass(slots=True)
class _Running:
    """A kernel that may be measured again, by itself: what the estimate is of."""

    point: Point
    launch: Launch | None

    def measure(self) -> None:
        """One more round."""
        if self.launch is not None:
            self.point = self.point.with_rounds([_round(self.launch)])

    def settle(self) -> None:
        """The last rounds: as many as it takes until two agree."""
        while not self.point.settled and len(self.point.rounds) < MOST:
            self.measure()
            self.point = replace(self.point, again=self.point.again + 1)
        self.launch = None


def _round(launch: Launch) -> float:
    """The fastest of some runs, without those during which the system gave a processor of ours to somebody else."""
    free, others = list[float](), list[float]()
    for _ in range(ROUNDS):
        before = getrusage(RUSAGE_SELF).ru_nivcsw
        seconds = launch.seconds()
        (free if getrusage(RUSAGE_SELF).ru_nivcsw == before else others).append(seconds)
    return min(free or others)


def _started(class_: str, case: str, low: Lowered) -> Iterator[_Running]:
    """Each kernel of a case once."""
    kernels = {kernel.stripe.name: kernel.stripe for kernel in low.kernels.kernels}
    seen: set[str] = set()
    for launch in launches(low):
        if launch.kernel not in kernels or launch.kernel in seen:
            continue
        seen.add(launch.kernel)
        found = estimate(kernels[launch.kernel], low.target)
        yield _Running(Point(class_, case, launch.kernel, found.seconds, inf, found.bound, _causes([found])), launch)


def _causes(estimates: Sequence[Estimate]) -> dict[str, float]:
    found = defaultdict[str, float](float)
    for cause in chain.from_iterable(e.causes for e in estimates):
        found[cause.name] += cause.seconds
    return dict(found)


def _orders(case: str, low: Lowered, plans: int, alone: Alone) -> Iterator[Order]:
    """The kernels of a case that have several plans of different speed."""
    by_kernel = defaultdict[str, list[Tried]](list)
    for trial in measure(low, plans, alone=alone, spread=True).trials:
        first = trial.kernels[0]
        if trial.measured:
            built = first.scheduler.build(first.view, trial.plan, low.target)
            found = [_predicted(block, low.target) for block in (built.kernel, *built.before, *built.after)]
            predicted = sum(e.seconds for e in found) * len(trial.kernels)
            text = print_plans({trial.kernel: trial.plan})
            by_kernel[trial.kernel].append(Tried(text, predicted, trial.seconds, _causes(found)))
    for kernel, tried in by_kernel.items():
        times = [t.measured for t in tried]
        if len(tried) > 2 and max(times) > DISTINCT * min(times):
            yield Order(case, kernel, tuple(tried))


def _predicted(block: Block, target: Target) -> Estimate:
    """Of a kernel: of one in normal form, which a plan added, as the target's last pass schedules it."""
    view, last = open_kernel(block), create(target.passes[-1])
    chosen = last.choose(view, target) if view is not None and isinstance(last, SchedulingPass) else None
    return estimate(block if chosen is None else chosen[1].kernel, target)


def _ranks(values: Sequence[float], same: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Places in ascending order; values up to `same` times the least of their group share the middle of their places."""
    first, groups = 0.0, dict[float, float]()
    for value in sorted(values):
        first = value if value > same * first else first
        groups[value] = first
    _, place, often = np.unique([groups[v] for v in values], return_inverse=True, return_counts=True)
    return (np.cumsum(often) - (often - 1) / 2)[place]


def _report(points: Sequence[Point], orders: Sequence[Order], options: argparse.Namespace) -> int:
    table = Table("class", "kernels", "within 1.5", "within 2", "10 %", "median", "90 %")
    groups = defaultdict[str, list[float]](list)
    for point in points:
        groups[point.class_].append(point.ratio)
    for name, ratios in {**groups, "all": [p.ratio for p in points]}.items():
        low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9))
        within = (f"{_share(ratios, WITHIN):.2f}", f"{_share(ratios, 2):.2f}")
        table.add_row(name, str(len(ratios)), *within, f"{low:.2f}", f"{middle:.2f}", f"{high:.2f}")
    console.print(table)
    again, unsettled = sum(p.again > 0 for p in points), sum(not p.settled for p in points)
    console.print(f"{again} measured again; of {unsettled} the two fastest rounds still differ by more than {AGREE:g}")
    share = _share([p.ratio for p in points], WITHIN)
    correlation = median(o.correlation for o in orders) if orders else 1.0
    console.print(
        f"predicted / measured; rank correlation over the plans of {len(orders)} kernels: median {correlation:.2f}"
    )
    if options.json:
        document = {"points": [asdict(p) for p in points], "orders": [asdict(o) for o in orders]}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
    return 0 if share >= SHARE and correlation >= CORRELATION else 1


def _share(ratios: Sequence[float], factor: float) -> float:
    return sum(1 / factor <= r <= factor for r in ratios) / max(1, len(ratios))


if __name__ == "__main__":
    sys.exit(main())
