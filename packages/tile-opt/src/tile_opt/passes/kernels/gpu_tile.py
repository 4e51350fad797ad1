"""gpu_tile: kernels that memory bounds, spread over a grid of groups of items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tile_ir.stripe.nodes import Block
from tile_ir.target import Target

from tile_opt.kernel.view import KernelView, open_kernel
from tile_opt.model.gpu import GpuModel
from tile_opt.passes.base import KernelPass
from tile_opt.plan.gpu_nest import build_gpu_nest
from tile_opt.plan.plan import Across, Plan
from tile_opt.plan.plans import StagePlan
from tile_opt.plan.space import gpu_rows, gpu_scan, gpu_transpose
from tile_opt.plan.steps.group_scan import GroupScan
from tile_opt.plan.steps.group_transpose import Turn
from tile_opt.plan.steps.spread import Spread


@dataclass(frozen=True)
class GpuTile(KernelPass):
    """Spread the loops of each kernel over a grid of groups of at most the target's `threads` items."""

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
            case Plan() as plan:
                return self.build(view, plan, target)

    def plan(self, view: KernelView, target: Target) -> StagePlan | Plan:
        """The schedule for a kernel."""
        staged = GpuModel(target.settings).plan(view) if self.stage else None
        return staged or next(self.candidates(view, target))

    def candidates(self, view: KernelView, target: Target) -> Iterator[Plan]:
        """Legal plans, best first."""
        yield from gpu_scan.plans(view, target)
        yield from gpu_transpose.plans(view, target)
        yield from gpu_rows.plans(view, target, self.stage_rows)

    def build(self, view: KernelView, plan: Plan, target: Target) -> Block:
        """The scheduled kernel of a plan."""
        if any(r.across is Across.SCAN for r in plan.reductions):
            return GroupScan(view, plan).build()
        if any(s.unit == "LOCAL" for s in plan.stagings) and not any(s.loops for s in view.stages):
            return Turn(view, plan, 4 * target.settings.vec_size).build()
        return Spread(gpu_rows.rewritten(view, plan), plan, target.settings.max_mem).build()
