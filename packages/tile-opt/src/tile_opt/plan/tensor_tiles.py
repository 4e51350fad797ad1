"""A contraction on matrix instructions: sub-groups over a group's tile, operands copied ahead into local memory.

    kernel [grid] {                                 one group per output tile
      local copies, a version per step under way
      sub-groups of the group {
        accumulators in fragments; init
        outer reduction loops {
          copy the first steps
          steps { Wait; Sync; multiply, and copy a later step after the first slice }
          the last steps { Wait; Sync; multiply }
        }
        output stages
      }
    }

`multiply` is the step `tensorise`, the copies are those of `group_copy`; how large, and how many, is the plan's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.matrix import CHUNK_BYTES, PANEL_BYTES, ROLES, MatrixInstruction
from tile_ir.semtree.nodes import PRODUCTS
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block, Index, Order, Refinement, Swizzle, Sync, Wait

from tile_opt.kernel.instructions import Match, is_box
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.plan.plan import Plan, Staging
from tile_opt.plan.steps.fragments import LANE_INDEXES
from tile_opt.plan.steps.group_copy import GroupCopy, Items, Limit, group_copy
from tile_opt.plan.steps.tensorise import accumulators, on_fragments, tensorise
from tile_opt.plan.tree import Around, Nest, Node, close_tree

BAND = 8
"""Tiles along the rows that groups go through together."""
SPARED, MANY_STEPS, LONG_STEP = 3, 12, 128 * 128
"""Steps of local memory from which on one more may serve products that go on instead of copies; steps of the reduction, and
results of a group, from which on it does (an H200: products of 2048 to 8192 by 3 to 7 % faster, smaller ones by 8 % slower)."""
FRAGMENT_DIMS = 4
"""Dimensions of a factor in fragments: matrices along rows and along the depth, and a matrix's own."""
LEVELS = (Bind.GRID, Bind.SUBGROUP, Bind.NONE, Bind.UNROLL)
"""Groups, their sub-groups, steps of the reduction, and single instructions."""


def build_tensor_tiles(view: KernelView, match: Match, plan: Plan, *, collective: bool) -> Block:
    """The scheduled kernel; with `collective` the lanes of a sub-group load 16-bit fragments together.

    The plan has none of `problems`.
    """
    return close_tree(view, TensorTile(view, match, plan, collective).nest())


def problems(view: KernelView, match: Match, plan: Plan) -> Iterator[str]:
    """What keeps a plan from being built, a sentence each."""
    if tuple(level.bind for level in plan.levels) != LEVELS:
        yield "a matrix instruction takes four levels: grid, subgroup, serial and unroll"
        return
    copies = [s for s in plan.stagings if s.unit == "LOCAL" and s.level == LEVELS.index(Bind.NONE)]
    if {s.operand for s in copies} != factors(match) or any(s.versions < 2 or s.dtype for s in copies):
        yield "both factors of a matrix instruction are staged in LOCAL under the serial level, in 2 versions or more"
        return
    for loop, outer, inner in _nested_sizes(view, match, plan):
        if outer % inner:
            yield f"{outer} iterations of {loop!r} are no multiple of {inner}"
    yield from _team_problems(view, match, plan)
    left, right = (match.main.use(name) for name in (match.left, match.right))
    beside = set(beside_rows(view, match, plan))
    if not is_box(left, beside | {loop for _, loop in match.loops}) or any(
        n in beside for f in right.forms for n in f.names
    ):
        yield "a group covers several iterations only of loops that its rows, its columns, or the first factor alone follow"


def factors(match: Match) -> set[str]:
    """The buffers that the instruction's factors lie in."""
    return {match.main.use(name).buffer for name in (match.left, match.right)}


def takes_copies(instruction: MatrixInstruction) -> bool:
    """It reads float32 from local memory as it is: what it multiplies has been rounded in copies before the kernel."""
    return instruction.team > 1 and instruction.a.dtype is DType.FLOAT32


