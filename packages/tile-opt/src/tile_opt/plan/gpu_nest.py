"""A contraction on work items: group tiles, operands staged in local memory step by step, register tiles.

kernel [grid] {                           one group per output tile
  local boxes
  item [items of the group] {
    registers; init
    load step 0 into registers
    step loop { Sync; registers -> local; Sync; load the next step; accumulate }
    output stages
  }
}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tile_ir.stripe.affine import Affine, DivMod, Quasi
from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Direction,
    Index,
    Load,
    Order,
    Refinement,
    Statement,
    Store,
    Sync,
    TensorType,
)

from tile_opt.kernel.segments import Segment, interior, split_edges
from tile_opt.kernel.view import KernelView, Stage, Use, close_stage
from tile_opt.kernel.work import is_heavy
from tile_opt.plan.nest import GROUP_MEMORY, REGISTER, element, inout, scheduled, whole_refs
from tile_opt.plan.plans import GroupTile, StagePlan
from tile_opt.plan.staging import (
    LANES,
    Box,
    CopyPlan,
    box_of,
    copy_plan,
    global_subscripts,
    local_type,
    staged_operands,
)


@dataclass(frozen=True, slots=True)
class Part:
    """One shared loop inside a group: its iteration as a form, and the indexes that form uses."""

    loop: str
    form: Affine
    base: Affine
    """The first iteration of the group's tile."""
    inner: tuple[Index, ...]
    item: Index | None
    grid: Index | None
    guard: tuple[Affine, ...] = ()
    extent: tuple[int, int] = (0, 0)
    """Iterations [low, high) that these groups cover."""
    ragged: bool = False
    edge: bool = False


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged operand: its box, local type, and an item's share of the copy."""

    use: Use
    box: Box
    type: TensorType
    copy: CopyPlan
    local: str
    held: str


def build_gpu_nest(view: KernelView, plan: StagePlan) -> Block:
    """The scheduled kernel: a sibling per combination of edge and interior groups."""
    main = next(s for s in view.stages if s.loops and is_heavy(view, s))
    parts = [_parts(view, main, loop, plan.tile(loop.name)) for loop in view.loops]
    grid = tuple(options[0].grid for options in parts if options[0].grid is not None)
    siblings = [_sibling(view, main, plan, chosen, n) for n, chosen in enumerate(_combinations(parts))]
    locals_ = tuple(r for _, boxes in siblings[:1] for r in boxes)
    return scheduled(view, grid, tuple(b for b, _ in siblings), locals_)


def local_bytes(view: KernelView, plan: StagePlan) -> int:
    """Local memory of a group."""
    main = next(s for s in view.stages if s.loops and is_heavy(view, s))
    parts = tuple(_parts(view, main, loop, plan.tile(loop.name))[0] for loop in view.loops)
    return sum(s.type.nbytes for s in _Group(view, main, plan, parts, 0).staged)


def _combinations(parts: list[list[Part]]) -> list[tuple[Part, ...]]:
    """Choices per loop. Beside an edge of one loop the others are not cut: edges are few, and code is not free.

    The first choice of a loop is all of it; the last loops, whose edges cost most, are cut first.
    """
    cut = [k for k, options in enumerate(parts) if len(options) > 1]
    if not cut:
        return [tuple(options[0] for options in parts)]
    k = cut[-1]
    found: list[tuple[Part, ...]] = []
    for part in parts[k][1:]:
        rest = [[options[0]] if part.edge else options for options in parts]
        rest[k] = [part]
        found += _combinations(rest)
    return found


