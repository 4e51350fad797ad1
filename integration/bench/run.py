"""Speed against the peers, as ratios: interleaved, gated on the machine's own speed, on two threads.

    python integration/bench/run.py                        a sample of every class, and the fixed rows
    python integration/bench/run.py --classes matmul,conv  of these classes alone
    python integration/bench/run.py --case NAME            one case again, by its name in the table
    python integration/bench/run.py --rows matmul,call     fixed rows alone
    python integration/bench/run.py --continuity matmul    no cliffs from size to size and layout to layout

Shapes are drawn by a seed that changes every day; --seed repeats a run. Exit code 0 when every row and class holds
what is required, otherwise 1.
"""

from __future__ import annotations

import os

THREADS = 2
# Before anything is imported: libraries read these once. The last one puts OpenBLAS's workers to sleep between runs.
os.environ |= {
    n: str(THREADS) for n in ("TILE_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
}
os.environ |= {"OPENBLAS_THREAD_TIMEOUT": "22", "TILE_CACHE": "off"}
for forced in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # would make NumPy slower than it is
    os.environ.pop(forced, None)

import argparse  # noqa: E402
import sys  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from functools import partial  # noqa: E402

import continuity  # noqa: E402
import fixed  # noqa: E402
import session  # noqa: E402
import tile_runtime as tile  # noqa: E402
from classes import Case  # noqa: E402
from classes.cpu import CLASSES  # noqa: E402
from drawn import Bench  # noqa: E402
from machine import Probe, copied, numpy_copied  # noqa: E402
from on_host import OnHost, repeated  # noqa: E402
from report import console  # noqa: E402
from roofline import probed  # noqa: E402


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    _two_threads_of_torch()
    probe, evaluator = Probe.of_cpu(THREADS), tile.Evaluator("llvm")
    found = session.Found(options.seed)
    if options.continuity is not None:
        once = partial(_measured, evaluator)
        findings = continuity.found(options.continuity, continuity.CPU_CURVES, continuity.CPU_LAYOUTS, once)
        session.walk(found, findings, options.budget)
    elif options.rows is None:
        roofline = probed(probe, partial(copied, evaluator=evaluator))
        bench = Bench(lambda _, case: OnHost(case, evaluator), probe, roofline, options.rounds, options.patience)
        session.measure(found, bench, CLASSES, options)
    if options.continuity is None and options.classes is None and not options.case:
        found.fixed = list(fixed.results(probe, options))
        console.print(fixed.table(found.fixed, THREADS))
    return session.finish(found, CLASSES, options, THREADS)


def _measured(evaluator: tile.Evaluator, case: Case) -> continuity.Measured:
    """The best of a few samples."""
    ready = OnHost(case, evaluator)
    sample = repeated(ready.run)
    return continuity.Measured(min(sample() for _ in range(5)), numpy_copied(int(ready.moved), THREADS))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    session.add_options(parser, CLASSES)
    parser.add_argument("--rows", help=f"comma-separated beginnings or ends of fixed rows: {', '.join(fixed.ROWS)}")
    parser.add_argument("--patience", type=float, default=60, help="seconds after which a row takes what it has")
    parser.add_argument(
        "--small", action="store_true", help="small data in the fixed rows: to try the benchmark itself"
    )
    return parser.parse_args(arguments)


def _two_threads_of_torch() -> None:
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(THREADS)


if __name__ == "__main__":
    sys.exit(main())
