"""Scatters into few cells: the items of a group merge into cells in its memory, and each of these then into the result.

Items that meet in a cell of the device's memory wait for the last cache, one after the other. In the group's own memory they
wait a few cycles, and groups meet once for each cell. So the kernel has three stages: cells start from the identity, values
merge into them, they merge into the result.
"""

from __future__ import annotations

from functools import cached_property, reduce
from math import prod

from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.powers import power_of_two
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block, Direction, Index, Load, Refinement, Store, TensorType, number_of

from tile_opt.kernel.merge_stages import concatenated, without_buffers
from tile_opt.kernel.unify import is_atomic, is_indirect
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.plan.plan import Cover, Level, Plan
from tile_opt.plan.steps.groups.homes import is_plain
from tile_opt.plan.steps.groups.spread import Spread
from tile_opt.plan.tree import ARRAY


@frozen
class Scattered:
    """The one access of a kernel that merges where data says; all loops of the kernel are shared."""

    use: Use
    agg: Aggregation

    @staticmethod
    def of(view: KernelView) -> Scattered | None:
        """None where a kernel has none, or several; what stages hand on, each iteration has for itself."""
        free = not (view.constraints or any(s.loops or s.constraints or s.guard for s in view.stages))
        merged = [(s, u) for s in view.stages for u in s.uses if u.agg is not None and is_atomic(s, u)]
        if not free or len(merged) != 1:
            return None
        ((stage, use),) = merged
        others = {u.buffer for u in view.uses if u.writes and u is not use}
        alone = all(is_plain(view.users(b)) and not any(u.agg for _, u in view.users(b)) for b in others)
        plain = all(f in (Affine(), *map(Affine.var, f.names)) for f in use.forms)
        chosen = is_indirect(stage, use) and len(view.users(use.buffer)) == 1
        return Scattered(use, use.agg) if use.agg is not None and alone and plain and chosen else None

    @property
    def shown(self) -> tuple[str, ...]:
        """Loops that are subscripts of the result."""
        return tuple(n for f in self.use.forms for n in f.names)

    def cells(self, tile: dict[str, int]) -> tuple[int, ...]:
        """What a group has of the result where it has so many iterations of each loop."""
        sizes = zip(self.use.forms, self.use.extent, strict=True)
        return tuple(tile[f.names[0]] if f.names else n for f, n in sizes)


def _in_one_stage(view: KernelView) -> KernelView:
    """What stages hand on goes through scalars."""

    def both(first: Stage, second: Stage) -> Stage:
        return concatenated(first, second, {u.buffer: u for u in first.uses if u.writes})

    whole = without_buffers(reduce(both, view.stages), {a.into for a in view.allocs})
    return replace(view, stages=(whole,), allocs=())


@frozen
class GroupBins:
    """Builds the kernel of a view whose result `plan` stages in local memory."""

    view: KernelView
    plan: Plan
    local_bytes: int

    def build(self) -> Block:
        """ValueError where the kernel has no such result."""
        found = Scattered.of(self.view)
        if found is None or {s.operand for s in self.plan.stagings} != {found.use.buffer}:
            raise ValueError("no result that data scatters is staged")
        made = _Bins(_in_one_stage(self.view), self.plan, found)
        return Spread(made.view_of_bins(), made.plan_of_bins(), self.local_bytes).build()


