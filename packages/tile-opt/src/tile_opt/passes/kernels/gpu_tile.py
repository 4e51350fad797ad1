"""gpu_tile: one work item per iteration of the shared loops, groups of neighbouring iterations.

The innermost loops give the items of a group, so that neighbouring items touch neighbouring memory;
everything a stage loops over itself stays a serial loop of the item.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from tile_ir.stripe.nodes import Block
from tile_ir.target import HardwareSettings, Target

from tile_opt.kernel.view import KernelView, open_kernel
from tile_opt.model.gpu import GpuModel
from tile_opt.passes.base import KernelPass
from tile_opt.plan.gpu_nest import build_gpu_nest
from tile_opt.plan.gpu_rows import build_gpu_rows, plan_rows, plan_staging
from tile_opt.plan.plan import Plan
from tile_opt.plan.plans import StagePlan
from tile_opt.plan.row_split import RowSplit
from tile_opt.plan.space import gpu_rows, gpu_transpose
from tile_opt.plan.steps.spread import Spread
from tile_opt.plan.steps.turn import Turn

WIDE = 4
"""Elements of four bytes in one access."""
LANE = "lane"
IN_FLIGHT = 4
FEW = 64
"""Work items of a group where there are not enough for every multiprocessor."""
FULL_ROW = 32
"""Elements of a row that keep a sub-group busy."""
AXES = 3
"""Dimensions of a work group."""


@dataclass(frozen=True)
class GpuTile(KernelPass):
    """Spread the shared loops of each kernel over a grid of groups of at most the target's `threads` items."""

    name: ClassVar[str] = "gpu_tile"
    stage: bool = True
    """Stage the operands of contractions with reuse in local memory."""
    stage_rows: bool = False
    """Stage the operands of row reductions, too, though each element is used once (as the HAL page's kernels do)."""

    def rewrite(self, kernel: Block, target: Target) -> Block:
        view = open_kernel(kernel)
        if view is None:
            return kernel
        match self.plan(view, target):
            case StagePlan() as staged:
                return build_gpu_nest(view, staged)
            case RowSplit() as rows:
                return build_gpu_rows(view, rows)
            case Plan() as plan:
                if any(s.unit == "LOCAL" for s in plan.stagings):
                    return Turn(view, plan, 4 * target.settings.vec_size).build()
                return Spread(gpu_rows.rewritten(view, plan), plan, target.settings.max_mem).build()

    def plan(self, view: KernelView, target: Target) -> StagePlan | RowSplit | Plan:
        """The schedule for a kernel."""
        settings = target.settings
        staged = GpuModel(settings).plan(view) if self.stage else None
        found = staged or next(gpu_transpose.plans(view, target), None)
        if self.stage_rows and not found:
            found = plan_rows(view, settings, _least_row(view, settings))
            found = plan_staging(view, found, settings) if found else None
        return found or next(gpu_rows.plans(view, target))


def _least_row(view: KernelView, settings: HardwareSettings) -> int:
    """Elements from which a row is worth a group: fewer where there are too few rows for an item each."""
    return FULL_ROW if prod(i.range for i in view.loops) >= settings.threads * settings.cores else FULL_ROW // 2
