"""Parts of the page, from the report: overview, sources, bars, tables, plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from tile_ir.kernels import listed

from tile_opt.explain.data import FlattenTable, KernelReport, PlanReport, ProgramReport
from tile_opt.explain.text import (
    candidate_text,
    choice_lines,
    constraint_lines,
    duration,
    error_lines,
    schedule_lines,
    size,
    time_lines,
)

MOST_CANDIDATES = 400


def facts(report: ProgramReport) -> str:
    """The program's numbers at a glance."""
    pairs = {
        "kernel" if len(report.kernels) == 1 else "kernels": str(len(report.kernels)),
        "step" if report.steps == 1 else "steps": str(report.steps),
        "operations": number(report.operations),
        "compulsory traffic": size(report.bytes),
        "device buffers": size(report.memory.peak),
        "compile time": f"{sum(report.seconds.values()) * 1e3:.0f} ms",
    }
    return (
        '<div class="facts">' + "".join(f"<div><b>{v}</b><span>{k}</span></div>" for k, v in pairs.items()) + "</div>"
    )


def overview(report: ProgramReport) -> str:
    """A row per kernel."""
    left = ("kernel", "plan")
    heads = (
        "kernel",
        "plan",
        "groups",
        "items",
        "launches",
        "operations",
        "bytes",
        "ops/byte",
        "bound",
        "roof",
        "predicted",
        "measured",
    )
    head = "".join(f'<th class="t">{h}</th>' if h in left else f"<th>{h}</th>" for h in heads)
    rows = "".join(_overview_row(n, k) for n, k in enumerate(report.kernels))
    return f'<div class="scroll"><table class="wide"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _overview_row(place: int, kernel: KernelReport) -> str:
    roof = kernel.roofline
    cells = [
        "×".join(map(str, kernel.groups)), "×".join(map(str, kernel.group_size)), str(kernel.launches),
        number(kernel.operations), size(kernel.bytes), f"{kernel.intensity:.3g}",
        roof.bound if roof else "–", f"{roof.attainable:.0%}" if roof else "–",
        "–" if kernel.plan.prediction is None else duration(kernel.plan.prediction.seconds),
        "–" if kernel.plan.measured is None else duration(kernel.plan.measured),
    ]  # fmt: skip
    part = f"<br/><small>{printable(listed(kernel.labels, 2))}</small>" if kernel.labels else ""
    name = f'<td class="t"><a href="#k{place}">{escape(kernel.name)}</a>{part}</td>'
    name += f'<td class="t">{escape(kernel.plan.kind)}</td>'
    return f'<tr data-k="{place}">{name}{"".join(f"<td>{escape(c)}</td>" for c in cells)}</tr>'


def sources(report: ProgramReport) -> str:
    """Every source text; a line that went into kernels links to the first of them."""
    users: dict[tuple[str, int], list[int]] = {}
    for place, kernel in enumerate(report.kernels):
        for line in kernel.lines:
            users.setdefault(line, []).append(place)
    parts: list[str] = []
    for name, text in report.sources.items():
        lines = [
            _source_line(n, line, users.get((name, n), []), report.kernels)
            for n, line in enumerate(text.rstrip("\n").split("\n"), 1)
        ]
        parts.append(f'<h3>{escape(name)}</h3><div class="src">{"".join(lines)}</div>')
    return "".join(parts) or "<p>The program has no source text.</p>"


def _source_line(number_: int, line: str, kernels: list[int], all_: Sequence[KernelReport]) -> str:
    body = f"<i>{number_}</i>{printable(line)}"
    if not kernels:
        return f'<span class="ln">{body}</span>'
    names = ", ".join(all_[k].name for k in kernels[:4]) + (" …" if len(kernels) > 4 else "")
    mine = " ".join(map(str, kernels))
    return f'<a href="#k{kernels[0]}" data-k="{mine}">{body}<u>{escape(names)}</u></a>'


def choices(report: ProgramReport) -> str:
    """What was fused, tiled, computed again or stored, and why."""
    if not report.choices:
        return ""
    text = printable("\n".join(choice_lines(report.choices)))
    return f'<div class="card"><h2>Choices between kernels</h2><pre>{text}</pre></div>'


def rounding(report: ProgramReport) -> str:
    """The bound on each output's rounding error."""
    if not report.errors:
        return ""
    text = printable("\n".join(error_lines(report)))
    return f'<div class="card"><h2>Rounding errors</h2><pre>{text}</pre></div>'


