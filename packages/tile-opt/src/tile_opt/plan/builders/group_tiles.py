"""A contraction on the items of groups: tiles of shared loops, operands staged step by step, register tiles.

    kernel [grid] {                                 one group per output tile
      local copies
      group [items] {
        registers; init
        outer reduction loops {
          what the steps leave of the reduction, in the same way
          fetch step 0
          steps { Sync; put; Sync; fetch the next step; accumulate }
        }
        output stages
      }
    }

Each part is a step from tree to tree of `plan.steps`; which of them are taken, and how large, is the plan's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tile_ir.frozen import frozen, replace
from tile_ir.stripe.affine import Affine, intervals
from tile_ir.stripe.nodes import Bind, Block, Direction, Index, Order, Refinement, Sync, TensorType

from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import MERGING, merged_use, prepares
from tile_opt.plan.plan import Level, Plan, Staging
from tile_opt.plan.steps.groups.axes import Axis, axis_of, choices, combinations, cut_loop, item_levels
from tile_opt.plan.steps.groups.copy import GroupCopy, Items, group_copy
from tile_opt.plan.steps.groups.overlaps import with_shared_overlaps
from tile_opt.plan.steps.groups.teams import Teams
from tile_opt.plan.steps.groups.window import Window, side_by_side, window
from tile_opt.plan.tree import REGISTER, Nest, Node, close_tree


def build_group_tiles(view: KernelView, main: Stage, plan: Plan) -> Block:
    """The scheduled kernel: the plan's levels around `main`, a sibling per combination of edge and interior groups."""
    return close_tree(view, group_tiles(view, main, plan))


def group_tiles(view: KernelView, main: Stage, plan: Plan) -> Nest:
    """The tree of the scheduled kernel."""
    ranges = view.ranges
    options = [choices(plan, axis_of(plan, loop), main.constraints, ranges) for loop in view.loops]
    groups = [GroupTile(view, main, plan, axes, n) for n, axes in enumerate(combinations(options))]
    grid = tuple(found[0].grid for found in options if found[0].grid is not None)
    shared = [
        r for g in groups[:1] for r in (*(c.local for c in (*g.staged, *g.given)), *(t.buffer for t in g.sharing))
    ]
    locals_ = {r.into: r for r in shared}
    return Nest(view.name, grid, tuple(g.nest() for g in groups), allocs=tuple(locals_.values()))


@frozen
class Part:
    """A stretch of the stepped loop that is staged at once: `deep` iterations from `start`, a form of the step."""

    start: Affine
    deep: int
    last: int = 0
    """The largest number of a step at which it is staged."""


