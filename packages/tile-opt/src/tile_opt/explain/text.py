"""A report as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tile_ir.kernels import listed

from tile_opt.explain.data import (
    FlattenTable,
    KernelReport,
    PlanCandidate,
    PlanReport,
    Prediction,
    ProgramReport,
    ScheduleReport,
)
from tile_opt.passes.choosing import Choice

BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
MOST_CHOICES = 100
MOST_LABELS = 12
"""Names of applications printed for one kernel."""
SHOWN = 2000
"""Candidates printed at most."""


def text(report: ProgramReport) -> str:
    """The whole report: a section per kernel, then memory and compile time."""
    parts = [kernel_text(k) for k in report.kernels]
    parts += ["\n".join(["Choices between kernels:", *choice_lines(report.choices)])] if report.choices else []
    parts += ["\n".join(["Rounding errors:", *error_lines(report)])] if report.errors else []
    m = report.memory
    memory = (
        f"Device buffers: {size(m.peak)} = inputs {size(m.inputs)} + outputs {size(m.outputs)} + constants "
        f"{size(m.constants)} + temporaries {size(m.arena)} ({size(m.temporaries)} without sharing)"
    )
    times = ", ".join(f"{stage} {seconds * 1e3:.1f} ms" for stage, seconds in report.seconds.items())
    return "\n\n".join([*parts, f"{memory}\nCompile time: {times}"])


def kernel_text(kernel: KernelReport) -> str:
    """One kernel's section."""
    groups = "×".join(map(str, kernel.groups))
    often = f", launched {kernel.launches} times" if kernel.launches != 1 else ""
    lines = [f"Kernel {kernel.name}: {groups} groups, {kernel.operations} operations, {kernel.bytes} bytes{often}"]
    lines += [f"  // {line}" for line in kernel.statements]
    lines += [f"  Part of: {listed(kernel.labels, MOST_LABELS)}"] if kernel.labels else []
    lines += [f"  Runs {kernel.seldom}"] if kernel.seldom else []
    for table in kernel.tables:
        lines += ["", f"  Stage {table.stage}", *(f"  {row}" for row in table_lines(table))]
    if kernel.output_operations:
        lines += ["", "  Output operations:", *(f"    {line}" for line in kernel.output_operations)]
    lines += ["", *(f"  {line}" for line in plan_lines(kernel.plan))]
    for name, plan in kernel.parts:
        lines += [f"  Part {name}", *(f"    {line}" for line in plan_lines(plan))]
    lines += [f"  Instruction: {line}" for line in kernel.instructions]
    lines += [f"  {line}" for line in schedule_lines(kernel.schedule, kernel.groups)]
    lines += [f"  {line}" for line in roofline_lines(kernel)]
    return "\n".join(lines)


def choice_lines(choices: Sequence[Choice]) -> list[str]:
    """A line per choice: what was chosen, for whom, and the two times or the reason."""
    rows = [(c.chosen, f"{c.producer} with {c.consumer}", _why(c)) for c in choices[:MOST_CHOICES]]
    widths = [max((len(row[n]) for row in rows), default=0) for n in (0, 1)]
    more = [f"  and {len(choices) - MOST_CHOICES} more"] if len(choices) > MOST_CHOICES else []
    return [f"  {a:<{widths[0]}}  {b:<{widths[1]}}  {why}" for a, b, why in rows] + more


def error_lines(report: ProgramReport) -> list[str]:
    """A line per output: the bound on its rounding error."""
    width = max((len(e.output) for e in report.errors), default=0)
    lines = [f"  {e.output:<{width}}  {e.text}" for e in report.errors[:MOST_CHOICES]]
    return lines + ([f"  and {len(report.errors) - MOST_CHOICES} more"] if len(report.errors) > MOST_CHOICES else [])


def _why(choice: Choice) -> str:
    if choice.together is None or choice.apart is None:
        return choice.reason
    return f"{duration(choice.together)} together, {duration(choice.apart)} apart expected"


def table_lines(table: FlattenTable) -> list[str]:
    """The flatten table with its constraints, one-sided."""
    columns = [(c.buffer, c.strides, c.offset) for c in table.columns]
    return [*grid(stride_rows(table.names, table.ranges, columns)), *constraint_lines(table)]


def stride_rows(
    names: Sequence[str], ranges: Sequence[int], columns: Sequence[tuple[str, Sequence[int], int]]
) -> list[list[str]]:
    """A row of the flatten table for each loop, and of offsets; columns are (buffer, strides, offset)."""
    rows = [["", "Range", *(name for name, _, _ in columns)]]
    for k, (name, extent) in enumerate(zip(names, ranges, strict=True)):
        rows.append([name, str(extent), *(str(strides[k]) for _, strides, _ in columns)])
    return [*rows, ["off", "", *(str(offset) for _, _, offset in columns)]]