def bars(values: Mapping[str, float], shown: Mapping[str, str]) -> str:
    """Horizontal bars, the longest full."""
    most = max(values.values(), default=0) or 1
    rows = [
        f'<span>{escape(k)}</span><i style="width:{100 * v / most:.1f}%"></i><span>{escape(shown[k])}</span>'
        for k, v in values.items()
    ]
    return f'<div class="bars">{"".join(rows)}</div>'


def memory_bars(report: ProgramReport) -> str:
    m = report.memory
    values = {
        "inputs": m.inputs, "outputs": m.outputs, "constants": m.constants,
        "temporaries": m.arena, "(without sharing)": m.temporaries,
    }  # fmt: skip
    return bars(values, {k: size(v) for k, v in values.items()})


def time_bars(report: ProgramReport) -> str:
    return bars(report.seconds, {k: f"{v * 1e3:.1f} ms" for k, v in report.seconds.items()})


def flatten_html(table: FlattenTable) -> str:
    """One stage: loops, strides, offsets, constraints and operations."""
    merge = f" · aggregates by {escape(table.aggregation)}" if table.aggregation else ""
    head = "".join(f"<th>{escape(c.buffer)}</th>" for c in table.columns)
    rows = [
        _row(name, extent, (c.strides[k] for c in table.columns))
        for k, (name, extent) in enumerate(zip(table.names, table.ranges, strict=True))
    ]
    rows.append(_row("offset", "", (c.offset for c in table.columns)))
    notes = [*constraint_lines(table), *table.operations]
    listed = "".join(f'<div class="stmt">{escape(n)}</div>' for n in notes)
    return (
        f'<div><b class="mono">{escape(table.stage)}</b><em>{merge}</em><table class="mono"><thead><tr><th class="t">loop</th>'
        f"<th>range</th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{listed}</div>"
    )


def _row(name: str, extent: object, cells: Iterable[int]) -> str:
    return f'<tr><td class="t">{escape(name)}</td><td>{extent}</td>{"".join(f"<td>{c}</td>" for c in cells)}</tr>'


def plan_html(kernel: KernelReport) -> str:
    """The plan, what it is expected to cost, the schedule as it is, and what the model weighed."""
    plan = kernel.plan
    given = " – as given" if plan.given else ""
    text = f"<pre>{printable(chr(10).join(plan.lines))}</pre>" if plan.lines else ""
    listed = "".join(f'<li class="mono">{escape(line)}</li>' for line in schedule_lines(kernel.schedule, kernel.groups))
    seldom = f"<p>Runs {escape(kernel.seldom)}</p>" if kernel.seldom else ""
    parts = "".join(f"<h4>{escape(name)}</h4><pre>{printable(chr(10).join(p.lines))}</pre>" for name, p in kernel.parts)
    return f"{seldom}<p><b>{escape(plan.kind)}</b>{given}</p>{text}{parts}{_times(plan)}<ul>{listed}</ul>{_candidates(plan)}"


def _times(plan: PlanReport) -> str:
    """Predicted and measured time, and the causes as bars."""
    head = "".join(f"<p>{escape(line)}</p>" for line in time_lines(plan)[:1])
    causes = plan.prediction.causes if plan.prediction is not None else ()
    shown = {c.name: f"{duration(c.seconds)}{f' – {c.note}' if c.note else ''}" for c in causes}
    return head + (bars({c.name: c.seconds for c in causes}, shown) if causes else "")


def _candidates(plan: PlanReport) -> str:
    parts: list[str] = []
    if plan.candidates:
        text = "\n".join(candidate_text(c) for c in plan.candidates[:MOST_CANDIDATES])
        parts.append(fold(f"{len(plan.candidates)} plans that the cost model weighed", text))
    if plan.search:
        text = "\n".join(plan.search[:MOST_CANDIDATES])
        parts.append(fold(f"Tile search by reads and roofline: {len(plan.search)} tiles", text))
    return "".join(parts)


def fold(summary: str, text: str) -> str:
    """Long text behind a line."""
    return f"<details><summary>{escape(summary)}</summary><pre>{printable(text)}</pre></details>"


def printable(text: str) -> str:
    """Escaped, without the control characters that no HTML document may hold."""
    return escape("".join(ch if ch >= " " or ch in "\n\t" else "�" for ch in text))


def number(count: int) -> str:
    """``463.2 M``."""
    for limit, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= limit:
            return f"{count / limit:.1f} {unit}"
    return str(count)
