"""What is asked of a kernel for each other one that may join it, found once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tile_ir.stripe.affine import names_in

from tile_opt.kernel.bodies import facts
from tile_opt.kernel.pointwise import pointwise_sizes
from tile_opt.kernel.regroup import around
from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.unify import SharedLoop, is_atomic, is_indirect, shared_loops
from tile_opt.kernel.view import KernelView, Stage
from tile_opt.kernel.work import merged_use, nbytes, op_cost, points, view_carries, view_is_heavy
from tile_opt.plan.space.facts import Facts
from tile_opt.plan.steps.alike import alike


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


def waits_for_all(view: KernelView) -> bool:
    """Some stage uses what any iteration of another merges into, wherever data says."""
    merged = {u.buffer for s in view.stages for u in s.uses if is_atomic(s, u)}
    return any(sum(b in {u.buffer for u in s.uses} for s in view.stages) > 1 for b in merged)


def walks_rows(view: KernelView) -> bool:
    """The stage with the most points has a loop of its own along the memory of the largest buffers that it reads."""
    ranges = view.ranges
    stage = max(view.stages, key=lambda s: points(s, ranges))
    reads = [(nbytes(view.type_of(u.buffer)), u) for u in stage.uses if u.reads and not view.is_local(u.buffer)]
    most = max((size for size, _ in reads), default=0)
    return any(flat_stride(view, u, i.name) == 1 for i in stage.loops for size, u in reads if size == most)


def slides(view: KernelView) -> Callable[[Stage], bool]:
    """Whether a stage reads a local buffer along two loops of its own at once, as a window does."""

    def moves(stage: Stage) -> bool:
        own = set(stage.loop_names)
        reads = (u for u in stage.uses if u.reads and not u.writes and view.is_local(u.buffer))
        return any(len(own.intersection(f.names)) > 1 for u in reads for f in u.forms)

    return moves


def shares_columns(view: KernelView) -> bool:
    """Items of a group may divide the loops of all stages between them: they are the same ones."""
    facts = Facts(alike(view))
    own = frozenset(facts.main.loop_names)
    return all({*s.loop_names} in (own, set()) for s in facts.view.stages) and facts.may_share(own)


def makes_rows_alone(view: KernelView) -> bool:
    """A stage reads, where data says, a row of the kernel's own that its items do not share the making of."""
    chosen = {
        u.buffer for s in view.stages for u in s.uses if u.reads and view.is_local(u.buffer) and is_indirect(s, u)
    }
    if not chosen:
        return False
    facts = Facts(alike(view))
    makers = (s for s in facts.view.stages if any(u.writes and u.buffer in chosen for u in s.uses))
    return any(not {*s.loop_names} <= {*facts.main.loop_names} for s in makers)
