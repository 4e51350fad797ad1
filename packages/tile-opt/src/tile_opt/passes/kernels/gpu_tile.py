"""gpu_tile: schedules memory-bound kernels on GPUs: rows, columns, transposes and scans over a grid of work groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tile_ir.diagnostics import Diagnostic, TileDeviceError
from tile_ir.stripe.nodes import Program
from tile_ir.target import Target

from tile_opt.kernel.item_chain import ITEMS
from tile_opt.kernel.view import KernelView
from tile_opt.passes.kernels.join_last import join_last
from tile_opt.passes.scheduling import Scheduled, SchedulingPass
from tile_opt.plan.build import Built
from tile_opt.plan.builders.group_bins import GroupBins, Scattered
from tile_opt.plan.builders.group_chain import GroupChain
from tile_opt.plan.builders.walking_chain import WalkingChain
from tile_opt.plan.plan import Across, Plan
from tile_opt.plan.space.gpu import bins as gpu_bins
from tile_opt.plan.space.gpu import chain_cost as gpu_chain
from tile_opt.plan.space.gpu import row_tiles as gpu_row_tiles
from tile_opt.plan.space.gpu import rows as gpu_rows
from tile_opt.plan.space.gpu import scan as gpu_scan
from tile_opt.plan.space.gpu import transpose as gpu_transpose
from tile_opt.plan.space.gpu.chain import shares
from tile_opt.plan.steps.groups.row_tiles import RowTiles
from tile_opt.plan.steps.groups.scan import GroupScan
from tile_opt.plan.steps.groups.spread import Spread
from tile_opt.plan.steps.groups.transpose import Turn


@dataclass(frozen=True)
class GpuTile(SchedulingPass):
    """Spread the loops of each kernel over a grid of groups of at most the target's `threads` items."""

    stage_rows: bool = False
    """Stage the operands of row reductions, too, though each element is used once (as the HAL page's kernels do)."""

    def schedule(self, program: Program, target: Target, given: Mapping[str, Plan] | None = None) -> Scheduled:
        return join_last(super().schedule(program, target, given), self, target, given or {})

    def candidates(self, view: KernelView, target: Target) -> Iterator[Plan]:
        yield from gpu_chain.plans(view, target)
        yield from gpu_scan.plans(view, target)
        yield from gpu_transpose.plans(view, target)
        yield from gpu_row_tiles.plans(view, target)
        yield from gpu_bins.plans(view, target)
        yield from gpu_rows.plans(view, target, self.stage_rows)

    def worth(self, view: KernelView, target: Target) -> int:
        """Whether to merge near or far is the model's to say."""
        return 2 if any(gpu_bins.plans(view, target)) else 1

    def build(self, view: KernelView, plan: Plan, target: Target) -> Built:
        if ITEMS in view.tags and shares(view):
            walks = any(level.ordered for level in plan.levels)
            return Built((WalkingChain if walks else GroupChain)(view, plan).build())
        if any(s.unit == "LOCAL" for s in plan.stagings) and Scattered.of(view):
            return Built(GroupBins(view, plan, gpu_bins.most_local(target)).build())
        across = {r.across for r in plan.reductions}
        if Across.GROUPS in across:
            message = f"the reduction of {view.name!r} is not shared by groups here: nothing combines what they find"
            raise TileDeviceError(Diagnostic("TILE-E415", message, hint="split it across items"))
        if Across.SCAN in across:
            return Built(GroupScan(view, plan).build())
        if any(s.unit == "LOCAL" for s in plan.stagings) and not any(s.loops for s in view.stages):
            return Built(Turn(view, plan, 4 * target.settings.vec_size).build())
        if any(s.unit == "LOCAL" for s in plan.stagings) and not plan.reductions and view.loops:
            return Built(RowTiles(gpu_rows.prepared(view), plan, target.settings.max_mem).build())
        return Built(Spread(gpu_rows.rewritten(view, plan), plan, target.settings.max_mem).build())
