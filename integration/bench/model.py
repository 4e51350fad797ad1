"""How well the cost model knows a device: predicted and measured time of drawn kernels, and of the plans of each.

    python integration/bench/model.py [--device llvm] [--points 300] [--seed 7] [--plans 4] [--calibrate] [--recording FILE]
    python integration/bench/model.py --device opencl --jobs 12 --sets 1     compilations side by side, for a device with processors of its own
    python integration/bench/model.py --recording FILE --seconds 0     nothing is measured: the model of today, by what the file holds

Exit code 0 when 90 % of the kernels are predicted within a factor 1.5 and the median rank correlation over the plans of a
kernel is at least 0.8.

What is measured is in FILE as soon as it is, and what FILE holds is not measured again, so many short calls make a long one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import chain
from pathlib import Path
from statistics import median

import numpy as np
from recorded import AGREE, Recording, Run
from recorder import Wanted, record
from rich.console import Console
from rich.table import Table
from tile_ir.document import from_document
from tile_ir.stripe.parser import parse_block
from tile_ir.target import Target
from tile_opt.model.estimate import Estimate, estimate

WITHIN = 1.5
SHARE, CORRELATION = 0.9, 0.8
DISTINCT = 1.1
"""Plans whose times all lie this close to each other have no order to predict."""
SAME_MEASURED, SAME_PREDICTED = 1.05, 1.02
"""Times this close to each other share a rank: another run would measure another order, and the model knows no smaller differences."""
console = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 140)


@dataclass(frozen=True, slots=True)
class Judged:
    """A run, and what the model says of it."""

    run: Run
    predicted: float
    bound: str
    causes: Mapping[str, float]
    """Predicted seconds by cause, of the kernel and of those that the plan adds."""

    @property
    def ratio(self) -> float:
        return self.predicted / self.run.measured


Order = Sequence[Judged]
"""The plans of one kernel."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    with tempfile.TemporaryDirectory() as folder:
        # Winners of trials must not be found; the processes share what they find out of the device.
        os.environ["TILE_CACHE_DIR"] = folder
        recording = record(_wanted(options, Path(folder)))
    if options.machine:
        document = json.loads(Path(options.machine).read_text(encoding="utf-8"))
        machine = from_document(recording.target.machine, document, "machine")
        recording = replace(recording, target=replace(recording.target, machine=machine))
    return _report([judged(r, recording.target) for r in recording.points], list(_orders(recording)))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="llvm")
    parser.add_argument("--points", type=int, default=300, help="kernels to measure")
    parser.add_argument("--orders", type=int, default=60, help="kernels whose plans are measured")
    parser.add_argument(
        "--plans", type=int, default=5, help="most plans of each of them, drawn evenly from all that are weighed"
    )
    parser.add_argument("--seed", type=int, default=date.today().toordinal(), help="what shapes are drawn from")
    parser.add_argument("--seconds", type=float, default=500, help="no case begins after so long")
    parser.add_argument("--jobs", type=int, default=1, help="processes that compile beside each other")
    parser.add_argument(
        "--sets", type=int, default=2, help="of processes that measure all kernels, one after the other"
    )
    parser.add_argument("--calibrate", action="store_true", help="measure the device first")
    parser.add_argument("--recording", type=Path, metavar="FILE", help="where all is written, and taken from")
    parser.add_argument(
        "--machine", metavar="FILE", help="judge by these numbers, which are laid over the recorded machine"
    )
    return parser.parse_args(arguments)


def _wanted(options: argparse.Namespace, folder: Path) -> Wanted:
    path = options.recording or folder / "recording.jsonl"
    counts = (options.points, options.orders, options.plans, options.seconds, options.jobs, options.sets)
    return Wanted(path, options.device, options.seed, *counts, options.calibrate)


def judged(run: Run, target: Target) -> Judged:
    """The estimate of a run's kernels, all of them together."""
    found = [estimate(parse_block(text), target) for text in run.blocks]
    seconds = sum(e.seconds for e in found) * run.kernels
    return Judged(run, seconds, found[0].bound, _causes(found))


def _causes(estimates: Sequence[Estimate]) -> dict[str, float]:
    found = defaultdict[str, float](float)
    for cause in chain.from_iterable(e.causes for e in estimates):
        found[cause.name] += cause.seconds
    return dict(found)


def _orders(recording: Recording) -> Iterator[Order]:
    """The kernels that have several plans of different speed."""
    for runs in recording.orders:
        times = [run.measured for run in runs]
        if max(times) > DISTINCT * min(times):
            yield [judged(run, recording.target) for run in runs]


def correlation(order: Order) -> float:
    """Spearman's: that of the ranks, equal times sharing theirs."""
    predicted = _ranks([j.predicted for j in order], SAME_PREDICTED)
    measured = _ranks([j.run.measured for j in order], SAME_MEASURED)
    if predicted.std() == 0 or measured.std() == 0:
        return 0.0
    return float(np.corrcoef(predicted, measured)[0, 1])


def _ranks(values: Sequence[float], same: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Places in ascending order; values up to `same` times the least of their group share the middle of their places."""
    first, groups = 0.0, dict[float, float]()
    for value in sorted(values):
        first = value if value > same * first else first
        groups[value] = first
    _, place, often = np.unique([groups[v] for v in values], return_inverse=True, return_counts=True)
    return (np.cumsum(often) - (often - 1) / 2)[place]


def _report(points: Sequence[Judged], orders: Sequence[Order]) -> int:
    groups = defaultdict[str, list[float]](list)
    for point in points:
        groups[point.run.class_].append(point.ratio)
    ranks = defaultdict[str, list[float]](list)
    for order in orders:
        ranks[order[0].run.class_].append(correlation(order))
    table = Table("class", "kernels", "within 1.5", "within 2", "10 %", "median", "90 %", "orders", "rank")
    for name, ratios in {**groups, "all": [p.ratio for p in points]}.items():
        found = ranks[name] if name != "all" else list(chain.from_iterable(ranks.values()))
        low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9)) if ratios else (0.0, 0.0, 0.0)
        within = (f"{_share(ratios, WITHIN):.2f}", f"{_share(ratios, 2):.2f}")
        spread = (f"{low:.2f}", f"{middle:.2f}", f"{high:.2f}")
        table.add_row(name, str(len(ratios)), *within, *spread, str(len(found)), f"{_median(found):.2f}")
    console.print(table)
    unsettled = sum(not p.run.settled for p in points)
    console.print(
        f"predicted / measured, and rank correlation; of {unsettled} kernels the two fastest rounds differ by more than {AGREE:g}"
    )
    share, middle = _share([p.ratio for p in points], WITHIN), _median(list(chain.from_iterable(ranks.values())))
    return 0 if share >= SHARE and middle >= CORRELATION else 1


def _median(correlations: Sequence[float]) -> float:
    return median(correlations) if correlations else 1.0


def _share(ratios: Sequence[float], factor: float) -> float:
    return sum(1 / factor <= r <= factor for r in ratios) / max(1, len(ratios))


if __name__ == "__main__":
    sys.exit(main())
