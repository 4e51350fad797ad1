"""Rows of drawn cases, judged by class; as a table and as JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from classes import Class
from classes.table import LARGE
from continuity import Finding
from rich.console import Console
from rich.table import Table

console = Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else 180)


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of one case."""

    class_: str
    name: str
    ratio: float = 0.0
    """Seconds of the best peer over ours, or whatever else the class is judged by."""
    peer: str = ""
    seconds: float = 0.0
    peer_seconds: float = 0.0
    spread: float = 0.0
    """Half the distance of the quartiles of the ratio, relative to its median."""
    share: float = 0.0
    """Of the roofline: floor over our seconds."""
    moved: float = 0.0
    """Bytes."""
    kernels: int = 0
    compile_seconds: float = 0.0
    rounds: int = 0
    predicted: float | None = None
    """Estimated over measured seconds."""
    problem: str = ""
    missing: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One class of rows beside what it requires."""

    class_: str
    rows: int
    worst: float
    floor: float
    mean: float
    required_mean: float | None
    share: float = 1.0
    """Smallest of the roofline among rows that move much."""
    required_share: float | None = None

    @property
    def passed(self) -> bool:
        pairs = (self.worst, self.floor), (self.mean, self.required_mean), (self.share, self.required_share)
        return all(required is None or measured >= required for measured, required in pairs)


def verdicts(rows: Sequence[Row], classes: Mapping[str, Class]) -> list[Verdict]:
    """Of each class that has rows; a row with a problem counts as 0."""
    result: list[Verdict] = []
    for name, class_ in classes.items():
        found = [r for r in rows if r.class_ == name]
        ratios, shares = [r.ratio for r in found], [r.share for r in found if r.moved > LARGE]
        if found:
            means = geometric(ratios), class_.mean, min(shares, default=1.0), class_.share
            result.append(Verdict(name, len(found), min(ratios), class_.floor, *means))
    return result


def geometric(ratios: Sequence[float]) -> float:
    """Zeros, which stand for problems, are left out."""
    logs = [math.log(r) for r in ratios if r > 0]
    return math.exp(sum(logs) / len(logs)) if logs else 0.0


def row_table(rows: Iterable[Row], title: str) -> Table:
    """One line per case, worst first."""
    made = Table(title=title, title_justify="left")
    for heading in ("ratio", "±", "roofline", "ms", "peer ms", "kernels", "compile s", "pred/meas"):
        made.add_column(heading, justify="right")
    made.add_column("peer")
    made.add_column("case", overflow="fold")
    for r in sorted(rows, key=lambda r: r.ratio):
        if r.problem:
            made.add_row("[red]fails[/]", *[""] * 8, f"{r.name}: {r.problem}")
            continue
        predicted = "" if r.predicted is None else f"{r.predicted:.2f}"
        made.add_row(
            f"{r.ratio:.2f}", f"{r.spread:.0%}", f"{r.share:.0%}", f"{1e3 * r.seconds:.3g}", f"{1e3 * r.peer_seconds:.3g}",
            str(r.kernels), f"{r.compile_seconds:.2f}", predicted, r.peer, r.name,
        )  # fmt: skip
    return made


def verdict_table(found: Sequence[Verdict]) -> Table:
    """One line per class."""
    made = Table(title="classes", title_justify="left")
    for heading in ("class", "rows", "worst", "required", "geometric mean", "required", "roofline", "required", ""):
        made.add_column(heading, justify="left" if heading in ("class", "") else "right")
    for v in found:
        share = "" if v.required_share is None else f"{v.share:.0%}"
        verdict = "[green]pass[/]" if v.passed else "[bold red]fail[/]"
        made.add_row(
            v.class_, str(v.rows), f"{v.worst:.2f}", _required(v.floor), f"{v.mean:.2f}", _required(v.required_mean),
            share, _required(v.required_share), verdict,
        )  # fmt: skip
    return made


def _required(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


def finding_table(findings: Sequence[Finding]) -> Table:
    """Of each curve what fails, or else the worst."""
    made = Table(title="continuity", title_justify="left")
    for heading in ("curve", "measured", "beyond a copy", "at most", "slower", "than", ""):
        left = heading in ("curve", "slower", "than", "")
        made.add_column(heading, justify="left" if left else "right", overflow="fold")
    for name in dict.fromkeys(f.name for f in findings):
        worst = sorted((f for f in findings if f.name == name), key=lambda f: -f.factor)
        for f in [f for f in worst if not f.passed] or worst[:1]:
            verdict = "[green]pass[/]" if f.passed else "[bold red]fail[/]"
            factors = f"{f.measured:.2f}", f"{f.factor:.2f}", f"{f.allowed:g}"
            made.add_row(f.name, *factors, f.slow, f.fast, verdict)
    return made
