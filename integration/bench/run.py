"""Speed against the peers, as ratios: interleaved, gated on the machine's own speed, on two threads.

    python integration/bench/run.py                        a sample of every class, and the fixed rows
    python integration/bench/run.py --classes matmul,conv  of these classes alone
    python integration/bench/run.py --case NAME            one case again, by the name in the table
    python integration/bench/run.py --rows matmul,call     fixed rows alone

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
import json  # noqa: E402
import sys  # noqa: E402
from collections.abc import Iterator, Sequence  # noqa: E402
from dataclasses import asdict  # noqa: E402
from datetime import date  # noqa: E402
from pathlib import Path  # noqa: E402

import fixed  # noqa: E402
import tile_runtime as tile  # noqa: E402
from classes import Case, named  # noqa: E402
from classes.cpu import CLASSES  # noqa: E402
from drawn import Bench  # noqa: E402
from machine import Probe  # noqa: E402
from peers import PEERS  # noqa: E402
from report import Row, row_table, verdict_table, verdicts  # noqa: E402
from rich.console import Console  # noqa: E402
from roofline import probed  # noqa: E402
from rows import Result  # noqa: E402

console = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 180)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    _two_threads_of_torch()
    probe = Probe(THREADS)
    drawn = [] if options.rows is not None else list(_drawn(options, probe))
    results = [] if options.classes is not None or options.case else list(_fixed(options, probe))
    judged = verdicts(drawn, CLASSES)
    if judged:
        console.print(verdict_table(judged))
    if results:
        console.print(fixed.table(results, THREADS))
    if options.json:
        values = {"seed": options.seed, "rows": [asdict(r) for r in drawn], "fixed": [asdict(r) for r in results]}
        text = json.dumps(values, indent=2, ensure_ascii=False)
        Path("/dev/stdout" if options.json == "-" else options.json).write_text(text + "\n", encoding="utf-8")
    return 0 if all(v.passed for v in judged) and all(r.passed for r in results) else 1


def _drawn(options: argparse.Namespace, probe: Probe) -> Iterator[Row]:
    evaluator = tile.Evaluator("llvm")
    with console.status("probing …"):
        bench = Bench(evaluator, probe, probed(probe, evaluator), options.rounds, options.patience)
    rates = ", ".join(f"{b / 1e9:.0f} GB/s in {s >> 10} KiB" for s, b in bench.roofline.bandwidth.items())
    console.print(f"seed {options.seed}; {bench.roofline.flops / 1e9:.0f} GFLOP/s; {rates}")
    rows: list[Row] = []
    for row in bench.rows(_cases(options), options.budget):
        rows.append(row)
        console.print(f"[dim]{row.ratio:5.2f}  {row.name} {row.problem}[/]")
        yield row
    for name in dict.fromkeys(r.class_ for r in rows):
        console.print(row_table([r for r in rows if r.class_ == name], name))


def _cases(options: argparse.Namespace) -> Iterator[tuple[str, Case, Sequence[str]]]:
    """(class, case, peers): class after class would leave the last ones out when the budget ends, so they take turns."""
    allowed = options.peers.split(",")
    if options.case:
        yield from (("chosen", named(text), allowed) for text in options.case)
        return
    wanted = (options.classes or "").split(",")
    chosen = {name: c for name, c in CLASSES.items() if any(name.startswith(w) or w in name for w in wanted)}
    samples = {name: c.sample(name, options.seed, options.per_class) for name, c in chosen.items()}
    for turn in range(options.per_class):
        for name, class_ in chosen.items():
            yield name, samples[name][turn], [p for p in class_.peers if p in allowed]


def _fixed(options: argparse.Namespace, probe: Probe) -> Iterator[Result]:
    for key, row in fixed.ROWS.items():
        if options.rows and not any(key.startswith(r) or key.endswith(r) for r in options.rows.split(",")):
            continue
        with console.status(f"{row.name} …"):
            result = fixed.run(row, probe, options)
        console.print(f"[dim]{row.name}: {result.measured:.3g} {result.unit}[/]")
        yield result


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", help=f"comma-separated parts of class names: {', '.join(CLASSES)}")
    parser.add_argument("--case", action="append", metavar="NAME", help="a case by its name, such as matmul:m=64,k=64,n=64")
    parser.add_argument("--rows", help=f"comma-separated beginnings or ends of fixed rows: {', '.join(fixed.ROWS)}")
    parser.add_argument("--seed", type=int, default=date.today().toordinal(), help="what shapes are drawn from")
    parser.add_argument("--per-class", type=int, default=6, metavar="N", help="cases of each class")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"comma-separated, of {', '.join(PEERS)}")
    parser.add_argument("--budget", type=float, default=900, metavar="SECONDS", help="no drawn case begins after this")
    parser.add_argument("--rounds", type=int, default=9, help="rounds at full machine speed that each row needs")
    parser.add_argument("--patience", type=float, default=60, help="seconds after which a row takes what it has")
    parser.add_argument("--small", action="store_true", help="small data in the fixed rows: to try the benchmark itself")
    parser.add_argument("--json", metavar="FILE", help="also write the results here (- for standard output)")
    return parser.parse_args(arguments)


def _two_threads_of_torch() -> None:
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(THREADS)


if __name__ == "__main__":
    sys.exit(main())
