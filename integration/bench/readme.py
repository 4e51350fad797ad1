"""The README's table and plot of speeds, from the results of a run: docs/assets/speeds.json, and the block between two marks.

    python integration/bench/readme.py         the block again, from the results that are there

`run.py --readme` writes the results first. What is shown is all that was measured: no row is left out.
"""

from __future__ import annotations

import json
import math
import platform
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from report import geometric

ROOT = Path(__file__).parents[2]
RESULTS, PLOT = ROOT / "docs" / "assets" / "speeds.json", ROOT / "docs" / "assets" / "speeds.svg"
BEGIN, END = "<!-- speeds: `python3 dev.py bench --readme` writes this -->", "<!-- end of speeds -->"
LOW, HIGH = 1 / 16, 64
"""The ends of the plot's scale."""


def described() -> str:
    """This machine's processor."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.processor()} ({platform.system()}, Python {platform.python_version()})"


def write(found: Mapping[str, Any]) -> None:
    """Keep the results, draw them, and put the table into the README."""
    RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    PLOT.write_text(plot(classes(found)), "utf-8")
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text("utf-8").partition(BEGIN)
    readme.write_text(f"{before}{block(found)}{rest.partition(END)[2]}", "utf-8")


def classes(found: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Rows by class, without those of drawn cases that fail."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in found["rows"]:
        rows.setdefault(row["class_"], []).append(row)
    return rows


def block(found: Mapping[str, Any]) -> str:
    """The text from one mark to the other."""
    lines = [
        BEGIN,
        f"Best peer's time over Tile's, on {found['threads']} threads of {found['machine']}, {found['day']}. Shapes were drawn by the seed",
        f"{found['seed']}; a number above 1 means that Tile is faster. {found['remark']}".rstrip(),
        "",
        "| | cases | geometric mean | worst | best | peers that were fastest |",
        "|---|---|---|---|---|---|",
        *(_line(name, rows) for name, rows in classes(found).items()),
        "",
        "![each case as a point, by class](docs/assets/speeds.svg)",
        END,
    ]
    return "\n".join(lines)


def _line(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    ratios = [r["ratio"] for r in rows if not r["problem"]]
    peers = ", ".join(f"{peer} {count}×" for peer, count in Counter(r["peer"] for r in rows if r["peer"]).most_common())
    failed = len(rows) - len(ratios)
    count = f"{len(rows)}" + (f", {failed} failed" if failed else "")
    if not ratios:
        return f"| {name} | {count} | | | | |"
    return f"| {name} | {count} | {geometric(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f} | {peers} |"


def plot(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Points on a scale of powers of two, one line a class."""
    height = 34 * len(rows) + 46
    text = 'font-family="sans-serif" font-size="13" fill="#777"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" role="img" aria-label="ratios by class">',
            *_scale(height, text),
            *(
                part
                for place, (name, found) in enumerate(rows.items())
                for part in _points(name, found, 34 * place + 24, text)
            ),
            "</svg>\n",
        ]
    )


def _scale(height: int, text: str) -> Iterator[str]:
    for power in range(round(math.log2(LOW)), round(math.log2(HIGH)) + 1):
        x, label = _across(2.0**power), f"{2**power}×" if power >= 0 else f"1/{2**-power}"
        colour = "#c2571a" if power == 0 else "#8885"
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="{height - 26}" stroke="{colour}"/>'
        yield f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle" {text}>{label}</text>'


def _points(name: str, rows: Sequence[Mapping[str, Any]], y: int, text: str) -> Iterator[str]:
    yield f'<text x="4" y="{y + 4}" {text}>{name}</text>'
    for row in rows:
        if not row["problem"]:
            x = _across(row["ratio"])
            yield f'<circle cx="{x:.1f}" cy="{y}" r="4" fill="#2a6f97" fill-opacity="0.7"><title>{row["name"]}: {row["ratio"]:.2f}</title></circle>'


def _across(ratio: float) -> float:
    share = math.log(min(max(ratio, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
    return 210 + 530 * share


if __name__ == "__main__":
    write(json.loads(RESULTS.read_text("utf-8")))
    sys.exit(0)
