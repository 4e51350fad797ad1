"""step_rows: schedules what `join_rows` made as an online softmax: rows are walked piece by piece, with carried maxima and sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tile_ir.frozen import replace
from tile_ir.stripe.nodes import Bind, Block
from tile_ir.target import Target

from tile_opt.kernel.rows_in_steps import rows_in_steps
from tile_opt.kernel.view import KernelView
from tile_opt.passes.scheduling import SchedulingPass, refused
from tile_opt.plan.build import Built
from tile_opt.plan.builders.row_parts import PIECES
from tile_opt.plan.builders.rows_in_steps import build_rows_in_steps
from tile_opt.plan.builders.shared_rows import SharedRows, shared_rows, ways_of
from tile_opt.plan.builders.tensor_shares import is_joined
from tile_opt.plan.plan import Plan
from tile_opt.plan.space.gpu.rows import plan_of_group, rewritten
from tile_opt.plan.space.gpu.rows_in_steps import parts_of, plans
from tile_opt.plan.steps.groups.last_group import grid, group_size, last_group
from tile_opt.plan.steps.groups.spread import Spread


@dataclass(frozen=True)
class StepRows(SchedulingPass):
    """Carry a row's largest element and its sums from piece to piece, in registers."""

    def candidates(self, view: KernelView, target: Target) -> Iterator[Plan]:
        yield from plans(view, target)

    def accepts(self, plan: Plan) -> bool:
        return len(plan.levels) > PIECES and plan.levels[PIECES].ordered and plan.levels[PIECES].bind is Bind.NONE

    def build(self, view: KernelView, plan: Plan, target: Target) -> Built:
        kinds = rows_in_steps(view)
        if kinds is None:
            raise refused(f"the rows of kernel {view.name!r} are needed whole")
        kernel, shared = build_rows_in_steps(parts_of(kinds, plan, target)), shared_rows(kinds, plan)
        if shared is None:
            return Built(kernel)
        last = _joined(kernel, shared, plan, target)
        return (
            Built(kernel, after=(shared.combine,), buffers=shared.buffers)
            if last is None
            else Built(last, buffers=shared.buffers)
        )


def _joined(kernel: Block, shared: SharedRows, plan: Plan, target: Target) -> Block | None:
    """The kernel whose last group of each tile puts together what all have found; None where another had better do that.

    Each of its sub-groups has some columns.
    """
    view, (lanes, warps, _), groups = shared.combining, group_size(kernel), grid(kernel)
    tiles = {c.loop: c.size for c in plan.levels[0].covers if f"{c.loop}_g" in groups}
    cells = prod(min(tiles.get(i.name, i.range), i.range) for i in view.loops)
    if not is_joined(cells, prod(groups[f"{n}_g"] for n in tiles), ways_of(plan), target):
        return None
    column = view.loops[-1]
    found = plan_of_group(view, target, lanes, {**tiles, column.name: -(-column.range // warps)})
    if found is None:
        return None
    then = _in_warps(Spread(rewritten(view, found), found, target.settings.max_mem).build(), f"{column.name}_g")
    names = {f"{n}_g": f"{n}_g" for n in tiles}
    alike = group_size(then) == group_size(kernel) and grid(then) == {n: groups[n] for n in names}
    return last_group(kernel, then, names) if alike else None


def _in_warps(kernel: Block, loop: str) -> Block:
    """A loop over the grid is one over the sub-groups of a group."""
    return replace(
        kernel, indexes=tuple(replace(i, bind=Bind.SUBGROUP, axis=1) if i.name == loop else i for i in kernel.indexes)
    )
