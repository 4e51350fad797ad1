"""One picture of a run: every ratio by class beside what is required, and how near each row is to the roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from classes import Class
from report import Row

OURS, REQUIRED = "#2a6f97", "#c1121f"


def draw(rows: Sequence[Row], classes: Mapping[str, Class], title: str, path: Path) -> None:
    """Write the picture to `path`, in the format of its suffix. Needs matplotlib."""
    from matplotlib.figure import Figure

    names = [n for n in classes if any(r.class_ == n for r in rows)]
    figure = Figure(figsize=(11, 1.6 + 0.7 * len(names)), layout="constrained")
    ratios, shares = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    for place, name in enumerate(names):
        found = sorted((r for r in rows if r.class_ == name and not r.problem), key=lambda r: r.ratio)
        heights = [
            place + 0.28 * (2 * n / max(1, len(found) - 1) - 1) if len(found) > 1 else place for n in range(len(found))
        ]
        ratios.plot([r.ratio for r in found], heights, ".", color=OURS)
        shares.plot([r.share for r in found], heights, ".", color=OURS)
        _required(ratios, classes[name], place)
    _labelled(ratios, shares, names)
    figure.suptitle(title)
    figure.savefig(path)


def _required(axes: Any, class_: Class, place: int) -> None:
    """A line at the floor of every row and a mark at the geometric mean's."""
    axes.plot([class_.floor] * 2, [place - 0.4, place + 0.4], "-", color=REQUIRED)
    if class_.mean is not None:
        axes.plot([class_.mean], [place + 0.4], "v", color=REQUIRED, markersize=5)


def _labelled(ratios: Any, shares: Any, names: Sequence[str]) -> None:
    ratios.set_xscale("log")
    ratios.axvline(1, color="0.7", linewidth=0.8)
    ratios.set_yticks(range(len(names)), names)
    ratios.invert_yaxis()
    ratios.set_xlabel("peer's time / ours  (line: least, triangle: least geometric mean)")
    shares.set_xscale("log")
    shares.axvline(1, color="0.7", linewidth=0.8)
    shares.set_xlabel("share of the roofline")
