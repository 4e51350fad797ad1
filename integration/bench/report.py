"""Rows of drawn cases, judged by class; as a table and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from classes import Class
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of one case."""

    class_: str
    name: str
    ratio: float
    """Seconds of the best peer over ours."""
    peer: str
    seconds: float
    peer_seconds: float
    spread: float
    """Half the distance of the quartiles of the ratio, relative to its median."""
    share: float
    """Of the roofline: floor over our seconds."""
    kernels: int
    compile_seconds: float
    rounds: int
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

    @property
    def passed(self) -> bool:
        return self.worst >= self.floor and (self.required_mean is None or self.mean >= self.required_mean)


def verdicts(rows: Sequence[Row], classes: Mapping[str, Class]) -> list[Verdict]:
    """Of each class that has rows; a row with a problem counts as 0."""
    result: list[Verdict] = []
    for name, class_ in classes.items():
        ratios = [0.0 if r.problem else r.ratio for r in rows if r.class_ == name]
        if ratios:
            result.append(Verdict(name, len(ratios), min(ratios), class_.floor, geometric(ratios), class_.mean))
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
    for heading in ("class", "rows", "worst", "required", "geometric mean", "required", ""):
        made.add_column(heading, justify="left" if heading in ("class", "") else "right")
    for v in found:
        required = "" if v.required_mean is None else f"{v.required_mean:g}"
        verdict = "[green]pass[/]" if v.passed else "[bold red]fail[/]"
        made.add_row(v.class_, str(v.rows), f"{v.worst:.2f}", f"{v.floor:g}", f"{v.mean:.2f}", required, verdict)
    return made