def _team_problems(view: KernelView, match: Match, plan: Plan) -> Iterator[str]:
    """What keeps a team of sub-groups from sharing the plan's tiles."""
    team, sides = match.instruction.team, match.instruction.sides
    if team == 1:
        return
    loops = dict(match.loops)
    group, warp = ({i.name: plan.tile(i.name, level, i.range) for i in view.loops} for level in range(2))
    deep = plan.tile(loops["k"], LEVELS.index(Bind.NONE), view.ranges[loops["k"]])
    rows = prod(group.values()) // group[loops["n"]]
    if (
        warp[loops["n"]] != group[loops["n"]]
        or prod(warp.values()) != warp[loops["n"]] * sides["m"]
        or rows % (team * sides["m"])
    ):
        yield f"{match.instruction.name}: each sub-group has {sides['m']} rows of all columns, and {team} of them are a team"
    line = PANEL_BYTES // match.instruction.a.dtype.bytes
    swizzle = panel_swizzle(match.instruction)
    copies = [s for s in plan.stagings if s.unit == "LOCAL"]
    if deep != line or any(s.swizzle != swizzle or s.pad for s in copies):
        yield f"{match.instruction.name}: steps are {line} deep, in local memory with swizzle {swizzle}"
        return
    boxes = TensorTile(view, match, plan).boxes
    if any(c.plan.lanes * c.source.dtype.bytes != CHUNK_BYTES for c in boxes):
        yield f"{match.instruction.name}: factors are copied by {CHUNK_BYTES} bytes"
    elif takes_copies(match.instruction) and not all(c.runs_along(in_tile(loops["k"])) for c in boxes):
        yield f"{match.instruction.name}: rows of both factors run along {loops['k']!r}"
    elif not all(c.panels(line) for c in boxes):
        yield f"{match.instruction.name}: rows of a factor in local memory are whole panels of {line} elements"


