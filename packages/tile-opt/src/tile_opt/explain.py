"""What the compiler did and why, as text: the kernels, their tables, tiles and costs."""

from __future__ import annotations

from collections.abc import Callable

from tile_ir.kernels import Kernel
from tile_ir.stripe.nodes import Block, Index
from tile_ir.target import PassConfig

from tile_opt.compiler import Compiled
from tile_opt.cost.cpu import CpuModel
from tile_opt.cost.plan import LoopPlan, TilePlan
from tile_opt.passes.base import main_of
from tile_opt.pipeline import optimize
from tile_opt.schedule.strides import flat_stride
from tile_opt.schedule.view import KernelView, Stage, open_kernel


def explain(compiled: Compiled) -> str:
    """One section per kernel: its Tile statements, flatten tables, tile plan, grid, operations and bytes."""
    views = _planned_views(compiled)
    parts = [_kernel(k, views.get(k.name)) for k in compiled.kernels.kernels]
    times = ", ".join(f"{stage} {seconds * 1e3:.1f} ms" for stage, seconds in compiled.timings.items())
    return "\n\n".join([*parts, f"Compile time: {times}"])


def _planned_views(compiled: Compiled) -> dict[str, tuple[KernelView, TilePlan]]:
    """The kernels as autotile met them, with the plan its model makes."""
    target = compiled.kernels.target
    before: list[PassConfig] = []
    for entry in target.passes:
        if entry.name == "autotile":
            break
        before.append(entry)
    program = optimize(compiled.stripe_initial, target, passes=before)
    model = CpuModel(target.settings)
    views = [open_kernel(b) for b in main_of(program).body if isinstance(b, Block)]
    return {v.name: (v, model.plan(v)) for v in views if v is not None}


def _kernel(kernel: Kernel, planned: tuple[KernelView, TilePlan] | None) -> str:
    groups = "×".join(map(str, kernel.groups))
    lines = [f"Kernel {kernel.name}: {groups} groups, {kernel.flops} operations, {kernel.bytes} bytes"]
    lines += [f"  // {line}" for line in kernel.stripe.comment.splitlines()]
    if planned is not None:
        view, plan = planned
        for stage in view.stages:
            lines += ["", *_flatten_table(view, stage)]
        lines += ["", *_plan(plan)]
    return "\n".join(lines)


def _flatten_table(view: KernelView, stage: Stage) -> list[str]:
    """Range of each loop and its stride in each buffer, the blog's flatten table."""
    loops = sorted((*view.loops, *stage.loops), key=_by_name)
    uses = [u for u in stage.uses if not view.is_local(u.buffer)]
    rows = [["", "Range", *(u.buffer for u in uses)]]
    rows += [[i.name, str(i.range), *(str(flat_stride(view, u, i.name)) for u in uses)] for i in loops]
    offsets = [
        sum(f.const * s for f, s in zip(u.forms, view.type_of(u.buffer).strides, strict=True)) for u in uses
    ]
    rows.append(["off", "", *map(str, offsets)])
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    table = ["  " + "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    constraints = [_constraint(c.coefficient, [i.name for i in loops], c.const) for c in stage.constraints]
    return [f"  Stage {stage.name}", *table, *constraints]


def _by_name(index: Index) -> str:
    return index.name


def _constraint(coefficient: Callable[[str], int], names: list[str], const: int) -> str:
    """``c >= 0`` printed one-sided as the blog does: (…) <= bound."""
    left = ",".join(str(-coefficient(n)) for n in names)
    return f"  Constraint: ({left}) <= {const}"


def _plan(plan: TilePlan) -> list[str]:
    lines = [f"  Plan: {plan.reason}, predicted {plan.efficiency:.0%} of peak in the main tile"]
    lines += [f"    {_loop(p)}" for p in plan.loops]
    lines += [f"    stage {r.stage}: loop {r.loop} in {r.copies} vectors of {r.lanes}" for r in plan.rows]
    lines += [f"    {buffer} is packed into panels" for buffer in plan.packed]
    return lines


def _loop(plan: LoopPlan) -> str:
    parts = ", ".join(f"{s.count} of {s.size}{' (edge)' if edge else ''}" for s, edge in plan.segments)
    groups = f"; {plan.groups} groups of {plan.chunk} tiles" if plan.groups > 1 else ""
    return f"{plan.name}: {plan.role.value}, tiles {parts}{groups}"
