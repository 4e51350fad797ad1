"""atomics: scatters with colliding rows run in parallel with atomic updates, where the order changes no result (integers)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tile_ir.ops import Aggregation
from tile_ir.stripe.nodes import Block, Order, Statement, Store
from tile_ir.target import Target

from tile_opt.kernel.view import KernelView, Stage, close_kernel, open_kernel
from tile_opt.passes.base import KernelPass


@dataclass(frozen=True)
class Atomics(KernelPass):
    """Merge integers of at least 32 and at most `widest` bits into cells that data chooses by atomic operations.

    Integer sums and products wrap, so that like maxima and minima they are the same in every order.
    """

    widest: int = 64

    def rewrite(self, kernel: Block, target: Target) -> Block:
        view = open_kernel(kernel)
        if view is None or view.loops or not any(self._merges(view, stage) for stage in view.stages):
            return kernel
        return close_kernel(replace(view, stages=tuple(self._unordered(view, s) for s in view.stages)))

    def _merges(self, view: KernelView, stage: Stage) -> bool:
        """All that a stage does in order is to merge integers into cells that data chooses."""
        stores = [s for s in stage.body if isinstance(s, Store)]
        if len(stores) != 1 or not any(isinstance(at, str) for at in stores[0].at):
            return False
        use = stage.use(stores[0].dst)
        dtype = view.type_of(use.buffer).dtype
        alone = all(u is use or u.buffer != use.buffer for u in stage.uses)
        merging = use.agg is not None and use.agg is not Aggregation.ASSIGN
        return alone and merging and dtype.is_integer and 32 <= dtype.bits <= self.widest

    def _unordered(self, view: KernelView, stage: Stage) -> Stage:
        if not self._merges(view, stage):
            return stage
        loops = tuple(replace(i, order=Order.FREE) for i in stage.loops)
        return replace(stage, loops=loops, body=tuple(map(_atomic, stage.body)))


def _atomic(statement: Statement) -> Statement:
    return replace(statement, atomic=True) if isinstance(statement, Store) else statement
