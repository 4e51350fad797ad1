"""One run of the benchmark on either kind of device: its options, its sample of cases, and what it leaves behind."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path

import plot
import readme
from classes import Case, Class, named
from continuity import Finding
from drawn import Bench
from peers import PEERS
from report import Row, console, finding_table, row_table, verdict_table, verdicts
from rows import Result


@dataclass
class Found:
    """Everything that a run measured."""

    seed: int
    rows: list[Row] = field(default_factory=list[Row])
    fixed: list[Result] = field(default_factory=list[Result])
    findings: list[Finding] = field(default_factory=list[Finding])


def add_options(parser: argparse.ArgumentParser, classes: Mapping[str, Class]) -> None:
    """What both benchmarks take."""
    parser.add_argument("--classes", help=f"comma-separated parts of class names: {', '.join(classes)}")
    parser.add_argument(
        "--case", action="append", metavar="NAME", help="a case by its name, such as matmul:m=64,k=9,n=64"
    )
    parser.add_argument("--seed", type=int, default=date.today().toordinal(), help="what shapes are drawn from")
    parser.add_argument("--per-class", type=int, default=6, metavar="N", help="cases of each class")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"comma-separated, of {', '.join(PEERS)}")
    parser.add_argument("--budget", type=float, default=900, metavar="SECONDS", help="no case begins after this")
    parser.add_argument("--rounds", type=int, default=9, help="rounds that each row needs")
    parser.add_argument(
        "--continuity", nargs="?", const="", metavar="NAMES", help="sizes and layouts instead: parts of names, or all"
    )
    parser.add_argument("--json", metavar="FILE", help="also write the results here (- for standard output)")
    parser.add_argument("--readme", nargs="?", const="", metavar="REMARK", help="write the README's table and plot")
    parser.add_argument("--plot", metavar="FILE", type=Path, help="also draw them here (.svg, .png or .pdf)")


def measure(found: Found, bench: Bench, classes: Mapping[str, Class], options: argparse.Namespace) -> None:
    """Rows of a sample of every chosen class, shown as they come."""
    peers = _installed(options.peers.split(","))
    console.print(f"seed {options.seed}; {bench.roofline}")
    for row in bench.rows(_cases(classes, peers, options), options.budget):
        found.rows.append(row)
        console.print(f"[dim]{row.ratio:5.2f}  {row.name} {row.problem}[/]")
    for name in dict.fromkeys(r.class_ for r in found.rows):
        console.print(row_table([r for r in found.rows if r.class_ == name], name))


def walk(found: Found, findings: Iterator[Finding], budget: float) -> None:
    """Sizes and layouts, until `budget` seconds are over; what fails is shown as it comes."""
    end = time.monotonic() + budget
    for finding in findings:
        found.findings.append(finding)
        if not finding.passed:
            console.print(f"[dim]{finding.factor:5.2f}  {finding.slow} against {finding.fast}[/]")
        if time.monotonic() > end:
            console.print("[yellow]the budget is over[/]")
            return


def finish(found: Found, classes: Mapping[str, Class], options: argparse.Namespace, threads: int = 1) -> int:
    """Verdicts, files and the exit code."""
    judged = verdicts(found.rows, classes)
    if judged:
        console.print(verdict_table(judged))
    if found.findings:
        console.print(finding_table(found.findings))
    if options.json:
        text = json.dumps(asdict(found), indent=2, ensure_ascii=False)
        Path("/dev/stdout" if options.json == "-" else options.json).write_text(text + "\n", encoding="utf-8")
    if options.readme is not None:
        told = {"machine": readme.described(), "day": f"{date.today()}", "threads": threads, "remark": options.readme}
        readme.write(told | {"seed": found.seed, "rows": [asdict(row) for row in found.rows]})
    if options.plot:
        plot.draw(found.rows, classes, f"seed {found.seed}", options.plot)
    return 0 if all(v.passed for v in (*judged, *found.fixed, *found.findings)) else 1


def _installed(peers: list[str]) -> list[str]:
    """The peers that are there; the others are named."""
    lacking = {name: PEERS[name].lacking() for name in peers}
    for name, what in lacking.items():
        if what:
            console.print(f"[yellow]{name} is left out: {what} is not installed[/]")
    return [name for name, what in lacking.items() if not what]


def _cases(
    classes: Mapping[str, Class], peers: list[str], options: argparse.Namespace
) -> Iterator[tuple[str, Class, Case]]:
    """Classes take turns: one after another would leave the last ones out when the budget ends.

    Cases that are given by name are measured as those of the first chosen class.
    """
    wanted = (options.classes or "").split(",")
    chosen = {name: c for name, c in classes.items() if any(w in name for w in wanted)}
    if options.case:
        plain = Class(0.0, None, (), next(iter(classes.values())).limits)
        class_ = replace(next(iter(chosen.values())) if options.classes else plain, peers=peers)
        yield from (("chosen", class_, named(text)) for text in options.case)
        return
    samples = {name: c.sample(name, options.seed, options.per_class) for name, c in chosen.items()}
    for turn in range(options.per_class):
        for name, class_ in chosen.items():
            yield name, replace(class_, peers=[p for p in class_.peers if p in peers]), samples[name][turn]