@dataclass(frozen=True)
class GroupTile:
    """What the groups of one sibling do; `axes` are the shared loops in the order of the view."""

    view: KernelView
    main: Stage
    plan: Plan
    axes: tuple[Axis, ...]
    number: int
    outside: tuple[Index, ...] = ()
    """Loops around all of it."""
    present: frozenset[str] = frozenset()
    """Buffers that hold what these groups need, edges included: nobody has to look where they end."""

    # --- loops ----------------------------------------------------------------------------------------

    @cached_property
    def forms(self) -> dict[str, Affine]:
        return {a.loop: a.form for a in self.axes}

    @cached_property
    def items(self) -> tuple[Index, ...]:
        """Indexes of the group's items: levels outermost first, each in the plan's order; the last is the fastest."""
        found: list[Index] = []
        by_loop = {a.loop: a for a in self.axes}
        for depth, level in enumerate(item_levels(self.plan)):
            mine = [c.loop for c in level.covers]
            names = [*mine, *(a.loop for a in self.axes if a.loop not in mine)]
            found += [i for n in names if (i := by_loop[n].items[depth]) is not None]
        return tuple(replace(i, axis=0) for i in (*self.teams, *found))

    @cached_property
    def teams(self) -> tuple[Index, ...]:
        """The index of teams of items that share the reduction of a tile; empty where each cell has one item."""
        cover = next((c for v in self._within for c in v.covers if v.bind is Bind.GROUP), None)
        return (Index(f"{cover.loop}_w", self.deep // cover.size, bind=Bind.GROUP),) if cover is not None else ()

    @property
    def _within(self) -> tuple[Level, ...]:
        """The levels inside a step."""
        return () if self.step is None else self.plan.levels[self._start :]

    @cached_property
    def run(self) -> tuple[Index, ...]:
        """What one item keeps: pieces outside, then their elements, the vector last."""
        indexes = [i for a in self.axes for i in a.run]
        inner = self._innermost
        return tuple(sorted(indexes, key=lambda i: (i.bind is Bind.VECTOR, i.name.endswith("_i"), i.name == inner)))

    @property
    def _innermost(self) -> str:
        """The run that an unrolled window slides along stays beside the vector."""
        named = [c.loop for v in self.plan.bound(Bind.UNROLL) for c in v.covers if c.loop in self.forms]
        return f"{named[-1]}_i" if named else ""

    @cached_property
    def step(self) -> Level | None:
        """The level whose points stage operands, or load windows of several iterations: its last loop goes in steps."""
        numbers = [s.level for s in self.plan.stagings if s.unit == "LOCAL" and s.operand not in self._results]
        if numbers:
            return self.plan.levels[max(numbers)]
        return next((v for v in self.plan.bound(Bind.NONE) if v.covers[-1].size > 1 and self._loads_windows(v)), None)

    def _loads_windows(self, level: Level) -> bool:
        """A point of the level loads what items keep in registers."""
        return any(s.unit == "REG" and self.plan.levels[s.level] is level for s in self.plan.stagings)

    @cached_property
    def _results(self) -> dict[str, Staging]:
        """Stored buffers whose results meet in local memory first."""
        stored = {u.buffer for u in self.view.uses if u.writes and not self.view.is_local(u.buffer)}
        return {s.operand: s for s in self.plan.stagings if s.unit == "LOCAL" and s.operand in stored}

    @cached_property
    def stepped(self) -> Index:
        """The loop that goes in steps, as far as these groups get along it."""
        assert self.step is not None
        name = self.step.covers[-1].loop
        loop = next(i for i in self.main.loops if i.name == name)
        spans = self._spans(loop)
        ends = (_end(name, c, spans) for c in self.main.constraints if c.coefficient(name) < 0)
        return replace(loop, range=min((loop.range, *ends)))

    @property
    def deep(self) -> int:
        """Iterations of the stepped loop in one step."""
        assert self.step is not None
        return self.step.covers[-1].size

    @cached_property
    def outer(self) -> tuple[Index, ...]:
        """Reduction loops around the steps, or around the windows."""
        covers = [c for v in self.plan.levels[: self._start] if v.bind is Bind.NONE for c in v.covers]
        loops = {i.name: i for i in self.main.loops}
        return tuple(
            replace(loops[c.loop], order=Order.ORDERED) for c in (covers if self.step is None else covers[:-1])
        )

    @cached_property
    def _start(self) -> int:
        """The first level inside the one whose points stage operands, or load windows of them."""
        if self.step is not None:
            return self.plan.levels.index(self.step) + 1
        return 1 + max((s.level for s in self.plan.stagings), default=-1)

    @cached_property
    def bindings(self) -> dict[str, tuple[tuple[int, Bind, int], ...]]:
        """Per reduction loop inside a step its levels: place in the plan's order, bind, and iterations of a point."""
        own = [i.name for i in self.main.loops]
        inside = [(c.loop, v.bind, c.size) for v in self.plan.levels[self._start :] for c in v.covers]
        listed = list(enumerate(inside))
        return {n: tuple((k, bind, size) for k, (loop, bind, size) in listed if loop == n) for n in own}

    def _inside(self, part: Part) -> tuple[tuple[Index, ...], dict[str, Affine]]:
        """Reduction loops of one part, and what replaces cut ones."""
        outside = {i.name for i in self.outer}
        full = not self._staged or part.deep == self.deep
        found: list[tuple[int, Index]] = []
        values: dict[str, Affine] = {}
        for loop in self.main.loops:
            if loop.name in outside:
                continue
            levels = self.bindings[loop.name] or ((len(self.main.loops), Bind.NONE, 1),)
            team = f"{loop.name}_w"
            if self.step is not None and loop.name == self.stepped.name:
                loop = Index(f"{loop.name}_i", part.deep)
                levels = levels if full else self._shorter(part.deep, levels[0][0])
            indexes, values[loop.name] = cut_loop(loop, levels, team)
            found += indexes
        return tuple(i for _, i in sorted(found, key=lambda f: f[0])), values

    def _shorter(self, deep: int, place: int) -> tuple[tuple[int, Bind, int], ...]:
        """The levels of a part that is no whole step."""
        shares = ((place, Bind.GROUP, -(-deep // t.range)) for t in self.teams)
        return (*shares, (place, Bind.NONE, 1))

    @property
    def _step_index(self) -> Index:
        return Index(f"{self.stepped.name}_s", self.stepped.range // self.deep, order=Order.ORDERED)

    # --- buffers --------------------------------------------------------------------------------------

    @cached_property
    def registers(self) -> dict[str, Refinement]:
        """The kernel's own buffers with a cell for each element of an item's tile."""
        return {a.into: self._grown(a) for a in self.view.allocs}

    def _grown(self, alloc: Refinement) -> Refinement:
        sizes = alloc.type.sizes + tuple(i.range for i in self.run)
        type = TensorType.row_major(alloc.type.dtype, sizes, align=16)
        return replace(alloc, type=type, access=(Affine(),) * len(sizes), loc=REGISTER)

    def copies(self, part: Part, suffix: str = "") -> tuple[GroupCopy, ...]:
        """The copies of each staged operand's box of one part."""
        lanes = self._lanes if part.deep == self.deep else {}
        return tuple(self._copy(u, s, part, suffix, lanes.get(u.name)) for u, s in self._staged)

    @cached_property
    def _lanes(self) -> dict[str, int]:
        """How long the pieces of an operand are in every whole step: what one place of the tree fetches another one puts."""
        return {u.name: self._copy(u, s, self._any).plan.lanes for u, s in self._staged}

    @cached_property
    def _staged(self) -> tuple[tuple[Use, Staging], ...]:
        wanted = {s.operand: s for s in self.plan.stagings if s.unit == "LOCAL"}
        return tuple((u, wanted[u.buffer]) for u in staged_operands(self.view, self.main) if u.buffer in wanted)

    def _copy(self, use: Use, staging: Staging, part: Part, suffix: str = "", lanes: int | None = None) -> GroupCopy:
        within = f"{self.stepped.name}_i"
        forms = tuple(f.substitute(self._values(part)) for f in use.forms)
        outside = {self.stepped.name, *(i.name for i in self.outer)}
        whole = [i for i in self.main.loops if i.name not in outside]
        inner = {i.name: i.range for i in (*self.run, *self.items, *whole)} | {within: part.deep}
        names = {"local": f"{use.name}_local", "held": f"{use.name}_held{suffix}"}
        source = self.view.type_of(use.buffer)
        around, items = self._around(part), Items(self.items)
        copy = group_copy(use, forms, source, staging, inner, around, items, names, lanes=lanes)
        # A shorter part uses the memory of a whole step.
        return copy if part.deep == self.deep else replace(copy, local=self._copy(use, staging, self._any).local)

    def _around(self, part: Part) -> dict[str, tuple[int, int]]:
        """Intervals of the loops around the copies of a part."""
        around = intervals({i.name: i.range for i in (*self.outside, *self.outer)})
        around[self._step_index.name] = (0, part.last)
        return around | {a.grid.name: a.tiles for a in self.axes if a.grid is not None}

    @cached_property
    def _any(self) -> Part:
        """A step, whichever it is."""
        index = self._step_index
        start = Affine.var(index.name, self.deep) if index.range > 1 else Affine()
        return Part(start, self.deep, max(0, index.range - 1))

    # --- the tree -------------------------------------------------------------------------------------

    def nest(self) -> Nest:
        """The items of these groups around all stages."""
        body: list[Node] = []
        for stage in self.view.stages:
            body += [*self.reduced(), *self._combined()] if stage is self.main else self._beside(stage)
        guard = tuple(g for a in self.axes for g in a.guard)
        held = (*(c.held for c in self.staged), *(w.held for w in self.windows(self._whole)))
        name = f"{self.view.name}_group{self.number}"
        return Nest(name, self.items, tuple(body), (), guard, tuple(self.registers.values()) + held)

    @cached_property
    def staged(self) -> tuple[GroupCopy, ...]:
        """The copies of the first step; none where operands are read from where they are."""
        return self.copies(Part(Affine(), self.deep)) if self._staged else ()

    def windows(self, part: Part) -> tuple[Window, ...]:
        """What an item keeps in registers, for one part, of operands that are read from where they are."""
        local = {s.operand for s in self.plan.stagings if s.unit == "LOCAL"}
        kept = {s.operand: s for s in self.plan.stagings if s.unit == "REG" and s.operand not in local}
        loops, cut = self._inside(part)
        inner, suffix = {i.name: i for i in (*loops, *self.run)}, "" if part == self._whole else "_rest"
        found = (u for u in staged_operands(self.view, self.main) if u.buffer in kept)
        moved = ((u, [f.substitute(self._values(part)).substitute(cut) for f in u.forms]) for u in found)
        return tuple(self._window(u, tuple(forms), kept[u.buffer], inner, suffix) for u, forms in moved)

    def _window(
        self, use: Use, forms: tuple[Affine, ...], staging: Staging, inner: Mapping[str, Index], suffix: str
    ) -> Window:
        source = self.view.type_of(use.buffer)
        return window(use, forms, source, inner, staging.kept_as(source.dtype), f"{use.name}_window{suffix}")

    def _values(self, part: Part) -> dict[str, Affine]:
        """The shared loops, and that which goes in steps, for one part."""
        if self.step is None:
            return dict(self.forms)
        return self.forms | {self.stepped.name: part.start + Affine.var(f"{self.stepped.name}_i")}

    @property
    def _whole(self) -> Part:
        """A whole step, or all of the reduction."""
        return Part(Affine(), 0) if self.step is None else self._any

    @property
    def _ahead(self) -> bool:
        """The next step is fetched into registers while one is computed."""
        return any(s.unit == "REG" and s.level > 0 for s in self.plan.stagings)

    def reduced(self) -> list[Node]:
        """The whole reduction."""
        steps = self._steps() if self.step is not None and self._step_index.range else ()
        body: list[Node] = (
            self._accumulated((), Affine(), self._whole) if self.step is None else [*self._rest(), *steps]
        )
        if any(s.versions > 1 for _, s in self._staged) and self.outer:
            # The next iteration may not write what others still read.
            body.append(Sync())
        if not self.outer:
            return body
        return [Nest(f"{self.view.name}_outer{self.number}", self.outer, tuple(body))]

    @property
    def sharing(self) -> tuple[Teams, ...]:
        """How teams of items share the reduction, where they do."""
        out = merged_use(self.main)
        assert out is not None
        cells = replace(out, forms=out.forms + tuple(Affine.var(i.name) for i in self.run))
        dtype, name = self.view.type_of(out.buffer).dtype, f"{out.buffer}_shared"
        return tuple(Teams(t, self.items[1:], self.run, cells, dtype, name) for t in self.teams)

    def _combined(self) -> list[Node]:
        return [node for t in self.sharing for node in t.combined()]

    @property
    def _left(self) -> int:
        """Iterations of the reduction beyond the whole steps."""
        return self.stepped.range % self.deep

    def _rest(self) -> Iterator[Node]:
        """The last iterations of the reduction, fewer than a step: they go first, and step 0 is fetched beside them."""
        if not self._left:
            return
        part = Part(Affine((), self.stepped.range - self._left), self._left)
        copies = self.copies(part, "_rest")
        before = Affine((), prod(s.versions for _, s in self._staged) - 1)
        ahead = [c.fetch() for c in self.staged] if self._ahead and self._step_index.range else []
        filled = (*(c.fetch() for c in copies), *self._filled(copies, before))
        body = (*filled, *ahead, *self._accumulated(copies, before, part))
        held = (*(c.held for c in copies), *(w.held for w in self.windows(part)))
        yield Nest(f"{self.view.name}_rest{self.number}", (), body, allocs=held)

    def _accumulated(self, copies: Sequence[GroupCopy], step: Affine, part: Part) -> list[Node]:
        """One part from what has been copied, or from where it is: through windows as far as the plan has them."""
        sums = self._accumulate(copies, step, part)
        own = {name: r.type for name, r in self.registers.items()}
        return [sums] if copies else [*(w.fetch() for w in self.windows(part)), with_shared_overlaps(sums, own)]

    def _steps(self) -> Iterator[Node]:
        index, part = self._step_index, self._any
        step = Affine.var(index.name) if index.range > 1 else Affine()
        now = self.copies(part)
        if self._ahead and not self._left:
            yield from (c.fetch() for c in self.staged)
        body: list[Node] = [] if self._ahead else [c.fetch() for c in now]
        body += self._filled(now, step)
        if self._ahead and index.range > 1:
            later = Part((step + 1) * self.deep, self.deep, index.range - 2)
            body += [c.fetch((step * -1 + later.last,)) for c in self.copies(later)]
        body += self._accumulated(now, step, part)
        if index.range > 1:
            yield Nest(f"{self.view.name}_steps{self.number}", (index,), tuple(body))
        else:
            yield from body

    def _filled(self, copies: Sequence[GroupCopy], step: Affine) -> Iterator[Node]:
        """Local memory with the operands of `step`, visible to all items."""
        if not copies:
            return
        if all(c.local.versions == 1 for c in copies):
            yield Sync()
        yield from (c.put(step) for c in copies)
        yield Sync()

    def _accumulate(self, copies: Sequence[GroupCopy], step: Affine, part: Part) -> Stage:
        """What one part adds to the item's tile."""
        staged = {c.use.name: c for c in copies}
        kept = {w.use.name: w for w in self.windows(part)}
        uses = tuple(self._moved(u, staged.get(u.name), kept.get(u.name), step) for u in self.main.uses)
        constraints = [*self._open(), *self._unstaged_limits(staged)]
        if self.step is not None:
            within = Affine.var(f"{self.stepped.name}_i")
            constraints += [within * -1 + (part.deep - 1)] if any(part.deep % t.range for t in self.teams) else []
        loops, cut = self._inside(part)
        stage = replace(self.main, uses=uses, loops=loops + self.run, constraints=tuple(constraints))
        return stage.substitute(self._values(part)).substitute(cut)

    def _moved(self, use: Use, copy: GroupCopy | None, kept: Window | None, step: Affine) -> Use:
        if copy is not None:
            return replace(use, buffer=copy.local.into, forms=copy.inside(step))
        if kept is not None:
            return replace(use, buffer=kept.held.into, forms=kept.inside)
        if self.view.is_local(use.buffer):
            return replace(use, forms=use.forms + tuple(Affine.var(i.name) for i in self.run))
        return use

    def _spans(self, *stepped: Index) -> dict[str, tuple[int, int]]:
        """Intervals of all loops that a stage may name."""
        ranges = self.view.ranges | {i.name: i.range for i in (*self.outside, *stepped)}
        return intervals(ranges) | {a.loop: (a.span[0], a.span[1] - 1) for a in self.axes}

    def _open(self) -> tuple[Affine, ...]:
        """Constraints that some iteration of these groups violates."""
        spans = self._spans(*(() if self.step is None else (self.stepped,)))
        return tuple(c for c in self.main.constraints if c.bounds(spans)[0] < 0)

    def _unstaged_limits(self, staged: dict[str, GroupCopy]) -> tuple[Affine, ...]:
        """Items beyond the end of a loop must not read memory that is not there."""
        near = {*staged, *(w.use.name for w in self.windows(self._whole))}
        here = {a.into for a in self.view.allocs} | self.present
        direct = [u for u in self.main.uses if u.name not in near and u.buffer not in here]
        names = {n for u in direct for f in u.forms for n in f.names}
        return self.limits(names)

    def limits(self, names: Set[str]) -> tuple[Affine, ...]:
        """What keeps items inside the loops that tiles reach beyond; lanes that end together are not told apart."""
        return tuple(_inside(a) for a in self.axes if a.ragged and a.loop in names)

    def _beside(self, stage: Stage) -> list[Node]:
        """Another stage over the item's tile; what lies over the end touches no memory."""
        local = self.view.is_local
        copies = {c.use.name: c for c in self.given if c.use in stage.uses}
        cells = tuple(Affine.var(i.name) for i in self.run)
        kept = {n: Use(n, c.local.into, c.inside(Affine()), Direction.OUT) for n, c in copies.items()}
        uses = tuple(replace(u, forms=u.forms + cells) if local(u.buffer) else u for u in stage.uses)
        outside = [u for u in uses if not local(u.buffer) and u.name not in kept]
        limits = self.limits({a.loop for a in self.axes}) if outside else ()
        first = () if prepares(self.view, stage, self.main) else tuple(t.first for t in self.sharing if outside or kept)
        moved = replace(
            stage, uses=uses, loops=stage.loops + self.run, constraints=(*stage.constraints, *limits, *first)
        ).substitute(self.forms)
        moved = replace(moved, uses=tuple(kept.get(u.name, u) for u in moved.uses))
        if any(w.wide for w in self.windows(self._whole)):
            moved = side_by_side(moved, self.view)
        return [moved, *([Sync()] if kept else []), *(c.give() for c in copies.values())]

    @cached_property
    def given(self) -> tuple[GroupCopy, ...]:
        """The copies of results on their way out of local memory; what several stages make, items store as they make it."""
        stages = [s for s in self.view.stages if not (s.constraints or s.loops or s.guard)]
        often = Counter(u.buffer for u in self.view.uses)
        uses = [u for s in stages for u in s.uses if u.buffer in self._results and often[u.buffer] == 1]
        plain = [u for u in uses if u.writes and not (u.reads or u.extent) and u.agg not in MERGING]
        plain = [u for u in plain if self._ends_with_loops(u)]
        copies = (self._given(u, self._results[u.buffer]) for u in plain)
        return tuple(c for c in copies if c.dense)

    def _ends_with_loops(self, use: Use) -> bool:
        """What a tile has beyond the end of a loop lies beyond the buffer too, so that its end keeps it from being stored."""
        ragged = {a.loop for a in self.axes if a.ragged}
        ends = {(Affine.var(n), self.view.ranges[n]) for n in ragged}
        dims = zip(use.forms, self.view.type_of(use.buffer).sizes, strict=True)
        return all(ragged.isdisjoint(form.names) or (form, size) in ends for form, size in dims)

    def _given(self, use: Use, staging: Staging) -> GroupCopy:
        forms = tuple(f.substitute(self.forms) for f in use.forms)
        inner = {i.name: i.range for i in (*self.run, *self.items[len(self.teams) :])}
        around = {a.grid.name: a.tiles for a in self.axes if a.grid is not None}
        names = {"local": f"{use.name}_local", "held": f"{use.name}_held"}
        source = self.view.type_of(use.buffer)
        return group_copy(use, forms, source, staging, inner, around, Items(self.items), names)


def _end(loop: str, constraint: Affine, spans: dict[str, tuple[int, int]]) -> int:
    """The first iteration of `loop` that `constraint` leaves out wherever the others are."""
    along = constraint.coefficient(loop)
    _, most = (constraint - Affine.var(loop, along)).bounds(spans)
    return max(0, most // -along + 1)


def _inside(axis: Axis) -> Affine:
    """``end - iteration``, each >= 0 within the loop: of the first lane where whole vectors fit."""
    lane = next((i for i in axis.run if i.bind is Bind.VECTOR), None)
    whole = lane is not None and all(n % lane.range == 0 for n in (axis.span[1], axis.size))
    if lane is None or not whole:
        return axis.form * -1 + (axis.span[1] - 1)
    return (axis.form - Affine.var(lane.name)) * -1 + (axis.span[1] - lane.range)


def staged_operands(view: KernelView, main: Stage) -> tuple[Use, ...]:
    """The operands that the items of a group may share."""
    return tuple(u for u in main.uses if u.reads and not u.writes and not view.is_local(u.buffer) and not u.extent)


def group_tile(view: KernelView, main: Stage, plan: Plan) -> GroupTile:
    """All groups of the plan, edges not told apart."""
    return GroupTile(view, main, plan, tuple(axis_of(plan, loop) for loop in view.loops), 0)