def grid(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Rows with right-aligned columns."""
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    return ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]


def constraint_lines(table: FlattenTable) -> list[str]:
    """The constraints that the kernel checks, and those that they imply."""
    checked = [f"Constraint: {inequality(*each)}" for each in table.constraints]
    return [*checked, *(f"Constraint: {inequality(*each)}, implied by the others" for each in table.implied)]


def inequality(left: tuple[int, ...], right: int) -> str:
    return f"({','.join(map(str, left))}) <= {right}"


def plan_lines(plan: PlanReport) -> list[str]:
    """The plan, what is expected of it, and the candidates where the report has them."""
    given = ", as given" if plan.given else ""
    lines = [f"Plan: {plan.kind}{given}", *(f"  {line}" for line in plan.lines), *time_lines(plan)]
    if plan.candidates:
        lines.append(f"Candidates ({len(plan.candidates)}):")
        lines += [f"  {candidate_text(c)}" for c in plan.candidates]
    if plan.search:
        lines.append(f"Tile search by reads and roofline ({len(plan.search)} tiles):")
        lines += [f"  {line}" for entry in plan.search[:SHOWN] for line in entry.splitlines()]
    return lines


def time_lines(plan: PlanReport) -> list[str]:
    """Predicted and measured time of one launch, and what it is predicted to be spent on."""
    found = plan.prediction
    if found is None:
        return [] if plan.measured is None else [f"Time: {duration(plan.measured)} measured"]
    share = "" if found.share is None else f", {found.share:.0%} of peak arithmetic"
    measured = "" if plan.measured is None else f"; {duration(plan.measured)} measured{_ratio(plan.measured, found)}"
    lines = [f"Time: {duration(found.seconds)} predicted{share}{measured}"]
    width = max((len(c.name) for c in found.causes), default=0)
    lines += [f"  {c.name:<{width}}  {duration(c.seconds):>8}  {c.note}".rstrip() for c in found.causes]
    moved = ", ".join(f"{level} {size(count)}" for level, count in found.traffic.items())
    return lines + ([f"  moved: {moved}"] if moved else [])


def _ratio(measured: float, prediction: Prediction) -> str:
    return f" ({measured / prediction.seconds:.2f} times the prediction)" if prediction.seconds else ""


def candidate_text(candidate: PlanCandidate) -> str:
    return f"{duration(candidate.seconds):>8}  {candidate.plan}"


def duration(seconds: float) -> str:
    """Seconds for people: ``33.1 µs``."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def schedule_lines(schedule: ScheduleReport, groups: tuple[int, int, int]) -> list[str]:
    """Grid packing, work items, vectors, memory of a group."""
    lines = [
        f"Grid {'×'.join(map(str, groups))}: "
        + ("; ".join(f"{g.name} = {g.form}" for g in schedule.grid) or "one group")
    ]
    if schedule.items:
        lines.append("Work items: " + "; ".join(f"{i.name}: {i.range} on axis {i.axis}" for i in schedule.items))
    facts = [f"vectors of {schedule.lanes}"] if schedule.lanes > 1 else []
    if schedule.unrolled:
        facts.append("unrolled " + ", ".join(f"{u.name} × {u.range}" for u in schedule.unrolled))
    facts += [f"{size(schedule.private_bytes)} per item"] if schedule.private_bytes else []
    facts += [f"{size(schedule.local_bytes)} local"] if schedule.local_bytes else []
    facts += [f"{schedule.barriers} barriers"] if schedule.barriers else []
    lines += [f"Schedule: {'; '.join(facts)}"] if facts else []
    return lines + [f"Across the group: {r}" for r in schedule.reductions]


def roofline_lines(kernel: KernelReport) -> list[str]:
    roof = kernel.roofline
    if roof is None:
        return []
    return [
        f"Roofline: {roof.intensity:.3g} operations per byte, knee {roof.knee:g}: {roof.bound} bound, "
        f"at most {roof.attainable:.0%} of peak"
    ]


def size(count: float) -> str:
    """Bytes for people: ``1.5 MiB``."""
    unit = 0
    while count >= 1024 and unit + 1 < len(BYTE_UNITS):
        count, unit = count / 1024, unit + 1
    return f"{count:.0f} {BYTE_UNITS[unit]}" if unit == 0 or count >= 100 else f"{count:.1f} {BYTE_UNITS[unit]}"
