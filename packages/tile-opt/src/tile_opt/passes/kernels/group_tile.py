"""group_tile: schedules contractions on GPUs without matrix instructions: operands tiled through local memory, results in registers.

For graphics processors. Kernels of other classes are left to the passes that follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from tile_ir.deadline import check
from tile_ir.stripe.nodes import Bind
from tile_ir.target import Target

from tile_opt.kernel.merging import merged
from tile_opt.kernel.view import KernelView, Stage
from tile_opt.kernel.work import merged_use
from tile_opt.model.contraction import contraction
from tile_opt.model.search import choose, surely_faster
from tile_opt.passes.scheduling import SchedulingPass, refused
from tile_opt.plan.build import Built
from tile_opt.plan.builders.group_tiles import build_group_tiles
from tile_opt.plan.panels import copied_before
from tile_opt.plan.plan import Across, Plan
from tile_opt.plan.space.gpu.tiles import along_rows, plans, ranked
from tile_opt.plan.steps.groups.share_reduction import SharedReduction, even_share, share_reduction, unshared

NEAR = 1.4
"""Times as long as the best, by the space's own forecast, that tiles may take whose kernels are estimated, too."""
FORMS = 2
"""How many tiles of other forms are, at most."""


@dataclass(frozen=True)
class GroupTile(SchedulingPass):
    """Tile each contraction for the registers of items and the local memory of groups."""

    def candidates(self, view: KernelView, target: Target) -> Iterator[Plan]:
        yield from plans(view, target)

    def choose(self, view: KernelView, target: Target) -> tuple[Plan, Built] | None:
        """The first candidate, or one of another form: the space does not see where neighbours meet in one bank.

        Windows along rows are taken where both the space and the estimates of the kernels take them for faster.
        """
        found = ranked(view, target)
        if not found:
            return None
        seconds, make = found[0]
        first = self._made(view, make(), target)
        if not first[1].alone:
            return first
        near = (make() for s, make in islice(found, 1, None) if s <= NEAR * seconds)
        others = (self._made(view, plan, target) for plan in islice(_other_forms(first[0], near), FORMS))
        alone = (pair for pair in others if pair[1].alone)
        best = surely_faster(target, first, seconds, alone, lambda pair: pair[1].kernel)
        rows = [self._made(view, make(), target) for s, make in along_rows(view, target)[:1] if s < seconds]
        return choose(target, best, rows, lambda pair: pair[1].kernel) if rows else best

    def _made(self, view: KernelView, plan: Plan, target: Target) -> tuple[Plan, Built]:
        check("a plan of", view.name)
        return plan, self.build(view, plan, target)

    def accepts(self, plan: Plan) -> bool:
        across = {r.across for r in plan.reductions}
        ours = {Across.SERIAL, Across.GROUPS}
        if any(s.unit == "LOCAL" for s in plan.stagings):
            ours.add(Across.ITEMS)
        return bool(plan.bound(Bind.GROUP)) and not plan.instruction and bool(across & ours)

    def build(self, view: KernelView, plan: Plan, target: Target) -> Built:
        view, plan, copies = copied_before(view, plan)
        return self._groups(view, plan).behind(copies, view)

    def _groups(self, view: KernelView, plan: Plan) -> Built:
        main = main_stage(view)
        if main is None:
            raise refused(f"kernel {view.name!r} has no stage that aggregates into a cell of its own")
        shared = next((r for r in plan.reductions if r.across is Across.GROUPS), None)
        if shared is None:
            return Built(build_group_tiles(view, main, plan))
        size = _even(view.ranges[shared.loop], shared.ways, plan, shared.loop)
        if size >= view.ranges[shared.loop]:
            return Built(build_group_tiles(view, main, unshared(plan)))
        parts = share_reduction(view, main, {shared.loop: size})
        kernel = build_group_tiles(parts.partial, parts.main, _partial_plan(plan, parts))
        return Built(kernel, after=(merged(parts.combine),), buffers=(parts.buffer,))


def _other_forms(first: Plan, plans: Iterable[Plan]) -> Iterator[Plan]:
    """The first plan of each way to deal out items and cells other than that of `first`."""
    seen = {first.bound(Bind.GROUP)}
    for plan in plans:
        if (form := plan.bound(Bind.GROUP)) not in seen:
            seen.add(form)
            yield plan


def main_stage(view: KernelView) -> Stage | None:
    """The stage that plans of this pass are about: the contraction, else the first that aggregates into a cell."""
    work = contraction(view)
    if work is not None:
        return work.main
    merged = ((s, merged_use(s)) for s in view.stages if s.loops)
    return next((s for s, out in merged if out is not None and view.is_local(out.buffer)), None)


def _even(extent: int, ways: int, plan: Plan, loop: str) -> int:
    """Whole steps in every share."""
    deep = next((c.size for v in plan.bound(Bind.NONE) if v.ordered and (c := v.cover(loop))), 1)
    return even_share(extent, ways, deep)


def _partial_plan(plan: Plan, parts: SharedReduction) -> Plan:
    """The plan of the kernel of partial results, whose results take the way that those of the kernel behind would."""
    known = {r.into for r in parts.partial.refs}
    return parts.plan(plan, (s if s.operand in known else replace(s, operand=parts.buffer.into) for s in plan.stagings))
