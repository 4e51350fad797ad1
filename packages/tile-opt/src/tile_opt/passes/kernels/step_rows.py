"""step_rows: schedules what `join_rows` made as an online softmax: rows are walked piece by piece, with carried maxima and sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tile_ir.stripe.nodes import Bind
from tile_ir.target import Target

from tile_opt.kernel.rows_in_steps import rows_in_steps
from tile_opt.kernel.view import KernelView
from tile_opt.passes.scheduling import SchedulingPass, refused
from tile_opt.plan.build import Built
from tile_opt.plan.builders.row_parts import PIECES
from tile_opt.plan.builders.rows_in_steps import build_rows_in_steps
from tile_opt.plan.builders.shared_rows import shared_rows
from tile_opt.plan.plan import Plan
from tile_opt.plan.space.gpu.rows_in_steps import parts_of, plans


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
        return Built(kernel) if shared is None else Built(kernel, after=(shared.combine,), buffers=shared.buffers)
