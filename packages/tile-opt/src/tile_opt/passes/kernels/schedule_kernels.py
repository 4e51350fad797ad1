"""schedule_kernels: every kernel in normal form gets the plan that suits the machine best, and is built from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_ir.stripe.nodes import Block
from tile_ir.target import Target

from tile_opt.kernel.view import open_kernel
from tile_opt.passes.base import KernelPass
from tile_opt.plan.build import build
from tile_opt.plan.space.cpu import plans


@dataclass(frozen=True)
class ScheduleKernels(KernelPass):
    """Schedules for processors with vector registers and caches; `group_ops` is the least work of a work group."""

    name: ClassVar[str] = "schedule_kernels"
    group_ops: int = 1 << 16

    def rewrite(self, kernel: Block, target: Target) -> Block:
        view = open_kernel(kernel)
        if view is None:
            return kernel
        return build(view, next(plans(view, target, self.group_ops)))
