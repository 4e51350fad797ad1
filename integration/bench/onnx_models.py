"""``python integration/bench/onnx_models.py MODEL.onnx…``: models beside ONNX Runtime, interleaved, on random inputs.

Without a model the networks inside the onnx package. An open dimension is 1, or what ``--dim NAME=SIZE`` says; a
model may bring its own after a colon: ``model.onnx:H=480,W=640`` (``x.1=512`` is dimension 1 of input x).
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tile_onnx
from rich.console import Console
from rich.table import Table
from tile_onnx.model import Model

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
REST = 0.15
"""Seconds that let the threads of either side go to sleep: ONNX Runtime's wait for work by spinning, longer than others."""
COLUMNS = ("model", "ratio", "±", "ms", "peer ms", "error", "load CPU s", "ready CPU s", "kernels")


@dataclass(frozen=True)
class Row:
    """One model: seconds of each round, largest difference over the largest value, CPU seconds until ready, kernels."""

    name: str
    ours: Sequence[float]
    peers: Sequence[float]
    error: float
    load: float
    ready: float
    kernels: int

    @property
    def ratio(self) -> float:
        """The peer's time over ours."""
        return statistics.median(p / o for o, p in zip(self.ours, self.peers, strict=True))

    @property
    def cells(self) -> tuple[str, ...]:
        ratios = [p / o for o, p in zip(self.ours, self.peers, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        times = (f"{1e3 * statistics.median(t):.3f}" for t in (self.ours, self.peers))
        spread = f"{(high - low) / 2 / middle:.0%}"
        return (self.name, f"{self.ratio:.2f}", spread, *times, f"{self.error:.1e}", f"{self.load:.2f}", f"{self.ready:.2f}", str(self.kernels))  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="files, each with sizes of its own after a colon")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE", help="the size of an open dimension")
    parser.add_argument("--threads", type=int, default=2, help="of both sides")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    os.environ["TILE_NUM_THREADS"] = str(options.threads)  # read when the device is opened
    table = Table(*COLUMNS, title=f"ONNX Runtime {onnxruntime.__version__}, {options.threads} threads")
    rows: list[Row] = []
    for text in options.models or sorted(map(str, LIGHT.glob("*.onnx"))):
        path, _, own = text.partition(":")
        row = measured(
            Path(path), sizes([*options.dim, *filter(None, own.split(","))]), options.threads, options.rounds
        )
        print(*row.cells, flush=True)
        rows.append(row)
        table.add_row(*row.cells)
    Console().print(table)
    mean = math.exp(statistics.fmean(math.log(r.ratio) for r in rows))
    print(f"geometric mean {mean:.2f}, worst {min(r.ratio for r in rows):.2f}")
    return 0


def sizes(texts: Sequence[str]) -> Mapping[str, int]:
    """What dimensions are: ``["W=320"]`` as a mapping."""
    return {name: int(size) for name, _, size in (t.rpartition("=") for t in texts)}


def measured(path: Path, known: Mapping[str, int], threads: int, rounds: int) -> Row:
    """A model's row."""
    load, model = _cpu_seconds(lambda: tile_onnx.load(path))
    feeds = _feeds(model, known)
    ready, found = _cpu_seconds(lambda: model.run(feeds))
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = threads, 3
    session: Any = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    wanted: Sequence[Any] = session.run(None, feeds)
    error = max(_difference(a, b) for a, b in zip(found.values(), wanted, strict=True))
    ours, peers = _interleaved(lambda: model.run(feeds), lambda: session.run(None, feeds), rounds)
    return Row(path.stem, ours, peers, error, load, ready, len(model.profile(feeds)))


def _feeds(model: Model, known: Mapping[str, int]) -> dict[str, Any]:
    """Random inputs; an open dimension is one of the `known`, by its name or its place, or 1."""
    open_ones = [a for a in model.inputs if any(not isinstance(d, int) for d in a.shape or ())]
    shapes = {a.name: tuple(_size(a.name, k, d, known) for k, d in enumerate(a.shape or ())) for a in open_ones}
    return model.random_feeds(shapes)


def _size(name: str, place: int, dimension: int | str | None, known: Mapping[str, int]) -> int:
    own = known.get(f"{name}.{place}")
    if own is not None:
        return own
    return dimension if isinstance(dimension, int) else known.get(str(dimension), 1)


def _interleaved(
    ours: Callable[[], object], peer: Callable[[], object], rounds: int
) -> tuple[list[float], list[float]]:
    """Seconds a call, of each in turn; short calls are repeated within a round."""
    times = (max(1, int(0.02 / max(1e-6, _wall(work)))) for work in (ours, peer))
    jobs = [(work, count, list[float]()) for work, count in zip((ours, peer), times, strict=True)]
    for _ in range(rounds):
        for work, count, seconds in jobs:
            time.sleep(REST)
            work()
            seconds.append(_wall(lambda work=work, count=count: [work() for _ in range(count)]) / count)
    return jobs[0][2], jobs[1][2]


def _wall(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _cpu_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    made = work()
    return time.process_time() - start, made


def _difference(ours: Any, wanted: Any) -> float:
    """The largest difference, over the largest value."""
    a, b = (np.asarray(v, np.float64) for v in (ours, wanted))
    return float(np.abs(a - b).max(initial=0) / max(1e-30, np.abs(b).max(initial=0)))


if __name__ == "__main__":
    raise SystemExit(main())
