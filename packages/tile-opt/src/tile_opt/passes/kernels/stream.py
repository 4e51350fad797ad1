"""stream: mark outputs too large for the last-level cache, so that their stores pass it by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tile_ir.stripe.nodes import Block
from tile_ir.target import Target

from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView, close_kernel, open_kernel
from tile_opt.kernel.work import is_elementwise, nbytes
from tile_opt.model.far import SHARE, lines_far_from
from tile_opt.passes.base import KernelPass


@dataclass(frozen=True)
class Stream(KernelPass):
    """Give write-only accesses of buffers of at least `share` times the last-level cache the hint "streaming".

    Of smaller ones, too, where that is far and the result is written across its operands.
    """

    name: ClassVar[str] = "stream"
    share: float = SHARE

    def rewrite(self, kernel: Block, target: Target) -> Block:
        view = open_kernel(kernel)
        if view is None:
            return kernel
        limit = self.share * target.settings.l3_bytes
        if _runs_across(view):
            limit = lines_far_from(target.machine, target.settings, self.share)
        large = {b for b in view.writes() - view.reads() if nbytes(view.type_of(b)) >= limit}
        if not large:
            return kernel
        return close_kernel(view.map_uses(lambda u: replace(u, hint="streaming") if u.buffer in large else u))


def _runs_across(view: KernelView) -> bool:
    """A copy or an elementwise kernel that reads nothing along what it writes: its lines come one by one."""
    if len(view.stages) != 1 or not is_elementwise(view.stages[0]):
        return False
    uses = view.stages[0].uses
    along = {n for u in uses if u.writes for n in view.ranges if flat_stride(view, u, n) == 1}
    steps = [flat_stride(view, u, n) for u in uses if u.reads for n in along]
    return any(step > 1 for step in steps) and 1 not in steps
