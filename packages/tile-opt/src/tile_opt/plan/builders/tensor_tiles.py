"""A contraction on matrix instructions: sub-groups over a group's tile, operands copied ahead into local memory.

    kernel [grid] {                                 one group per output tile
      local copies, a version per step under way
      sub-groups of the group {
        accumulators in fragments; init
        copy the first steps
        outer reduction loops {
          steps { Wait; Sync; multiply, and copy a later step behind some of the slices }
          the last steps { Wait; Sync; multiply, and copy the first steps of the next round }
        }
        output stages
      }
    }

`multiply` is the step `tensorise`, the copies are those of `group_copy`; how large, and how many, is the plan's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from math import prod

from tile_ir.frozen import frozen, replace
from tile_ir.matrix import ROLES
from tile_ir.semtree.nodes import PRODUCTS
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import Bind, Block, Index, Order, Refinement, Scope, Sync, Wait, iteration_of

from tile_opt.kernel.instructions import Match
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import merged_use
from tile_opt.plan.builders.rounds import advanced
from tile_opt.plan.builders.tensor_cuts import Cuts, grows, zero_results
from tile_opt.plan.builders.tensor_plans import in_registers, in_tile, staged_results
from tile_opt.plan.builders.tensor_results import Parts, given, taken
from tile_opt.plan.builders.tensor_sizes import TensorSizes
from tile_opt.plan.plan import Plan
from tile_opt.plan.steps.groups.copy import GroupCopy, Items, Limit, Ranges, group_copy
from tile_opt.plan.steps.groups.fragments import LANE_INDEXES
from tile_opt.plan.steps.groups.team_copy import TeamCopy
from tile_opt.plan.steps.groups.tensorise import accumulators, on_fragments, tensorise
from tile_opt.plan.tree import GROUP_MEMORY, Around, Nest, Node, close_tree

BAND = 8
"""Tiles along the rows that groups go through together."""
SPARED, MANY_STEPS, LONG_STEP = 3, 12, 128 * 128
"""Steps of local memory from which on one more may serve products that go on instead of copies; steps of the reduction, and
results of a group, from which on it does (an H200: products of 2048 to 8192 by 3 to 7 % faster, smaller ones by 8 % slower)."""
FRAGMENT_DIMS = 4
"""Dimensions of a factor in fragments: matrices along rows and along the depth, and a matrix's own."""


def build_tensor_tiles(view: KernelView, match: Match, plan: Plan, *, collective: bool) -> Block:
    """The scheduled kernel; with `collective` the lanes of a sub-group load 16-bit fragments together.

    The plan has none of `tensor_checks.problems`.
    """
    return close_tree(view, TensorTile(view, match, plan, collective).nest())


@frozen
class Moment:
    """A step of the reduction: the iteration of each loop around the steps, and its number among these."""

    outer: Mapping[str, Affine]
    step: Affine


Move = Callable[[Moment, Ranges], Iterator[Stage]]
"""Part of the copies of a step, in loops that are known to be in narrower intervals."""


