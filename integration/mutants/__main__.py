"""``python -m mutants compiler``: apply each mutant of a table, and see which tests notice."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

from mutants.mutant import Mutant
from mutants.run import Outcome, default_tests, try_default, try_farm, try_tests

NOTHING = Mutant("nothing", "packages/tile-ir/src/tile_ir/names.py", "def fresh(", "def fresh(")
ENOUGH = 0.95
"""Share that the default run has to catch; what the nightly one adds has to catch all."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("table", choices=("compiler", "sample"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="mutants at a time (one a processor)")
    parser.add_argument("--farm-seconds", type=float, default=300.0, help="how long the farm gets for a survivor (300)")
    parser.add_argument("--only", default="", help="mutants whose description or file has this text")
    options = parser.parse_args()
    mutants = [m for m in import_module(f"mutants.{options.table}").MUTANTS if options.only in m.breaks + m.file]
    with ThreadPoolExecutor(options.jobs) as pool:
        unfit = {tests for tests in pool.map(failing, {default_tests(m) for m in mutants}) if tests}
        mutants = [m for m in mutants if default_tests(m) not in unfit]
        first = [*pool.map(shown_default, mutants)]
        survivors = [o.mutant for o in first if not o.caught_by]
        second = [*pool.map(lambda m: shown(try_farm(m, options.farm_seconds)), survivors)]
    caught, more = len(first) - len(survivors), sum(bool(o.caught_by) for o in second)
    print(f"{caught} of {len(first)} caught by the default run, {more} of the others by the farm")
    return 0 if not unfit and caught >= ENOUGH * len(first) and caught + more == len(first) else 1


def failing(tests: tuple[str, ...]) -> tuple[str, ...]:
    """`tests`, where they fail without any mutant, so that they would notice nothing."""
    outcome = try_tests(NOTHING, tests)
    if outcome.caught_by:
        print(f"fails without a mutant: {outcome.caught_by}", flush=True)
    return tests if outcome.caught_by else ()


def shown_default(mutant: Mutant) -> Outcome:
    return shown(try_default(mutant))


def shown(outcome: Outcome) -> Outcome:
    """Said as soon as it is known."""
    verdict = f"caught by {outcome.caught_by}" if outcome.caught_by else "SURVIVED"
    print(f"{outcome.seconds:6.0f} s  {verdict}: {outcome.mutant.breaks} ({outcome.mutant.place})", flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
