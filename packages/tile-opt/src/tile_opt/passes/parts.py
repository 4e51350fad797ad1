"""What is asked of a kernel for each other one that may join it, found once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from tile_ir.stripe.affine import names_in

from tile_opt.kernel.bodies import facts
from tile_opt.kernel.pointwise import pointwise_sizes
from tile_opt.kernel.regroup import around
from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.unify import SharedLoop, shared_loops
from tile_opt.kernel.view import KernelView
from tile_opt.kernel.work import merged_use, op_cost, points, view_carries, view_is_heavy


@dataclass
class Part:
    """A kernel whose loops are all in its stages."""

    view: KernelView

    @cached_property
    def sizes(self) -> tuple[int, ...] | None:
        """What it goes over element by element, if that is all it does."""
        return pointwise_sizes(self.view)

    @cached_property
    def cost(self) -> int:
        """Operations of one iteration of each stage."""
        return sum(map(op_cost, self.view.stages))

    @cached_property
    def points(self) -> int:
        """Iterations of all stages."""
        return sum(points(s, self.view.ranges) for s in self.view.stages)

    @cached_property
    def shared(self) -> tuple[SharedLoop, ...]:
        """The loops that all stages can share."""
        return shared_loops(self.view)

    @cached_property
    def around(self) -> KernelView:
        """The kernel with these loops around its stages."""
        return around(self.view, self.shared)

    @property
    def iterations(self) -> int:
        """Of the loops that all stages can share."""
        return prod(loop.index.range for loop in self.shared)

    @property
    def has_point(self) -> bool:
        """Some stage has no loops: whatever joins shares none with it."""
        return not all(s.loops for s in self.view.stages)

    @cached_property
    def is_heavy(self) -> bool:
        """It has a contraction."""
        return view_is_heavy(self.view)

    @cached_property
    def carries(self) -> bool:
        """It has a scan."""
        return view_carries(self.view)

    @cached_property
    def may_lose(self) -> bool:
        """More than iterations may be in the way of another part."""
        kept = self.is_heavy or self.carries or any(self.in_registers)
        return kept or any(facts(s.body).atomic for s in self.view.stages)

    @cached_property
    def in_registers(self) -> list[bool]:
        """For each stage whether it reduces contiguous memory to one cell for each iteration of the shared loops.

        Then each vector lane has an accumulator of its own; a cell that other loops of the stage move has none.
        """
        return [self._accumulates(k) for k in range(len(self.view.stages))]

    def _accumulates(self, k: int) -> bool:
        stage = self.view.stages[k]
        out = merged_use(stage)
        if out is None:
            return False
        cell = names_in(out.forms)
        inner = [i.name for i in stage.loops if i.name not in cell]
        reads = [u for u in stage.uses if u.reads and not u.writes]
        rows = any(flat_stride(self.view, u, name) == 1 for u in reads for name in inner)
        return rows and cell <= {loop.members[k] for loop in self.shared}