@dataclass(frozen=True)
class TensorTile(TensorSizes):
    """What the groups of a kernel do."""

    collective: bool = False
    held: Mapping[str, Refinement] = field(default_factory=dict[str, Refinement])
    """First factors that lie in fragments, or in the group's memory, already, by their names in the stage."""
    alone: bool = False
    """A group has all columns of its rows, one tile after the other."""

    # --- steps under way --------------------------------------------------------------------------------

    @property
    def ahead(self) -> int:
        """Steps that are under way while one is computed, of this round of the outer loops or of later ones; in the end all of them."""
        steps = self.steps * self.rounds
        return steps if self.once else min(max(1, self._versions - 1 - self._behind), steps)

    @property
    def once(self) -> bool:
        """Every step has a place of its own, and nothing is copied over it."""
        return self.steps * self.rounds <= self._versions and not self.through

    @property
    def _versions(self) -> int:
        return min(s.versions for s in self.staged.values())

    @cached_property
    def through(self) -> bool:
        """Factors go through registers: these are fetched a step before they are put into local memory."""
        return self._team and not in_registers(self.plan, Bind.NONE).isdisjoint(self.staged)

    @cached_property
    def rounded(self) -> bool:
        """The items of a team round what they read of the first factor."""
        return self._team and self.match.main.use(self.match.left).buffer in in_registers(self.plan, Bind.UNROLL)

    @property
    def _behind(self) -> int:
        """Steps whose products may go on while the next ones start: these read what no copy may yet write anew.

        One, where the copies of a step less under way still come in time: steps are many, and take long. What items have
        rounded is in registers, which two steps in turn fill: a round of a single one would write what products still read.
        """
        if self.match.cuts:
            return 0
        spared = self._versions > (2 if self.through else SPARED) and not (self.rounded and self.steps == 1)
        many = self.steps * self.rounds >= MANY_STEPS
        return int(self._team and spared and many and prod(self.group.values()) >= LONG_STEP)

    # --- loops ------------------------------------------------------------------------------------------

    @cached_property
    def grid(self) -> tuple[Index, ...]:
        counts = {i.name: -(-i.range // self.group[i.name]) for i in self.view.loops}
        rows, band = self.loops["m"], self.band
        counts[rows] = -(-counts[rows] // band)
        tiles = [Index(f"{n}_g", count, bind=Bind.GRID) for n, count in counts.items() if count > 1]
        return (*tiles, *([Index(f"{rows}_b", band, bind=Bind.GRID)] if band > 1 else []))

    @cached_property
    def band(self) -> int:
        """Tiles along the rows that follow one another before the columns go on: what they fetch stays in the cache."""
        rows, columns = (-(-self.view.ranges[self.loops[role]] // self.group[self.loops[role]]) for role in "mn")
        several = self._team and columns > 1 and not self.alone
        return max(n for n in range(1, BAND + 1) if rows % n == 0) if several else 1

    @cached_property
    def warps(self) -> tuple[Index, ...]:
        counts = {n: self.group[n] // size for n, size in self.warp.items()}
        return tuple(Index(f"warp_{n}", count, bind=Bind.SUBGROUP, axis=1) for n, count in counts.items())

    @property
    def _step(self) -> str:
        return f"{self.loops['k']}_s"

    def corner(self) -> dict[str, Affine]:
        """The first iteration of the group's part of every shared loop; groups with the most steps come first."""
        names, bands = {g.name for g in self.grid}, {self.loops["m"]: self.band}
        steps = {n: {f"{n}_g": size * bands.get(n, 1), f"{n}_b": size} for n, size in self.group.items()}
        found = {n: Affine.of({g: step for g, step in each.items() if g in names}) for n, each in steps.items()}
        last = {n: (-(-self.view.ranges[n] // size) - 1) * size for n, size in self.group.items()}
        return {n: form * -1 + last[n] if grows(self.match.cuts, n) else form for n, form in found.items()}

    def within_group(self) -> dict[str, Affine]:
        """Iterations of rows and columns inside the group's tile, by those inside the sub-group's."""
        return {n: Affine.var(f"warp_{n}", size) + Affine.var(in_tile(n)) for n, size in self.warp.items()}

    # --- buffers ----------------------------------------------------------------------------------------

    def copies(self, step: Affine) -> tuple[GroupCopy, ...]:
        """The copies of the operands' boxes of one step of this round."""
        return self._copies(self._now(step), {})

    def _copies(self, moment: Moment, spans: Ranges, lanes: Mapping[str, int] = {}) -> tuple[GroupCopy, ...]:
        factors = (n for n in (self.match.left, self.match.right) if n not in self.held)
        return tuple(self._copy(self.match.main.use(n), moment, spans, lanes.get(n)) for n in factors)

    def _copy(self, use: Use, moment: Moment, spans: Ranges, lanes: int | None) -> GroupCopy:
        depth, step = self.loops["k"], moment.step
        values = {n.removesuffix("_o"): at for n, at in moment.outer.items()} | self.corner()
        values[depth] = step * self.deep + Affine.var(in_tile(depth))
        values |= {i.name: Affine.var(in_tile(i.name)) for i in self.taps}
        inside = {in_tile(depth): self.deep} | {in_tile(i.name): i.range for i in self.taps}
        for n in self.warp:
            values[n] += Affine.var(in_tile(n))
            inside[in_tile(n)] = self.group[n]
        around = {i.name: (0, i.range - 1) for i in (*self.grid, *self.outer)}
        around |= {self._step: (0, self.steps - 1), **spans}
        forms = tuple(f.substitute(values) for f in use.forms)
        names = {"local": f"{use.name}_local", "held": f"{use.name}_held"}
        source, items = self.view.type_of(use.buffer), Items((*self.warps, *LANE_INDEXES))
        limits, staging = tuple(self._wanted(use, forms, step)), self.staged[use.buffer]
        return group_copy(
            use, forms, source, staging, inside, around, items, names, limits, turned=self.through, lanes=lanes
        )

    def _wanted(self, use: Use, forms: tuple[Affine, ...], step: Affine) -> Iterator[Limit]:
        """What a copy brings of an operand: what the constraints name, and no products behind the last one."""
        yield from (Limit(b.dim, b.sign, Affine((), b.const)) for b in self.match.bounds if b.factor == use.name)
        depth = self.loops["k"]
        extent = self.view.ranges[depth]
        dim = next(d for d, form in enumerate(use.forms) if form.coefficient(depth))
        if extent % self.deep:
            # At the last iteration, its place in the step being wherever that one is.
            last = forms[dim] - Affine.var(in_tile(depth), use.forms[dim].coefficient(depth))
            last = last.substitute({in_tile(i.name): self._farthest(i, use.forms[dim]) for i in self.taps})
            beyond = (step * -self.deep + (extent - 1)) * use.forms[dim].coefficient(depth)
            yield Limit(dim, -1, last + beyond)

    def _farthest(self, tap: Index, form: Affine) -> Affine:
        """The iteration of a tap at which the subscript is the largest."""
        return Affine((), tap.range - 1 if form.coefficient(tap.name) > 0 else 0)

    @cached_property
    def boxes(self) -> tuple[GroupCopy, ...]:
        """The copies of any step."""
        return self.copies(Affine.var(self._step))

    @property
    def local_bytes(self) -> int:
        return sum(r.type.nbytes * r.versions for r in self.locals)

    @property
    def locals(self) -> tuple[Refinement, ...]:
        """All that is in local memory."""
        return (*(c.local for c in self.boxes), *(r for p in self.given.values() for r in p.locals))

    @cached_property
    def sums(self) -> dict[str, Refinement]:
        """The kernel's own buffers, as fragments of the sub-group's whole tile."""
        roles = dict(zip((self.loops["m"], self.loops["n"]), self.match.instruction.c.sizes, strict=True))
        counts = tuple(size // roles.get(n, 1) for n, size in self.warp.items())
        return {a.into: accumulators(a, self.match.instruction, counts) for a in self.view.allocs}

    # --- the tree ---------------------------------------------------------------------------------------

    def nest(self) -> Nest:
        """The tree of the scheduled kernel."""
        body: list[Node] = []
        for stage in self.view.stages:
            body += self._summed() if stage is self.match.main else self._beside(stage)
        held = tuple(TeamCopy(c).held for c in self.boxes) if self.through else ()
        warps = Nest(f"{self.view.name}_warps", self.warps, tuple(body), allocs=(*self.sums.values(), *held))
        return Nest(self.view.name, self.grid, (warps,), allocs=self.locals)

    def _summed(self) -> Iterator[Node]:
        """The whole reduction; before its last products are complete, the first operands of the results are on their way."""
        *nodes, last = self._reduced()
        ahead = (s for p in self.given.values() for s in p.first())
        yield from (*nodes, *ahead, last) if isinstance(last, Wait) else (*nodes, last, *ahead)
        yield from self._zeroed()

    def _reduced(self) -> Iterator[Node]:
        """The whole reduction, copies running ahead of the products from one round of the outer loops into the next."""
        yield from self._prologue()
        if not self.outer:
            yield from self._round()
            return
        yield Nest(f"{self.view.name}_outer", self.outer, tuple(self._round()))
        yield from self._finished(0) if self._behind else ()

    def _prologue(self) -> Iterator[Node]:
        """What is under way before the first step."""
        for number in range(-self._reach, 0):
            started: list[Node] = []
            for distance, move in self._moves:
                if 0 <= number + distance < self.steps * self.rounds:
                    at, step = divmod(number + distance, self.steps)
                    started += self._started(move, Moment(self._digits(at), Affine((), step)))
            # A wait closes the batch of copies before it.
            yield from (
                *(self._due if number > -self._reach else ()),
                Nest(f"copy_step_{number + self._reach}", (), tuple(started)),
            )

    @property
    def _moves(self) -> tuple[tuple[int, Move], ...]:
        """What is done for later steps, and how many steps ahead of them."""
        return ((1, self._put), (2, self._fetch)) if self.through else ((self.ahead, self._ahead),)

    @property
    def _reach(self) -> int:
        """Steps ahead of which something is done for them."""
        return max(distance for distance, _ in self._moves)

    def _ahead(self, moment: Moment, spans: Ranges) -> Iterator[Stage]:
        """The copies of a step; `spans` are intervals of loops around them that are known to be narrower."""
        return (c.ahead(self._number(moment), LANE_INDEXES) for c in self._copies(moment, spans))

    def _fetch(self, moment: Moment, spans: Ranges) -> Iterator[Stage]:
        return (c.fetch() for c in self._by_registers(moment, spans))

    def _put(self, moment: Moment, spans: Ranges) -> Iterator[Stage]:
        return (c.put(self._number(moment)) for c in self._by_registers(moment, spans))

    def _by_registers(self, moment: Moment, spans: Ranges) -> Iterator[TeamCopy]:
        """The copies of a step, by the pieces of any: what one place of the tree fetches another one puts."""
        lanes = {c.use.name: c.plan.lanes for c in self.boxes}
        return (TeamCopy(c) for c in self._copies(moment, spans, lanes))

    def _digits(self, number: int) -> dict[str, Affine]:
        """The iterations of the outer loops in a round."""
        return {n: Affine((), digit) for n, digit in iteration_of(number, self.outer).items()}

    @property
    def _due(self) -> tuple[Wait, ...]:
        """The copies of the step that is due are there."""
        return () if self.through else (Wait(0, self.ahead - 1),)

    def _round(self) -> Iterator[Node]:
        """The steps of one round; beside the last ones goes what is done for the first steps of later rounds."""
        together = 2 if self.rounded and self._behind else 1
        loop = max(0, self.steps - self._reach) // together * together
        if loop:
            index = Index(self._step, loop // together, order=Order.ORDERED)
            each = [list(self._looped(Affine.var(self._step, together) + n)) for n in range(together)]
            begun = self._open(self.cuts.begun(Affine.var(self._step, together)))
            yield Nest(f"{self.view.name}_steps", (index,), tuple(chain.from_iterable(each)), begun)
        for number in range(loop, self.steps):
            last = number == self.steps - 1 and not self.outer
            later = (s for distance, move in self._moves for s in self._later(move, number + distance))
            yield from self._last(Affine((), number), tuple(later), 0 if last else self._behind)

    def _looped(self, step: Affine) -> Iterator[Node]:
        """A step behind which so many follow that something is started for one of them."""
        started = [s for distance, move in self._moves for s in self._started(move, self._now(step + distance))]
        nodes = (Sync(), *self._masked(step), self._first(step), *started, *self._rest(step, self._behind))
        yield from (*self._due, *self._counting(step, nodes, started, begun=True))

    def _last(self, step: Affine, started: tuple[Node, ...], behind: int) -> Iterator[Node]:
        """One of the last steps of a round, and what is started beside it."""
        number, whole = step.const, self.multiply(step, 0, self.slices)
        products = (self._first(step), *started, *self._rest(step, behind))
        alone = (Nest(f"step_{number}", (), (whole,)), *self._finished(behind))
        nodes = (Sync(), *self._masked(step), *(products if started else alone))
        yield from (*self._due, *self._counting(step, nodes, started))

    # --- what constraints leave out ---------------------------------------------------------------------

    @cached_property
    def cuts(self) -> Cuts:
        """The constraints that leave out steps."""
        return Cuts(self, self.corner())

    def _open(self, forms: tuple[Affine, ...]) -> tuple[Affine, ...]:
        """Those that are not >= 0 everywhere."""
        around = {i.name: (0, i.range - 1) for i in self.grid} | {self._step: (0, self.steps - 1)}
        return tuple(f for f in forms if f.bounds(around)[0] < 0)

    def _started(self, move: Move, moment: Moment) -> Iterator[Node]:
        """What is started for a step, if any of its products counts."""
        stages = tuple(move(moment, {}))
        guard = self._open((*self.cuts.begun(moment.step), *self.cuts.opened(moment.step)))
        yield from (Nest("start_step", (), stages, guard=guard),) if guard else stages

    def _counting(
        self, step: Affine, nodes: tuple[Node, ...], started: Sequence[Node], *, begun: bool = False
    ) -> Iterator[Node]:
        """A step where some of its products count, as `begun` says of steps that come first; or what is started beside it where none does yet."""
        opened = self._open(self.cuts.opened(step))
        guard = (*opened, *(() if begun else self._open(self.cuts.begun(step))))
        yield from (Nest("counting_step", (), nodes, guard=guard),) if guard else nodes
        # Items stay together, whoever counts what is under way.
        yield from (Nest("step_before", (), (Sync(), *started), guard=(f * -1 - 1,)) for f in opened if started)

    def _masked(self, step: Affine) -> list[Nest]:
        """Zeros for what constraints leave out of a step."""
        return self.cuts.masked(step, {c.use.name: c for c in self.boxes}, self._number(self._now(step)), self.warps)

    def _zeroed(self) -> Iterator[Stage]:
        """Zeros for what they leave out of the results."""
        out = merged_use(self.match.main)
        assert out is not None
        *beside, rows, columns = (Index(in_tile(n), size) for n, size in self.warp.items())
        for n, cut in enumerate(self.cuts.results()):
            stage = zero_results(f"cut_{n}", cut, out, self.match.instruction.c.dtype).substitute(self._at)
            yield on_fragments(stage, self.match.instruction, tuple(beside), rows, columns, {*self.sums})

    def _later(self, move: Move, number: int) -> Iterator[Node]:
        """What is done for a step of this round or, where there is one, of a later one."""
        rounds, step = divmod(number, self.steps)
        if move == self._put:  # the same wherever the step is, and of no consequence behind the last one
            yield from self._started(move, self._now(Affine((), number))) if self.outer or not rounds else ()
            return
        if not self.outer:
            yield from self._started(move, self._now(Affine((), step))) if not rounds else ()
            return
        for outer, spans in advanced(self.outer, rounds):
            limits = ((Affine.var(n) - low, Affine.var(n, -1) + high) for n, (low, high) in spans.items())
            around = {i.name: (0, i.range - 1) for i in self.outer}
            where = tuple(f for pair in limits for f in pair if f.bounds(around)[0] < 0)
            for stage in move(Moment(outer, Affine((), step)), spans):
                yield stage.limited(where)

    def _now(self, step: Affine) -> Moment:
        """A step of this round."""
        return Moment({i.name: Affine.var(i.name) for i in self.outer}, step)

    def _number(self, moment: Moment) -> Affine:
        """The number of a step among those of all rounds."""
        number = Affine()
        for loop in self.outer:
            number = number * loop.range + moment.outer[loop.name]
        return number * self.steps + moment.step

    def _first(self, step: Affine) -> Nest:
        """The products in front of the next copies: the first loads do not wait behind these, and a team's go on meanwhile."""
        return self.multiply(step, 0, self._in_front)

    def _rest(self, step: Affine, behind: int) -> tuple[Nest | Wait, ...]:
        left = self.slices - self._in_front
        products = (self.multiply(step, self._in_front, left),) if left else ()
        return (*products, *self._finished(behind))

    @property
    def _in_front(self) -> int:
        """Slices of a step in front of the next copies: of a team's all, but the last one of rounded rows, which waits for its turn,
        and where products go on (an H200: TF32 products of 2048 took 58 µs, 51 so)."""
        if not self._team:
            return 1
        return max(1, self.slices - 1) if self.rounded or self._behind else self.slices

    @property
    def _team(self) -> bool:
        """Several sub-groups multiply together, straight from local memory, and go on before the products are complete."""
        return self.match.instruction.team > 1

    def _finished(self, behind: int) -> tuple[Wait, ...]:
        """All products of a team but those of so many steps are complete."""
        return (Wait(PRODUCTS, behind),) if self._team else ()

    def multiply(self, step: Affine, first: int, count: int) -> Nest:
        """Slices of a step, each as deep as the instruction, at all taps of it."""
        sides = self.match.instruction.sides
        depth = in_tile(self.loops["k"])
        values = self.within_group()
        values = {in_tile(n): form for n, form in values.items()} | {depth: Affine.var(depth) + first * sides["k"]}
        moved = {
            c.use.name: replace(c.use, buffer=c.local.into, forms=c.inside(self._number(self._now(step))))
            for c in self.boxes
        }
        moved |= {n: self._kept(n) for n in self.held}
        uses = tuple(moved[u.name].substitute(values) if u.name in moved else u for u in self.match.main.uses)
        loops = (*(Index(in_tile(n), size) for n, size in self.warp.items()), Index(depth, count * sides["k"]))
        # What the constraints leave out is 0 in a local copy.
        stage = replace(self.match.main, uses=uses, loops=loops, constraints=())
        around = Around({}, {r.into: r for r in (*(c.local for c in self.boxes), *self.held.values())})
        match = replace(self.match, main=stage, loops=tuple((role, in_tile(self.loops[role])) for role in ROLES))
        products = tensorise(match, around, collective=self.collective, rounded=self.rounded)
        taps = tuple(replace(i, name=in_tile(i.name), bind=Bind.UNROLL) for i in self.taps)
        return Nest("taps", taps, (products,)) if taps else products

    def _kept(self, name: str) -> Use:
        """A factor that is there: its own dimensions are 1, those of the fragments, or of the group's tile, follow."""
        use, home = self.match.main.use(name), self.held[name]
        if home.loc != GROUP_MEMORY:
            return replace(use, buffer=home.into, forms=(Affine(),) * (len(home.type.sizes) - FRAGMENT_DIMS))
        at = tuple(Affine.var(in_tile(self.loops[role])) for role in ("m", "k"))
        return replace(use, buffer=home.into, forms=(*(Affine(),) * (len(home.type.sizes) - len(at)), *at))

    @cached_property
    def _at(self) -> dict[str, Affine]:
        """Shared loops at a point of the sub-group's tile."""
        within = self.within_group()
        return {n: c + within[n] if n in within else c for n, c in self.corner().items()}

    @property
    def _ragged(self) -> list[str]:
        return [n for n in self.warp if self.view.ranges[n] % self.group[n]]

    @cached_property
    def given(self) -> dict[str, Parts]:
        """Results that go through local memory, by the stages that store them."""
        staged, found = staged_results(self.plan), dict[str, Parts]()
        around = {i.name: (0, i.range - 1) for i in (*self.grid, *self.warps)}
        inside = {n: in_tile(n) for n in self.warp}
        together = any(s.scope is Scope.GROUP for s in staged.values())
        box = {n: self.group[n] for n in self.warp} if together else self.warp
        for stage in self.view.stages:
            use = None if stage is self.match.main else given(self.view, stage, box, {*self._ragged})
            if use is not None and use.buffer in staged:
                near = tuple(u for u in taken(self.view, stage, box) if u.buffer in staged)
                found[stage.name] = Parts(
                    self.view, self.match.instruction, use, near, staged, self.warps, self.warp, self.group,
                    self.corner(), self.within_group(), around, inside,
                )  # fmt: skip
        return found

    def _beside(self, stage: Stage) -> Iterator[Node]:
        """Another stage over the sub-group's tile; groups over the end touch only what exists."""
        parts = self.given.get(stage.name)
        near = (parts.use, *parts.taken) if parts is not None else ()
        outside = [u for u in stage.uses if not self.view.is_local(u.buffer) and u not in near]
        moving = {*self._ragged} if any(u.writes for u in outside) else names_in(f for u in outside for f in u.forms)
        limits = tuple(self._at[n] * -1 + (self.view.ranges[n] - 1) for n in self._ragged if n in moving)
        moved = replace(at := stage.substitute(self._at), constraints=at.constraints + limits)
        if parts is not None:
            yield from parts.nodes(moved, {*self.sums})
            return
        *beside, rows, columns = (Index(in_tile(n), size) for n, size in self.warp.items())
        yield on_fragments(moved, self.match.instruction, tuple(beside), rows, columns, {*self.sums})
