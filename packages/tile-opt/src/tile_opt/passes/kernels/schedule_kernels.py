"""schedule_kernels: plans for processors with vector registers and caches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tile_ir.target import Target

from tile_opt.kernel.view import KernelView
from tile_opt.passes.scheduling import Built, SchedulingPass
from tile_opt.plan.build import build
from tile_opt.plan.plan import Plan
from tile_opt.plan.space.cpu import plans


@dataclass(frozen=True)
class ScheduleKernels(SchedulingPass):
    """Register tiles, operands copied where that pays, work groups; `group_ops` is the least work of a group."""

    name: ClassVar[str] = "schedule_kernels"
    group_ops: int = 1 << 16

    def candidates(self, view: KernelView, target: Target) -> Iterator[Plan]:
        return plans(view, target, self.group_ops)

    def build(self, view: KernelView, plan: Plan, target: Target) -> Built:
        return Built(build(view, plan))
