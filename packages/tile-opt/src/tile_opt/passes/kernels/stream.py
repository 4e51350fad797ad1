"""stream: mark outputs of kernels that touch more than the last-level cache keeps, so that their stores pass it by."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tile_ir.stripe.nodes import Block
from tile_ir.target import Target

from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView, close_kernel, open_kernel
from tile_opt.kernel.work import is_elementwise, nbytes, points
from tile_opt.model.caches import SHARE, lines_far_from
from tile_opt.passes.base import KernelPass


@dataclass(frozen=True)
class Stream(KernelPass):
    """Give write-only accesses the hint "streaming" where all that the kernel touches is more than `whole` of the last-level cache.

    As long as that stays in the cache, the next run, or whoever reads the result, finds it there. A result that is
    written across its operands passes by from `share` of the cache on, or sooner where that is far: its lines come one
    by one. A result below `share` never does.
    """

    share: float = SHARE
    whole: float = 0.75

    def rewrite(self, kernel: Block, target: Target) -> Block:
        view = open_kernel(kernel)
        if view is None:
            return kernel
        last = target.settings.l3_bytes
        limit = self.share * last
        if _runs_across(view):
            limit = lines_far_from(target.machine, target.settings, self.share)
        elif _touched(view) < self.whole * last:
            return kernel
        large = {b for b in view.writes() - view.reads() if nbytes(view.type_of(b)) >= limit}
        if not large:
            return kernel
        return close_kernel(view.map_uses(lambda u: replace(u, hint="streaming") if u.buffer in large else u))


def _touched(view: KernelView) -> int:
    """Bytes in memory that the kernel reads and writes: of a buffer no more than it has."""
    reached: dict[str, int] = {}
    for stage in view.stages:
        times = points(stage, view.ranges)
        for use in stage.uses:
            reached[use.buffer] = reached.get(use.buffer, 0) + times * view.type_of(use.buffer).dtype.bytes
    return sum(min(n, nbytes(view.type_of(b))) for b, n in reached.items() if not view.is_local(b))


def _runs_across(view: KernelView) -> bool:
    """A copy or an elementwise kernel that reads nothing along what it writes: its lines come one by one."""
    if len(view.stages) != 1 or not is_elementwise(view.stages[0]):
        return False
    uses = view.stages[0].uses
    along = {n for u in uses if u.writes for n in view.ranges if flat_stride(view, u, n) == 1}
    steps = [flat_stride(view, u, n) for u in uses if u.reads for n in along]
    return any(step > 1 for step in steps) and 1 not in steps