def _parts(view: KernelView, main: Stage, loop: Index, tile: GroupTile | None) -> list[Part]:
    """All groups of the loop, then (where its edges meet the window) edge and interior groups apart."""
    size = tile.size if tile else 1
    groups = -(-loop.range // size)
    grid = Index(f"{loop.name}_g", groups, bind=Bind.GRID) if groups > 1 else None
    base = Affine.var(grid.name, size) if grid else Affine()
    form, inner, item = _inside(loop.name, tile)
    ragged = groups * size > loop.range
    whole = Part(loop.name, base + form, base, inner, item, grid, (), (0, loop.range), ragged)
    window = {n for c in main.constraints if loop.name in c.names for n in c.names}
    if tile is None or not window or grid is None:
        return [whole]
    low, high = interior(loop.name, main.constraints, view.ranges)
    segments = split_edges((Segment(0, groups, size),), low, high)
    return [whole, *(_segment_part(whole, s, size, edge) for s, edge in segments)]


def _segment_part(whole: Part, segment: Segment, size: int, edge: bool) -> Part:
    assert whole.grid is not None
    first = segment.start // size
    number = Affine.var(whole.grid.name)
    guard = [number + -first] if first else []
    if first + segment.count < whole.grid.range:
        guard.append(number * -1 + (first + segment.count - 1))
    stop = min(segment.stop, whole.extent[1])
    return replace(whole, guard=tuple(guard), extent=(segment.start, stop), edge=edge)


def _inside(name: str, tile: GroupTile | None) -> tuple[Affine, tuple[Index, ...], Index | None]:
    if tile is None or tile.size == 1:
        return Affine(), (), None
    item = Index(f"{name}_w", tile.items, bind=Bind.GROUP) if tile.items > 1 else None
    if not tile.interleaved or tile.each % LANES:
        run = Index(f"{name}_i", tile.each, bind=Bind.UNROLL)
        form = Affine.var(item.name, tile.each) if item else Affine()
        inner = (run,) if tile.each > 1 else ()
        return form + (Affine.var(run.name) if inner else Affine()), inner, item
    pieces = tile.each // LANES
    piece = Index(f"{name}_p", pieces, bind=Bind.UNROLL)
    lane = Index(f"{name}_i", LANES, bind=Bind.UNROLL)
    form = Affine.var(lane.name) + (Affine.var(item.name, LANES) if item else Affine())
    if pieces > 1:
        form = form + Affine.var(piece.name, LANES * tile.items)
    return form, ((piece,) if pieces > 1 else ()) + (lane,), item


def _sibling(
    view: KernelView, main: Stage, plan: StagePlan, parts: Sequence[Part], number: int
) -> tuple[Block, tuple[Refinement, ...]]:
    return _Group(view, main, plan, tuple(parts), number).build()


class _Group:
    """Builds one sibling."""

    def __init__(self, view: KernelView, main: Stage, plan: StagePlan, parts: tuple[Part, ...], number: int) -> None:
        self.view, self.main, self.plan, self.parts = view, main, plan, parts
        self.name = f"{view.name}_group{number}"
        self.last = next(p for p in parts if p.loop == plan.tiles[-1].loop)
        self.inner = self._vectorized(tuple(i for p in parts for i in p.inner))
        self.items = tuple(p.item for p in parts if p.item is not None)
        self.grid = tuple(p.grid for p in parts if p.grid is not None)
        self.steps = view.ranges[plan.reduction] // plan.step
        self.step = Index(f"{plan.reduction}_s", self.steps, order=Order.ORDERED)
        self.within = Index(f"{plan.reduction}_i", plan.step, bind=Bind.NONE if plan.window else Bind.UNROLL)
        self.forms = {p.loop: p.form for p in parts}
        self.allocs = {r.into: r for r in (self._grown(a) for a in view.allocs)}
        self.staged = tuple(self._stage(u) for u in staged_operands(view, main))

    def _vectorized(self, inner: tuple[Index, ...]) -> tuple[Index, ...]:
        """The lanes of the contiguous loop become a vector, last in the list."""
        name = f"{self.last.loop}_i"
        rest = tuple(i for i in inner if i.name != name)
        lane = tuple(replace(i, bind=Bind.VECTOR, lanes=i.range) for i in inner if i.name == name)
        return rest + lane

    # --- buffers --------------------------------------------------------------------------------------

    def _grown(self, alloc: Refinement) -> Refinement:
        sizes = alloc.type.sizes + tuple(i.range for i in self.inner)
        type = TensorType.row_major(alloc.type.dtype, sizes, align=16)
        return replace(alloc, type=type, access=(Affine(),) * len(sizes), loc=REGISTER)

    def _inner_ranges(self) -> dict[str, int]:
        ranges = {i.name: i.range for i in (*self.inner, *self.items)}
        ranges |= {n: self.view.ranges[n] for n in self.plan.window}
        return ranges | {self.within.name: self.plan.step}

    def _reduced(self, of: Affine | int) -> Affine:
        """The reduction loop's iteration at a step."""
        at = Affine.of({}, of) if isinstance(of, int) else of
        return at * self.plan.step + Affine.var(self.within.name)

    def _stage(self, use: Use) -> Staged:
        forms = tuple(
            f.substitute(self.forms | {self.plan.reduction: self._reduced(Affine.var(self.step.name))})
            for f in use.forms
        )
        box = box_of(forms, self._inner_ranges())
        whole = self.view.type_of(use.buffer)
        contiguous = min(
            (d for d, e in enumerate(box.extents) if e > 1), key=lambda d: whole.strides[d], default=len(forms) - 1
        )
        innermost = self._innermost(use, contiguous)
        item, count = self._item_number()
        copy = copy_plan(f"{use.name}_c", box, whole, contiguous, item, count)
        return Staged(use, box, local_type(box, whole, innermost), copy, f"{use.name}_local", f"{use.name}_held")

    def _innermost(self, use: Use, contiguous: int) -> int:
        """The dimension that an item walks in its register tile."""
        for tile in reversed(self.plan.tiles):
            if tile.each > 1:
                for d, form in enumerate(use.forms):
                    if tile.loop in form.names:
                        return d
        return contiguous

    def _item_number(self) -> tuple[Affine, int]:
        number, count = Affine(), 1
        for item in reversed(self.items):
            number = number + Affine.var(item.name, count)
            count *= item.range
        return number, count

    # --- blocks ---------------------------------------------------------------------------------------

    def build(self) -> tuple[Block, tuple[Refinement, ...]]:
        boxes = tuple(self._local_alloc(s) for s in self.staged)
        held = tuple(self._held_alloc(s) for s in self.staged)
        body: list[Statement] = []
        for stage in self.view.stages:
            body += self._steps() if stage is self.main else [self._output(stage)]
        used = self._mentioned(body)
        outer = tuple(Index(g.name, 1, Affine.var(g.name)) for g in self.grid if g.name in used)
        block = Block(
            self.name,
            indexes=outer + tuple(replace(i, axis=0) for i in self.items),
            guard=tuple(g for p in self.parts for g in p.guard),
            refs=whole_refs(self.view, self.view.stages)
            + tuple(inout(b) for b in boxes)
            + tuple(self.allocs.values())
            + held,
            body=tuple(body),
        )
        return block, boxes

    def _mentioned(self, body: list[Statement]) -> set[str]:
        found: set[str] = set()
        for s in body:
            if isinstance(s, Block):
                found |= {n for i in s.indexes if i.value is not None for n in i.value.names}
                found |= {n for g in s.guard for n in g.names}
        return found

    def _local_alloc(self, s: Staged) -> Refinement:
        return Refinement(Direction.ALLOC, s.local, "", (Affine(),) * len(s.type.sizes), s.type, loc=GROUP_MEMORY)

    def _held_alloc(self, s: Staged) -> Refinement:
        sizes = tuple(i.range for i in s.copy.loops)
        return Refinement(
            Direction.ALLOC,
            s.held,
            "",
            (Affine(),) * len(sizes),
            TensorType.row_major(s.type.dtype, sizes, align=16),
            loc=REGISTER,
        )

    def _steps(self) -> list[Statement]:
        first = [self._fetch(s, None) for s in self.staged]
        inside: list[Statement] = [Sync()]
        inside += [self._put(s) for s in self.staged]
        inside.append(Sync())
        if self.steps > 1:
            inside += [self._fetch(s, Affine.var(self.step.name) + 1) for s in self.staged]
        inside.append(self._accumulate())
        names = self._passable()
        passed = tuple(Index(n, 1, Affine.var(n)) for n in names if n in self._mentioned(inside))
        reads = tuple(self._whole(u.buffer, Direction.IN) for u in (s.use for s in self.staged))
        refs = (
            *_unique(reads),
            *(inout(self._local_alloc(s)) for s in self.staged),
            *(inout(self._held_alloc(s)) for s in self.staged),
        )
        refs += tuple(inout(a) for a in self.allocs.values())
        loop = Block(f"{self.name}_steps", indexes=(*passed, self.step), refs=refs, body=tuple(inside))
        return [*first, loop]

    def _passable(self) -> tuple[str, ...]:
        return tuple(i.name for i in (*self.grid, *self.items))

    def _whole(self, buffer: str, direction: Direction) -> Refinement:
        ref = next(r for r in self.view.refs if r.into == buffer)
        return replace(ref, dir=direction, source=ref.into, access=(Affine(),) * len(ref.type.sizes))

    def _fetch(self, s: Staged, at: Affine | None) -> Block:
        """Global memory into registers, for step `at` (0 when None)."""
        step = Affine() if at is None else at
        where = {self.step.name: step}
        whole = self.view.type_of(s.use.buffer)
        access = tuple(_substituted(f, where) for f in global_subscripts(s.box, s.copy))
        safe = self._inside_buffer(s, access, whole)
        constraints = tuple(s.copy.constraints)
        if at is not None:
            constraints += (Affine.var(self.step.name, -1) + (self.steps - 2),)
        if safe:
            source = Refinement(Direction.IN, "src", s.use.buffer, access, element(whole))
            load = Load("$x", "src")
        else:
            zero = (Affine(),) * len(whole.sizes)
            source = Refinement(Direction.IN, "src", s.use.buffer, zero, whole)
            load = Load("$x", "src", access, clamp=True)
        return self._copy_block("fetch", s, constraints, source, self._held(s, Direction.OUT, "dst"), load)

    def _put(self, s: Staged) -> Block:
        """Registers into local memory."""
        target = Refinement(Direction.OUT, "dst", s.local, s.copy.subscripts, element(s.type), loc=GROUP_MEMORY)
        return self._copy_block(
            "put", s, s.copy.constraints, self._held(s, Direction.IN, "src"), target, Load("$x", "src")
        )

    def _held(self, s: Staged, direction: Direction, name: str) -> Refinement:
        alloc = self._held_alloc(s)
        access = tuple(Affine.var(i.name) for i in s.copy.loops)
        return Refinement(direction, name, s.held, access, element(alloc.type), loc=REGISTER)

    def _copy_block(
        self, kind: str, s: Staged, constraints: tuple[Quasi, ...], source: Refinement, target: Refinement, load: Load
    ) -> Block:
        forms = [*source.access, *target.access, *constraints, *load.at]
        names = {n for f in forms if not isinstance(f, str) for n in f.names}
        passed = tuple(Index(n, 1, Affine.var(n)) for n in (*self._passable(), self.step.name) if n in names)
        # Values of the item number decide the constraints: they guard the whole copy.
        return Block(
            f"{kind}_{s.use.name}",
            indexes=passed + s.copy.loops,
            constraints=constraints,
            refs=(source, target),
            body=(load, Store("dst", "$x")),
        )

    def _inside_buffer(self, s: Staged, access: tuple[Quasi, ...], whole: TensorType) -> bool:
        """Whether every element the copy touches lies in the buffer, in every group of this sibling."""
        for d, size in enumerate(whole.sizes):
            low, high = self._corner_range(s.box.corner[d])
            if low < 0 or high + s.box.extents[d] > size:
                return False
        return bool(access) or True

    def _corner_range(self, corner: Affine) -> tuple[int, int]:
        ranges: dict[str, tuple[int, int]] = {self.step.name: (0, self.steps - 1)}
        for p in self.parts:
            if p.grid is not None:
                size = p.base.coefficient(p.grid.name)
                ranges[p.grid.name] = (p.extent[0] // size, (p.extent[1] - 1) // size)
        return corner.bounds(ranges)

    def _accumulate(self) -> Block:
        """One step: every product of the staged boxes into the register tile."""
        names = {s.use.name: s for s in self.staged}
        local = tuple(Affine.var(i.name) for i in self.inner)
        uses: list[Use] = []
        for use in self.main.uses:
            s = names.get(use.name)
            if s is not None:
                uses.append(replace(use, buffer=s.local, forms=s.box.inside))
            else:
                uses.append(replace(use, forms=use.forms + local))
        stage = replace(
            self.main,
            uses=tuple(uses),
            loops=self._own_loops() + self.inner,
            constraints=self._open_constraints(),
        )
        moved = stage.substitute(self.forms)
        buffers = self.allocs | {s.local: self._local_alloc(s) for s in self.staged}
        return close_stage(moved, buffers, (*self._passable(), self.step.name))

    def _own_loops(self) -> tuple[Index, ...]:
        """The step, then the window: its last loop unrolled, so that neighbouring iterations share loads."""
        window = [next(i for i in self.main.loops if i.name == n) for n in self.plan.window]
        if window:
            window[-1] = replace(window[-1], bind=Bind.UNROLL)
        return (self.within, *window)

    def _open_constraints(self) -> tuple[Affine, ...]:
        ranges = {n: (0, e - 1) for n, e in self.view.ranges.items()}
        ranges |= {p.loop: (p.extent[0], p.extent[1] - 1) for p in self.parts}
        return tuple(c for c in self.main.constraints if c.bounds(ranges)[0] < 0)

    def _output(self, stage: Stage) -> Block:
        """An init or output stage over the register tile; groups over the end touch only what exists."""
        local = tuple(Affine.var(i.name) for i in self.inner)
        uses = tuple(replace(u, forms=u.forms + local) if self.view.is_local(u.buffer) else u for u in stage.uses)
        limits: tuple[Affine, ...] = ()
        if not all(self.view.is_local(u.buffer) for u in stage.uses):
            limits = tuple(Affine.var(p.loop, -1) + (p.extent[1] - 1) for p in self.parts if p.ragged)
        moved = replace(stage, uses=uses, loops=self.inner, constraints=stage.constraints + limits)
        buffers = {r.into: r for r in self.view.refs} | self.allocs
        return close_stage(moved.substitute(self.forms), buffers, self._passable())


def _unique(refs: Sequence[Refinement]) -> tuple[Refinement, ...]:
    return tuple({r.into: r for r in refs}.values())


def _substituted(form: Quasi, where: dict[str, Affine]) -> Quasi:
    if isinstance(form, DivMod):
        return form.substitute(where)
    return form.substitute(where)