class _Bins:
    def __init__(self, view: KernelView, plan: Plan, found: Scattered) -> None:
        self.view, self.plan, self.found = view, plan, found
        self.tile = {i.name: plan.tile(i.name, 0, i.range) for i in view.loops}
        self.cells = found.cells(self.tile)
        self.taken = view.taken
        self.bins, item, near = (claim(n, self.taken) for n in (f"{found.use.buffer}_bins", "item", "near"))
        self._check()
        counts = [self._count(n) for n in self.dealt]
        # Neighbours are at neighbouring values; where these are all in one loop, they have neighbouring cells, too.
        width = counts[-1] if len(counts) > 1 else min(counts[0], power_of_two(self.cells[-1]))
        self.items = Index(item, prod(counts) // width), Index(near, width)
        self.steps = {n: Index(claim(f"{n}_step", self.taken), self._trips(n)) for n in self.tile}
        self.lanes = {n: Index(claim(f"{n}_lane", self.taken), self._wide(n)) for n in self.tile}

    def _check(self) -> None:
        if not 0 < len(self.dealt) <= 2:
            raise ValueError("items that share cells divide one loop or two")
        for loop in (i for i in self.view.loops if self.tile[i.name] < i.range):
            if self.tile[loop.name] % self._span(loop.name):
                raise ValueError(f"items and lanes do not divide a group's iterations of {loop.name!r}")

    # --- loops ----------------------------------------------------------------------------------------

    @cached_property
    def dealt(self) -> tuple[str, ...]:
        """Loops that items share."""
        return tuple(c.loop for level in self.plan.bound(Bind.GROUP) for c in level.covers)

    def _count(self, loop: str) -> int:
        """Items along a loop."""
        covers = (c for level in self.plan.bound(Bind.GROUP) if (c := level.cover(loop)))
        return next((self.tile[loop] // c.size for c in covers), 1)

    def _wide(self, loop: str) -> int:
        return next((level.lanes for level in self.plan.bound(Bind.VECTOR) if level.cover(loop)), 1)

    def _trips(self, loop: str) -> int:
        return -(-self.tile[loop] // (self._count(loop) * self._wide(loop)))

    def _inside(self, loop: str) -> Affine:
        """The iteration within the group's tile."""
        item = Affine()
        if loop in self.dealt:
            item = number_of(self.items if len(self.dealt) == 1 else self.items[self.dealt.index(loop) :][:1])
        wide = self._wide(loop)
        step = Affine.var(self.steps[loop].name, self._count(loop) * wide)
        return step + item * wide + Affine.var(self.lanes[loop].name)

    def _whole(self, loop: str) -> Affine:
        return Affine.var(loop, self.tile[loop]) + self._inside(loop)

    # --- the view and its plan --------------------------------------------------------------------------

    def view_of_bins(self) -> KernelView:
        """A shared iteration is what a group does."""
        view = self.view
        loops = tuple(replace(i, range=-(-i.range // self.tile[i.name])) for i in view.loops)
        type = TensorType.row_major(view.type_of(self.found.use.buffer).dtype, self.cells)
        bins = Refinement.allocation(self.bins, type, ARRAY)
        stages = (self._start(), *map(self._moved, view.stages), self._merge())
        return replace(view, loops=loops, stages=stages, allocs=(bins,))

    def plan_of_bins(self) -> Plan:
        """The levels of the plan, in the loops of the view."""
        levels = [
            Level(Bind.GRID, tuple(Cover(c.loop, 1) for level in self.plan.bound(Bind.GRID) for c in level.covers)),
            Level(Bind.GROUP, tuple(Cover(i.name, 1) for i in self.items)),
        ]
        for level in self.plan.bound(Bind.NONE, Bind.UNROLL):
            covers = (Cover(self.steps[c.loop].name, c.size // self._wide(c.loop)) for c in level.covers)
            levels.append(Level(level.bind, tuple(covers)))
        for level in self.plan.bound(Bind.VECTOR):
            levels.append(replace(level, covers=tuple(Cover(self.lanes[c.loop].name, 1) for c in level.covers)))
        return Plan(tuple(levels), reason=self.plan.reason)

    # --- stages -----------------------------------------------------------------------------------------

    def _moved(self, stage: Stage) -> Stage:
        """The stage over the iterations of a group, with the group's cells for the result."""
        ragged = (i for i in self.view.loops if i.range % (self.steps[i.name].range * self._span(i.name)))
        limits = tuple(self._whole(i.name) * -1 + (i.range - 1) for i in ragged)
        moved = stage.map_uses(self._use).substitute({n: self._whole(n) for n in self.tile})
        loops = (*self.steps.values(), *self.items, *self.lanes.values())
        return replace(moved, loops=loops, constraints=limits)

    def _span(self, loop: str) -> int:
        return self._count(loop) * self._wide(loop)

    def _use(self, use: Use) -> Use:
        if use.buffer != self.found.use.buffer:
            return use
        forms = tuple(self._inside(f.names[0]) if f.names else f for f in use.forms)
        return replace(use, buffer=self.bins, forms=forms)

    def _start(self) -> Stage:
        loops, cell, limits = self._each_cell("start")
        use = Use("acc", self.bins, cell, Direction.OUT)
        dtype = self.view.type_of(self.found.use.buffer).dtype
        return replace(Stage.start("start", loops, use, self.found.agg, dtype), constraints=limits)

    def _merge(self) -> Stage:
        """Each cell of the group into that of the result."""
        loops, cell, limits = self._each_cell("merge")
        beyond: list[Affine] = []
        there: list[Affine] = []
        for form, at in zip(self.found.use.forms, cell, strict=True):
            whole = Affine.var(form.names[0], self.tile[form.names[0]]) + at if form.names else at
            there.append(whole)
            if form.names and (size := self.view.ranges[form.names[0]]) % self.tile[form.names[0]]:
                beyond.append(whole * -1 + (size - 1))
        source = Use("src", self.bins, cell, Direction.IN)
        target = Use("dst", self.found.use.buffer, tuple(there), Direction.INOUT, self.found.agg)
        body = Load("$x", "src"), Store("dst", "$x", atomic=True)
        return Stage("merge", loops, (*limits, *beyond), (source, target), body)

    def _each_cell(self, name: str) -> tuple[tuple[Index, ...], tuple[Affine, ...], tuple[Affine, ...]]:
        """Loops over the group's cells, which items share along the last two dimensions; a cell, and what keeps it inside."""
        loops: list[Index] = list(self.items)
        cell: list[Affine] = []
        limits: list[Affine] = []
        missing = len(self.items) - len(self.cells)
        for d, size in enumerate(self.cells):
            number = d - (len(self.cells) - len(self.items))
            item = self.items[number] if number >= 0 else Index("", 1)
            step = Index(claim(f"{name}{d}", self.taken), -(-size // item.range))
            at = Affine.var(step.name, item.range) + (Affine.var(item.name) if number >= 0 else Affine())
            loops.append(step)
            cell.append(at)
            limits += [at * -1 + (size - 1)] if size % item.range else []
        idle = self.items[:missing] if missing > 0 else ()
        limits += [Affine.var(i.name) * -1 for i in idle if i.range > 1]
        return tuple(loops), tuple(cell), tuple(limits)
