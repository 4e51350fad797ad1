"""``python -m farm --seconds 600 --jobs 8``: run the farm, reduce what fails, write ``build/farm/``."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from farm.failures import Failure
from farm.reduce import forked, reduce
from farm.report import markdown
from farm.workers import BATCH, Farm, Harvest, Job, attempt

BACKENDS = ("stripe", "interp", "llvm", "differences")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m farm", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to run (60)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="worker processes (one a processor)")
    parser.add_argument("--seed", type=int, default=None, help="what programs are drawn from (a fresh one)")
    parser.add_argument("--number", type=int, default=None, help="try only this program, here, and show what happens")
    parser.add_argument("--programs", type=int, default=1 << 40, help="stop after so many programs")
    parser.add_argument("--backends", default=",".join(BACKENDS), help="devices, and: differences (%(default)s)")
    parser.add_argument("--deadline", type=float, default=120.0, help="seconds after which a silent worker hangs (120)")
    parser.add_argument("--reduce", type=float, default=60.0, help="seconds to make a failing program small (60)")
    parser.add_argument("--output", type=Path, default=Path("build/farm"), help="folder of the report (%(default)s)")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    backends = tuple(b for b in options.backends.split(",") if b)
    if options.number is not None:
        return repeat(seed, options.number, backends)
    print(f"seed {seed}", flush=True)
    farm = Farm(seed, backends, options.jobs, options.seconds, 0, options.programs, options.deadline, Teller())
    harvest = farm.run()
    reduced = reduce_all(harvest.failures, options.reduce)
    page = markdown(harvest, reduced, f"Farm, seed {seed}")
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / f"farm-{seed}.md").write_text(page, "utf-8")
    print(page)
    return 1 if harvest.failures else 0


def reduce_all(failures: Sequence[Failure], seconds: float) -> list[Failure]:
    """The first failure of each signature, made small; for `seconds` each at most."""
    first = {f.signature: f for f in reversed(failures)}
    found: dict[tuple[object, ...], Failure] = {}
    for failure in first.values():
        print(f"reducing {failure.signature}", flush=True)
        less = reduce(failure, forked(), seconds)
        found.setdefault((less.symptom.signature, less.sample.source, less.sample.order), less)
    return list(found.values())


class Teller:
    """Prints what is known so far, every half minute."""

    def __init__(self) -> None:
        self.told = time.monotonic()
        self.failures = 0

    def __call__(self, harvest: Harvest) -> None:
        for failure in harvest.failures[self.failures :]:
            print(f"{failure.signature}: {failure.command}", flush=True)
        self.failures = len(harvest.failures)
        if time.monotonic() - self.told > 30:
            self.told = time.monotonic()
            print(f"{harvest.seconds:.0f} s: {harvest.programs} programs, {harvest.total('same')} cases", flush=True)


def repeat(seed: int, number: int, backends: tuple[str, ...]) -> int:
    """Try one program in this process."""
    job = Job(seed, number // BATCH * BATCH, number + 1, backends)
    os.environ |= {"TILE_NUM_THREADS": str(job.threads)}
    failed = Counter[str]()

    def say(said: dict[str, object]) -> None:
        print(said, flush=True)
        failed.update(["failure"] if "failure" in said else [])

    attempt(job, number, say)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
