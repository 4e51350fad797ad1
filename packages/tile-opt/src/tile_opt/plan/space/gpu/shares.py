"""How the items of a group divide loops between them, and what they may not divide."""

from __future__ import annotations

from math import prod

from tile_ir.frozen import frozen
from tile_ir.stripe.affine import names_in
from tile_ir.stripe.nodes import Bind

from tile_opt.kernel.work import merged_use
from tile_opt.plan.plan import Across, Plan, Reduction
from tile_opt.plan.space.facts import Facts
from tile_opt.plan.steps.groups.homes import is_plain


@frozen
class Share:
    """How a group divides one loop: `items` of them, `lanes` wide, each with `steps` such accesses."""

    loop: str
    items: int = 1
    lanes: int = 1
    steps: int = 1

    @property
    def span(self) -> int:
        """Iterations of the group."""
        return self.items * self.lanes * self.steps


def reduction(share: Share) -> Reduction:
    """Each item combines its lanes; items combine what they have."""
    if share.items > 1:
        return Reduction(share.loop, Across.ITEMS, share.items)
    return Reduction(share.loop, Across.LANES, share.lanes)


def partial_results(facts: Facts, plan: Plan) -> int:
    """What an item keeps, at most, of sums that items share: one for each of its cells."""
    covers = {c.loop: c.size for level in plan.bound(Bind.GROUP) for c in level.covers}
    each = prod(covers.get(n, 1) for n in facts.shared)
    kept = [1]
    for stage in facts.view.stages:
        merged = merged_use(stage)
        moved = set[str]() if merged is None else names_in(merged.forms)
        if any(n in covers and n not in moved for n in stage.loop_names):
            kept.append(prod(covers.get(n, facts.extent(n)) for n in stage.loop_names if n in moved))
    return each * max(kept)


def meet(facts: Facts, plan: Plan) -> bool:
    """Items would merge what they share of a sum into a cell that is not each item's own."""
    dealt = {c.loop for level in plan.bound(Bind.GROUP) for c in level.covers} - {*facts.shared}
    for stage in facts.view.stages:
        merged = merged_use(stage)
        if merged is None or dealt & {*stage.loop_names} <= names_in(merged.forms):
            continue
        users = facts.view.users(merged.buffer)
        if any(dealt & {*f.names} for _, u in users for f in u.forms) and not is_plain(users):
            return True
    return False