def panel_swizzle(instruction: MatrixInstruction) -> Swizzle:
    """How rows of `PANEL_BYTES` are swizzled, in elements of the instruction's factors."""
    line, chunk = (n // instruction.a.dtype.bytes for n in (PANEL_BYTES, CHUNK_BYTES))
    return Swizzle((line // chunk).bit_length() - 1, chunk.bit_length() - 1, line.bit_length() - 1)


def beside_rows(view: KernelView, match: Match, plan: Plan) -> list[str]:
    """Shared loops beside the rows and columns of which a group has several iterations."""
    sides = {loop for _, loop in match.loops}
    return [i.name for i in view.loops if i.name not in sides and plan.tile(i.name, 0, i.range) > 1]


def _nested_sizes(view: KernelView, match: Match, plan: Plan) -> Iterator[tuple[str, int, int]]:
    """(loop, iterations, iterations of a part of them) that have to come out even."""
    sides = {loop: match.instruction.sides[role] for role, loop in match.loops}
    for loop, extent in view.ranges.items():
        group, warp, step, last = (plan.tile(loop, number, extent) for number in range(len(LEVELS)))
        side = sides.get(loop, 1)
        if loop == dict(match.loops)["k"]:
            yield loop, step, side
        elif loop in sides:
            yield from ((loop, group, warp), (loop, warp, side))
        elif group > 1:
            yield loop, group, warp
        else:
            yield loop, 1, step
        yield from ((loop, last, side), (loop, side, last))


@dataclass(frozen=True)
class TensorTile:
    """What the groups of a kernel do."""

    view: KernelView
    match: Match
    plan: Plan
    collective: bool = False
    held: Mapping[str, Refinement] = field(default_factory=dict[str, Refinement])
    """Factors that lie in fragments already, by their names in the stage."""

    # --- sizes ------------------------------------------------------------------------------------------

    @cached_property
    def loops(self) -> dict[str, str]:
        """The loop of each role."""
        return dict(self.match.loops)

    @cached_property
    def staged(self) -> dict[str, Staging]:
        """The local copies by buffer."""
        return {s.operand: s for s in self.plan.stagings if s.unit == "LOCAL"}

    def _covered(self, loop: str, bind: Bind) -> int:
        """Iterations of a loop that one point of the level bound so covers."""
        return self.plan.tile(loop, LEVELS.index(bind), self.view.ranges[loop])

    @cached_property
    def group(self) -> dict[str, int]:
        """Iterations of every shared loop in a group's tile."""
        return {i.name: self._covered(i.name, Bind.GRID) for i in self.view.loops}

    @cached_property
    def beside(self) -> list[str]:
        """Loops that a group's rows follow beside those of the instruction."""
        return beside_rows(self.view, self.match, self.plan)

    @cached_property
    def warp(self) -> dict[str, int]:
        """A sub-group's tile: rows, the last of them those of the instruction, and columns."""
        return {n: self._covered(n, Bind.SUBGROUP) for n in (*self.beside, self.loops["m"], self.loops["n"])}

    @cached_property
    def deep(self) -> int:
        """Iterations of the depth in one step."""
        return self._covered(self.loops["k"], Bind.NONE)

    @property
    def steps(self) -> int:
        return -(-self.view.ranges[self.loops["k"]] // self.deep)

    @property
    def slices(self) -> int:
        """Instructions along the depth of a step."""
        return self.deep // self.match.instruction.sides["k"]

    @property
    def ahead(self) -> int:
        """Steps that are under way while one is computed."""
        return min(s.versions for s in self.staged.values()) - 1 - self._behind

    @property
    def _behind(self) -> int:
        """Steps whose products may go on while the next ones start: these read what no copy may yet write anew.

        One, where the copies of a step less under way still come in time: steps are many, and take long.
        """
        spared = min(s.versions for s in self.staged.values()) > SPARED
        return int(self._team and spared and self.steps >= MANY_STEPS and prod(self.group.values()) >= LONG_STEP)

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
        return max(n for n in range(1, BAND + 1) if rows % n == 0) if self._team and columns > 1 else 1

    @cached_property
    def warps(self) -> tuple[Index, ...]:
        counts = {n: self.group[n] // size for n, size in self.warp.items()}
        return tuple(Index(f"warp_{n}", count, bind=Bind.SUBGROUP, axis=1) for n, count in counts.items())

    @cached_property
    def outer(self) -> tuple[Index, ...]:
        """Reduction loops around the steps."""
        inner = self.loops["k"]
        loops = (i for i in self.match.main.loops if i.name != inner)
        return tuple(replace(i, name=f"{i.name}_o", order=Order.ORDERED) for i in loops)

    @property
    def _step(self) -> str:
        return f"{self.loops['k']}_s"

    def corner(self) -> dict[str, Affine]:
        """The first iteration of the group's part of every shared loop."""
        names, bands = {g.name for g in self.grid}, {self.loops["m"]: self.band}
        return {
            n: sum(
                (
                    Affine.var(g, step)
                    for g, step in ((f"{n}_g", size * bands.get(n, 1)), (f"{n}_b", size))
                    if g in names
                ),
                Affine(),
            )
            for n, size in self.group.items()
        }

    def within_group(self) -> dict[str, Affine]:
        """Iterations of rows and columns inside the group's tile, by those inside the sub-group's."""
        return {n: Affine.var(f"warp_{n}", size) + Affine.var(in_tile(n)) for n, size in self.warp.items()}

    # --- buffers ----------------------------------------------------------------------------------------

    def copies(self, step: Affine) -> tuple[GroupCopy, ...]:
        """The copies of the operands' boxes of one step."""
        factors = (n for n in (self.match.left, self.match.right) if n not in self.held)
        return tuple(self._copy(self.match.main.use(n), step) for n in factors)

    def _copy(self, use: Use, step: Affine) -> GroupCopy:
        depth = self.loops["k"]
        values = {i.name: Affine.var(f"{i.name}_o") for i in self.match.main.loops} | self.corner()
        values[depth] = step * self.deep + Affine.var(in_tile(depth))
        inside = {in_tile(depth): self.deep}
        for n in self.warp:
            values[n] += Affine.var(in_tile(n))
            inside[in_tile(n)] = self.group[n]
        around = {i.name: (0, i.range - 1) for i in (*self.grid, *self.outer)} | {self._step: (0, self.steps - 1)}
        forms = tuple(f.substitute(values) for f in use.forms)
        names = {"local": f"{use.name}_local", "held": f"{use.name}_held"}
        source, items = self.view.type_of(use.buffer), Items((*self.warps, *LANE_INDEXES))
        limits = tuple(self._wanted(use, forms, step))
        return group_copy(use, forms, source, self.staged[use.buffer], inside, around, items, names, limits)

    def _wanted(self, use: Use, forms: tuple[Affine, ...], step: Affine) -> Iterator[Limit]:
        """What a copy brings of an operand: what the constraints name, and no products behind the last one."""
        yield from (Limit(b.dim, b.sign, Affine((), b.const)) for b in self.match.bounds if b.factor == use.name)
        depth = self.loops["k"]
        extent = self.view.ranges[depth]
        dim = next(d for d, form in enumerate(use.forms) if form.coefficient(depth))
        if extent % self.deep:
            # At the last iteration, its place in the step being wherever that one is.
            last = forms[dim] - Affine.var(in_tile(depth), use.forms[dim].coefficient(depth))
            beyond = (step * -self.deep + (extent - 1)) * use.forms[dim].coefficient(depth)
            yield Limit(dim, -1, last + beyond)

    @cached_property
    def boxes(self) -> tuple[GroupCopy, ...]:
        """The copies of any step."""
        return self.copies(Affine.var(self._step))

    @property
    def local_bytes(self) -> int:
        return sum(c.bytes for c in self.boxes)

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
            body += self._reduced() if stage is self.match.main else [self._beside(stage)]
        warps = Nest(f"{self.view.name}_warps", self.warps, tuple(body), allocs=tuple(self.sums.values()))
        return Nest(self.view.name, self.grid, (warps,), allocs=tuple(c.local for c in self.boxes))

    def _reduced(self) -> Iterator[Node]:
        """The whole reduction."""
        if not self.outer:
            yield from self._pipeline()
            return
        # The next iteration may not write what others still read.
        yield Nest(f"{self.view.name}_outer", self.outer, (*self._pipeline(), Sync()))

    def _pipeline(self) -> Iterator[Node]:
        """All steps, copies running ahead of the products."""
        wait = Wait(0, self.ahead - 1)
        for step in range(min(self.ahead, self.steps)):
            # A wait closes the batch of copies before it.
            yield from (*([wait] if step else []), Nest(f"copy_step_{step}", (), self._started(Affine((), step))))
        loop = self.steps - self.ahead
        if loop > 0:
            index, step = Index(self._step, loop, order=Order.ORDERED), Affine.var(self._step)
            products = self._first(step), *self._started(step + self.ahead), *self._rest(step)
            yield Nest(f"{self.view.name}_steps", (index,), (wait, Sync(), *products))
        for number in range(max(loop, 0), self.steps):
            whole = self.multiply(Affine((), number), 0, self.slices)
            last = number == self.steps - 1
            yield from (
                wait,
                Sync(),
                Nest(f"step_{number}", (), (whole,)),
                *self._finished(0 if last else self._behind),
            )

    def _started(self, step: Affine) -> tuple[Stage, ...]:
        return tuple(c.ahead(step, LANE_INDEXES) for c in self.copies(step))

    def _first(self, step: Affine) -> Nest:
        """The products in front of the next copies: the first loads do not wait behind these, and a team's go on meanwhile."""
        return self.multiply(step, 0, self.slices if self._team else 1)

    def _rest(self, step: Affine) -> tuple[Nest | Wait, ...]:
        if self._team:
            return self._finished(self._behind)
        return (self.multiply(step, 1, self.slices - 1),) if self.slices > 1 else ()

    @property
    def _team(self) -> bool:
        """Several sub-groups multiply together, straight from local memory, and go on before the products are complete."""
        return self.match.instruction.team > 1

    def _finished(self, behind: int) -> tuple[Wait, ...]:
        """All products of a team but those of so many steps are complete."""
        return (Wait(PRODUCTS, behind),) if self._team else ()

    def multiply(self, step: Affine, first: int, count: int) -> Nest:
        """Slices of a step, each as deep as the instruction."""
        sides = self.match.instruction.sides
        depth = in_tile(self.loops["k"])
        values = self.within_group()
        values = {in_tile(n): form for n, form in values.items()} | {depth: Affine.var(depth) + first * sides["k"]}
        moved = {c.use.name: replace(c.use, buffer=c.local.into, forms=c.inside(step)) for c in self.boxes}
        moved |= {n: self._kept(n) for n in self.held}
        uses = tuple(moved[u.name].substitute(values) if u.name in moved else u for u in self.match.main.uses)
        loops = (*(Index(in_tile(n), size) for n, size in self.warp.items()), Index(depth, count * sides["k"]))
        # What the constraints leave out is 0 in a local copy.
        stage = replace(self.match.main, uses=uses, loops=loops, constraints=())
        around = Around({}, {r.into: r for r in (*(c.local for c in self.boxes), *self.held.values())})
        match = replace(self.match, main=stage, loops=tuple((role, in_tile(self.loops[role])) for role in ROLES))
        return tensorise(match, around, collective=self.collective)

    def _kept(self, name: str) -> Use:
        """A factor in fragments: its own dimensions are 1, those of the fragments follow."""
        use, home = self.match.main.use(name), self.held[name]
        return replace(use, buffer=home.into, forms=(Affine(),) * (len(home.type.sizes) - FRAGMENT_DIMS))

    def _beside(self, stage: Stage) -> Stage:
        """Another stage over the sub-group's tile; groups over the end touch only what exists."""
        ranges = self.view.ranges
        values = self.corner()
        for n, form in self.within_group().items():
            values[n] += form
        local = all(self.view.is_local(u.buffer) for u in stage.uses)
        ragged = [] if local else [n for n in self.warp if ranges[n] % self.group[n]]
        limits = tuple(values[n] * -1 + (ranges[n] - 1) for n in ragged)
        moved = stage.substitute(values)
        moved = replace(moved, constraints=moved.constraints + limits)
        *beside, rows, columns = (Index(in_tile(n), size) for n, size in self.warp.items())
        return on_fragments(moved, self.match.instruction, tuple(beside), rows, columns, set(self.sums))


def in_tile(loop: str) -> str:
    """A loop inside the tile that one group, one sub-group or one step has of it."""
    return f"{loop}_i"
