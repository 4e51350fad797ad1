"""schedule_kernels: schedules every kernel on CPUs: register tiles, packing, vectors, work groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tile_ir.target import Target

from tile_opt.kernel.view import KernelView, close_kernel
from tile_opt.kernel.work import op_cost, points, repeats, view_is_heavy
from tile_opt.model.estimate import least_seconds
from tile_opt.passes.scheduling import SchedulingPass
from tile_opt.plan.build import Built, build_all
from tile_opt.plan.plan import Plan
from tile_opt.plan.space.cpu.plans import ranked

WEIGHED = 4
"""Plans of a long kernel that the cost model compares, and of others where it doubts the first."""
LONG = 1 << 21
"""Operations of one: what comparing costs is less than a thousand runs."""
BRIEF = 1 << 16
"""Operations of a kernel that is over before a plan is estimated."""
DOUBTED = 8
"""Times the least that a plan of any other kernel may be estimated to take before others are."""


@dataclass(frozen=True)
class ScheduleKernels(SchedulingPass):
    """Register tiles, operands copied where that pays, work groups; `group_ops` is the least work of a group."""

    group_ops: int = 1 << 16

    def candidates(self, view: KernelView, target: Target) -> Iterator[Plan]:
        return (plan for _, plan in self.ranked(view, target))

    def ranked(self, view: KernelView, target: Target) -> Iterator[tuple[float, Plan]]:
        return ranked(view, target, self.group_ops)

    def worth(self, view: KernelView, target: Target) -> int:
        """Register tiles differ by what caches do to them, which only the model sees; small kernels are over before it is."""
        return WEIGHED if _work(view) >= BRIEF else 1

    def enough(self, view: KernelView, target: Target) -> float:
        least = least_seconds(view.block or close_kernel(view), target.machine)
        return least if view_is_heavy(view) and _work(view) >= LONG else DOUBTED * least

    def build(self, view: KernelView, plan: Plan, target: Target) -> Built:
        return build_all(view, plan)


def _work(view: KernelView) -> int:
    """Operations and accesses."""
    return sum(points(stage, view.ranges) * repeats(stage, view) * op_cost(stage) for stage in view.stages)
