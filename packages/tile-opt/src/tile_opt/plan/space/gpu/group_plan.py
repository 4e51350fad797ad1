"""The plan that a tile of a contraction stands for: levels of items, orders and padding of local copies, edges."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd

from tile_ir.frozen import replace
from tile_ir.stripe.nodes import Bind, Index, Scope

from tile_opt.model.contraction import Contraction, Operand
from tile_opt.model.group_cost import Cost, GroupCost, Tile
from tile_opt.plan.builders.group_tiles import group_tile
from tile_opt.plan.plan import Across, Cover, Edge, Level, Plan, Reduction, Staging
from tile_opt.plan.steps.groups.banks import padding
from tile_opt.plan.steps.groups.copy import GroupCopy, conflicts, local_type, order_of

LANES_ACROSS = 8
"""Lanes of a sub-group along the vector loop: with the others along the run, each fragment is loaded by as few as can be."""
PIECE = 4
"""Elements of the pieces in which items take turns."""
PADS = 5
"""Paddings of a local copy that are weighed."""


@dataclass(frozen=True)
class GroupPlan:
    """A tile on its way to a plan."""

    work: Contraction
    tile: Tile
    cost: Cost
    costs: GroupCost

    def plan(self) -> Plan:
        """The plan, with the padding that meets the fewest bank conflicts."""
        found = self._unpadded()
        return replace(found, stagings=self._padded(found)) if self.tile.staged else found

    def _unpadded(self) -> Plan:
        tile = self.tile
        levels = [Level(Bind.GRID, tuple(Cover(n, tile.size(n)) for n in self.work.shared)), *self._items()]
        stagings = self._given(len(levels) - 1)
        if tile.staged:
            stagings = (*stagings, *self._stagings(len(levels)))
            covers = (*(Cover(n, 1) for n in self._outer), Cover(tile.stepped, tile.deep))
            levels.append(Level(Bind.NONE, covers, ordered=True))
        if tile.teams > 1:
            levels.append(Level(Bind.GROUP, (Cover(tile.stepped, tile.deep // tile.teams),)))
        levels += self._inside()
        if tile.lanes > 1:
            levels.append(Level(Bind.VECTOR, (Cover(tile.vector, 1),), tile.lanes))
        return Plan(tuple(levels), stagings, self._reductions(), self._edges(), reason=self._reason())

    # --- levels -----------------------------------------------------------------------------------------

    @cached_property
    def _outer(self) -> list[str]:
        """Reduction loops around the steps."""
        return [n for n in self.work.own if n != self.tile.stepped and n not in self.tile.whole]

    def _items(self) -> list[Level]:
        """Sub-groups, then their lanes, so that lanes share as many fragments as they can."""
        order, each = self._order, self.tile.each
        lanes = self._lanes()
        inner = Level(Bind.GROUP, tuple(Cover(n, each.get(n, 1), self._stride(n)) for n in order))
        if lanes is None or all(lanes[n] == self.tile.items[n] for n in order):
            return [inner]
        return [Level(Bind.GROUP, tuple(Cover(n, lanes[n] * each.get(n, 1)) for n in order)), inner]

    @cached_property
    def _order(self) -> list[str]:
        """Shared loops, last those along which neighbouring items lie: that of the results, so that they store side by side."""
        near = dict.fromkeys(n for n in (self.tile.vector, self.work.contiguous) if n is not None)
        return [n for n in self.work.shared if n not in near] + list(near)

    def _lanes(self) -> dict[str, int] | None:
        """Lanes of a sub-group along each loop; None where they do not come out even."""
        tile, left = self.tile, self.costs.occupancy.subgroup
        if tile.team % left or tile.team == left:
            return None
        across = tile.vector if self.work.contiguous in (None, tile.vector) else self.work.contiguous
        found = dict.fromkeys(self._order, 1)
        rest = sorted((n for n in self._order if n != across), key=lambda n: -tile.each.get(n, 1))
        for n in (across, *rest):
            found[n] = gcd(tile.items[n], min(left, LANES_ACROSS) if n == across and rest else left)
            left //= found[n]
        more = gcd(tile.items[across] // found[across], left)
        found[across] *= more
        return found if left == more else None

    def _stride(self, loop: str) -> int:
        """Elements of the pieces in which items take turns; 0 for one run, as windows slide along."""
        each = self.tile.each.get(loop, 1)
        vector = loop == self.tile.vector and self.tile.lanes > 1
        if self.work.partners(loop) and not vector:
            return 0
        piece = self.tile.lanes if vector else PIECE
        return piece if each > piece and each % piece == 0 else 0

    def _inside(self) -> list[Level]:
        """Loops within one step: serial ones, then what is unrolled, the run that a window slides along last."""
        tile, work, inner = self.tile, self.work, self.costs.own_inner(self.tile)
        unrolled = self.costs.unrolled(tile)
        serial = [Cover(n, unrolled.get(n, 1)) for n in inner if unrolled.get(n, 0) < inner[n]]
        runs = [n for n in work.shared if tile.each.get(n, 1) > 1 and (n != tile.vector or tile.lanes == 1)]
        runs.sort(key=lambda n: bool(work.partners(n)))
        levels = [Level(Bind.NONE, tuple(serial))] if serial else []
        straight = (*unrolled, *runs)
        return [*levels, *([Level(Bind.UNROLL, tuple(Cover(n, 1) for n in straight))] if straight else [])]

    # --- stagings ---------------------------------------------------------------------------------------

    def _stagings(self, level: int) -> tuple[Staging, ...]:
        """Local copies, and the registers in which the next step's elements wait."""
        orders: dict[str, dict[str, None]] = {}
        dtypes: dict[str, str] = {}
        for o in (o for o in self.work.operands if o.dims):
            orders.setdefault(o.use.buffer, {}).update(dict.fromkeys(self._copy_order(o)))
            dtypes[o.use.buffer] = o.kept.value if o.converts else ""
        local = [
            Staging(
                b, level, "LOCAL", self._last(tuple(order)), Scope.GROUP, versions=self.tile.versions, dtype=dtypes[b]
            )
            for b, order in orders.items()
        ]
        ahead = [Staging(b, level, "REG") for b in orders] if self.tile.ahead else []
        return (*local, *ahead)

    def _given(self, level: int) -> tuple[Staging, ...]:
        """Results that meet in local memory, where items would store theirs with gaps between."""
        if not self.costs.gathers(self.tile):
            return ()
        order = tuple(self.work.shared)
        return tuple(Staging(b, level, "LOCAL", order, Scope.GROUP) for b in {u.buffer for u in self.work.results})

    def _copy_order(self, o: Operand) -> list[str]:
        """Loops of the copy's dimensions, outermost first: last the one that items walk along."""
        each = self.tile.each
        named = [max((n for n, _ in d), key=lambda n: each.get(n, 1) > 1, default=None) for d in o.dims]
        return [n for n in dict.fromkeys(named) if n is not None]

    def _last(self, order: tuple[str, ...]) -> tuple[str, ...]:
        """`order` with the loops of the reduction outside, those that an item keeps last, the vector loop behind all.

        Then lanes of a sub-group are rows apart, which padding keeps in different banks.
        """
        each, shared = self.tile.each, self.work.shared
        own = {n for n in order if not self._moves_with(n, shared)}
        return tuple(sorted(order, key=lambda n: (n not in own, each.get(n, 1) > 1, n == self.tile.vector)))

    def _moves_with(self, loop: str, shared: Collection[str]) -> bool:
        """Some operand has a dimension that `loop` and a shared loop subscript."""
        dims = [{n for n, _ in d} for o in self.work.operands for d in o.dims]
        return loop in shared or any(loop in d and d & set(shared) for d in dims)

    def _padded(self, plan: Plan) -> tuple[Staging, ...]:
        """The stagings with the padding under which a sub-group's stores and loads meet least in the banks."""
        inputs = {o.use.buffer for o in self.work.operands}
        found = {s.operand: s for s in plan.stagings if s.unit == "LOCAL" and s.operand in inputs}
        group = group_tile(self.work.view, self.work.main, plan)
        for copy in group.staged:
            staging = found[copy.use.buffer]
            pad = min(self._pads(copy, staging, group.items))[1]
            found[copy.use.buffer] = replace(staging, pad=max(pad, staging.pad))
        made = (tuple(self._staged(s, found, single) for s in plan.stagings) for single in (False, True))
        return next((s for s in made if self._fits(plan, s)), plan.stagings)

    @staticmethod
    def _staged(staging: Staging, padded: Mapping[str, Staging], single: bool) -> Staging:
        """The padded staging; a `single` version of it where several are too large: rows in one bank cost more."""
        found = padded.get(staging.operand)
        if staging.unit != "LOCAL" or found is None:
            return staging
        return replace(found, versions=1) if single else found

    def _fits(self, plan: Plan, stagings: tuple[Staging, ...]) -> bool:
        group = group_tile(self.work.view, self.work.main, replace(plan, stagings=stagings))
        return sum(c.bytes for c in group.staged) + self.costs.result_bytes(self.tile) <= self.costs.local_bytes

    def _pads(self, copy: GroupCopy, staging: Staging, items: tuple[Index, ...]) -> Iterator[tuple[int, int]]:
        """(cycles in the banks, padding)."""
        order, dtype = order_of(copy.use, staging), copy.local.type.dtype
        for pad in padding(copy.box.extents[order[-1]], dtype.bytes)[:PADS]:
            type = local_type(copy.box.extents, order, dtype, pad)
            padded = replace(copy, local=replace(copy.local, type=type))
            yield conflicts(padded, self.costs.occupancy.subgroup, items), pad

    # --- reductions, edges ------------------------------------------------------------------------------

    def _reductions(self) -> tuple[Reduction, ...]:
        tile = self.tile
        shared = {tile.stepped: Reduction(tile.stepped, Across.ITEMS, tile.teams)} if tile.teams > 1 else {}
        if tile.ways > 1:
            shared[tile.split] = Reduction(tile.split, Across.GROUPS, tile.ways)
        return (*shared.values(), *(Reduction(n, Across.SERIAL) for n in self.work.own if n not in shared))

    def _edges(self) -> tuple[tuple[str, Edge], ...]:
        """Groups inside an image apart from those at its edges, where they are many; ends of ragged loops filled up."""
        tile, work = self.tile, self.work
        inner = {n: self.costs.conditions.inside(n, tile.size(n)) for n in work.shared}
        peel = self.costs.peels(tile)
        found: list[tuple[str, Edge]] = []
        for n, extent in work.shared.items():
            if inner[n] < 1:
                found.append((n, Edge.PEEL if peel else Edge.MASK))
            elif extent % tile.size(n):
                found.append((n, Edge.PAD if tile.staged else Edge.MASK))
        if tile.staged and work.own[tile.stepped] % tile.deep:
            found.append((tile.stepped, Edge.PEEL))
        return tuple(found)

    def _reason(self) -> str:
        tile, cost = self.tile, self.cost
        cells = " x ".join(str(e) for e in tile.each.values())
        teams = f" in {tile.teams} teams" if tile.teams > 1 else ""
        ways = f", the reduction shared by {tile.ways}" if tile.ways > 1 else ""
        return (
            f"{cost.groups} groups of {tile.count} items{teams} with {cells} cells{ways}: {cost.share:.0%} of peak, "
            f"{cost.resident} at once, bound by {cost.limit}"
        )
