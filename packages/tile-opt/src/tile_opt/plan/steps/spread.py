"""A kernel's iterations dealt out to groups and items, as a plan says.

Every stage becomes a nest of its own inside the item's block. What iterations of the shared loops keep to themselves
stays in registers of the item that has them; a row that other items read lies in the group's memory, behind barriers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Direction,
    Index,
    Location,
    Refinement,
    Scope,
    Statement,
    Sync,
    TensorType,
)

from tile_opt.kernel.view import KernelView, Stage, Use, close_stage
from tile_opt.kernel.work import merged_use
from tile_opt.plan.nest import ARRAY, GROUP_MEMORY, REGISTER, scheduled, whole_refs
from tile_opt.plan.plan import Plan
from tile_opt.plan.steps.combine import Total, identities
from tile_opt.plan.steps.digits import Digit, Split, lanes_agree, split
from tile_opt.plan.steps.pieces import Pieces, in_pieces, row_operands

Part = Stage | Total | Sync | Pieces
MOST_EDGES = 4
"""Edges of a tile that have code of their own."""
DEVICE_MEMORY = Location("DRAM", scope=Scope.DEVICE)
SHARED = (GROUP_MEMORY, DEVICE_MEMORY)
INSIDE = (Bind.NONE, Bind.UNROLL, Bind.VECTOR)
_STATIC = (Bind.UNROLL, Bind.VECTOR)


@dataclass(frozen=True, slots=True)
class Home:
    """Where a buffer of the kernel's own lies, and how it is subscripted: by `dims` in place of, or after, its own."""

    alloc: Refinement
    dims: tuple[Affine, ...]
    rows: bool
    """An item's own part of a row: `dims` take the place of the subscripts."""
    shared: bool = False

    def use(self, use: Use) -> Use:
        kept = (Affine(),) * len(use.forms) if self.rows else use.forms
        return replace(use, forms=(*kept, *self.dims))


class Spread:
    """Builds the scheduled kernel of a view whose own loops are named alike (`steps.alike`)."""

    def __init__(self, view: KernelView, plan: Plan, local_bytes: int) -> None:
        self.view = view
        self.local_bytes = local_bytes
        """What a group's memory holds; a longer row lies in the device's."""
        self.loops = {i.name: i for i in (*view.loops, *(i for s in view.stages for i in s.loops))}
        self.splits = {name: split(plan, loop) for name, loop in self.loops.items()}
        self.own = tuple(n for n in self.loops if n not in {i.name for i in view.loops})
        self.grid = self._ordered(plan, Bind.GRID)
        items = self._ordered(plan, Bind.GROUP, Bind.SUBGROUP, Bind.LANE)
        self.items = tuple(replace(i, bind=Bind.GROUP) for i in items)
        self.inner = tuple(d for i in view.loops for d in self.splits[i.name].bound(*INSIDE))
        """What each item does of the shared loops, in every stage."""
        self.staged = {s.operand for s in plan.stagings if s.unit == "LOCAL"}
        self.homes = {a.into: self._home(a) for a in view.allocs}
        self.taken = {r.into for r in (*view.refs, *view.allocs)}

    def _ordered(self, plan: Plan, *binds: Bind) -> tuple[Index, ...]:
        """The loops bound so, in the order in which the plan names them."""
        named = [c.loop for level in plan.levels if level.bind in binds for c in level.covers]
        names = [n for n in dict.fromkeys((*named, *self.loops)) if n in self.splits]
        return tuple(d.index for n in names for d in self.splits[n].bound(*binds))

    # --- buffers of the kernel's own ---------------------------------------------------------------

    def spread(self, loop: str) -> bool:
        """Items share the iterations of this own loop."""
        return loop in self.own and any(d.index.bind not in INSIDE for d in self.splits[loop].digits)

    def _home(self, alloc: Refinement) -> Home:
        uses = [u for s in self.view.stages for u in s.uses if u.buffer == alloc.into]
        moving = {n for u in uses for f in u.forms for n in f.names if self.spread(n)}
        if not moving:
            return self._private(alloc)
        if is_plain(uses):
            own = tuple(d for n in dict.fromkeys(n for f in uses[0].forms for n in f.names) for d in self._inside(n))
            return self._made(alloc, (1,) * len(alloc.type.sizes), (*own, *self.inner), rows=True)
        return self._in_group(alloc)

    def _inside(self, loop: str) -> tuple[Digit, ...]:
        return self.splits[loop].bound(*INSIDE) if loop in self.own else ()

    def _private(self, alloc: Refinement) -> Home:
        return self._made(alloc, alloc.type.sizes, self.inner, rows=False)

    def _made(self, alloc: Refinement, sizes: tuple[int, ...], digits: tuple[Digit, ...], rows: bool) -> Home:
        static = all(d.index.bind in _STATIC for d in digits) and all(size == 1 for size in sizes)
        digits = tuple(sorted(digits, key=lambda d: d.index.bind is Bind.VECTOR))
        shape = (*sizes, *(d.index.range for d in digits))
        made = _sized(alloc, shape, REGISTER if static else ARRAY)
        return Home(made, tuple(Affine.var(d.index.name) for d in digits), rows)

    def _in_group(self, alloc: Refinement) -> Home:
        shared = [d for i in self.view.loops for d in self.splits[i.name].bound(Bind.GROUP, Bind.SUBGROUP, Bind.LANE)]
        digits = (*shared, *self.inner)
        shape = (*alloc.type.sizes, *(d.index.range for d in digits))
        dims = tuple(Affine.var(d.index.name) for d in digits)
        # Rows of different shared iterations come first, so that an item's neighbours read neighbouring cells.
        rank = len(alloc.type.sizes)
        order = (*range(rank, len(shape)), *range(rank))
        fits = prod(shape) * alloc.type.dtype.bytes <= self.local_bytes
        made = _sized(alloc, shape, GROUP_MEMORY if fits else DEVICE_MEMORY)
        strides = TensorType.row_major(alloc.type.dtype, tuple(shape[k] for k in order)).strides
        placed = [0] * len(shape)
        for k, stride in zip(order, strides, strict=True):
            placed[k] = stride
        layout = replace(made.type.layout, strides=tuple(placed))
        return Home(replace(made, type=replace(made.type, layout=layout)), dims, rows=False, shared=True)

    # --- stages -------------------------------------------------------------------------------------

    def build(self) -> Block:
        """The scheduled kernel."""
        parts, more = self._all_parts()
        allocs = (*(h.alloc for h in self.homes.values()), *more)
        shared = [h.alloc for h in self.homes.values() if h.shared]
        fence = "global" if any(a.loc == DEVICE_MEMORY for a in shared) else "local"
        parts = _synchronised(parts, {a.into for a in shared}, Sync(Scope.GROUP, fence))
        if not any(isinstance(p, (Total, Sync)) for p in parts):
            parts += self._tails()
        versions = inner_and_edges(parts, (*self.grid, *self.items), {i.name for i in self.grid})
        return item_kernel(self.view, self.grid, self.items, versions, allocs)

    def _all_parts(self) -> tuple[list[Part], list[Refinement]]:
        parts: list[Part] = []
        allocs: list[Refinement] = []
        for stage in self.view.stages:
            made, more = self._parts(stage)
            parts += made
            allocs += more
        return parts, allocs

    def _tails(self) -> list[Part]:
        """What is left of shared loops that whole vectors do not divide."""
        tails = [t for i in self.view.loops if (t := self.splits[i.name].tail()) is not None]
        return [self._moved(s, tail) for tail in tails for s in self.view.stages]

    def _parts(self, stage: Stage) -> tuple[list[Part], list[Refinement]]:
        whole = merged_use(stage)
        over = self._reduced(stage, whole)
        pieces = [self._moved(stage, t) for n in stage.loop_names if (t := self.splits[n].tail()) is not None]
        pieces = [self._moved(stage), *pieces]
        if whole is None or not over:
            return [*pieces], []
        assert whole.agg is not None
        digits = tuple(sorted(self.inner, key=lambda d: d.index.bind is Bind.VECTOR))
        partial = self._partial(stage, whole, digits)
        into = replace(whole, buffer=partial.into, forms=tuple(Affine.var(d.index.name) for d in digits) or (Affine(),))
        start = identities(f"{stage.name}_start", partial, whole.agg, tuple(d.index for d in digits))
        merging = [replace(p, uses=tuple(into if u.name == into.name else u for u in p.uses)) for p in pieces]
        rank = len(self.homes[whole.buffer].alloc.type.sizes)
        total = Total(partial, whole.buffer, whole.agg, rank, tuple(i.name for i in over))
        operands = frozenset(u.name for u in row_operands(self.view, stage, self.own) if u.buffer in self.staged)
        if not operands:
            return [start, *merging, total], [partial]
        steps, pieces = self._in_pieces(stage, merging[0], operands)
        return [start, steps, total], [partial, *pieces]

    def _in_pieces(self, stage: Stage, merging: Stage, operands: frozenset[str]) -> tuple[Pieces, list[Refinement]]:
        """An element lies where its item and lane say."""
        own = [d for n in stage.loop_names for d in self.splits[n].digits]
        lanes = next((d.index for d in own if d.index.bind is Bind.VECTOR), None)
        place, step = (Affine.var(lanes.name), lanes.range) if lanes else (Affine(), 1)
        for item in reversed(self.items):
            place, step = place + Affine.var(item.name, step), step * item.range
        alone = {i.name for i in self.items} <= {d.index.name for d in own}
        size = min(step, prod(self.loops[n].range for n in stage.loop_names)) if alone else step
        return in_pieces(self.view, merging, operands, frozenset(d.index.name for d in own), place, size, self.taken)

    def _partial(self, stage: Stage, merged: Use, digits: tuple[Digit, ...]) -> Refinement:
        """Registers for an item's partial result of each of its shared iterations."""
        name = claim(f"{merged.buffer}_partial", self.taken)
        alloc = Refinement(Direction.ALLOC, name, "", (), self.view.type_of(merged.buffer))
        return _sized(alloc, tuple(d.index.range for d in digits) or (1,), REGISTER)

    def _reduced(self, stage: Stage, merged: Use | None) -> tuple[Index, ...]:
        """Items' indexes of the own loops that what `stage` merges into does not move with."""
        if merged is None:
            return ()
        kept = {n for f in merged.forms for n in f.names}
        loops = {n for n in stage.loop_names if n not in kept and self.spread(n)}
        names = {d.index.name for n in loops for d in self.splits[n].digits}
        return tuple(i for i in self.items if i.name in names)

    def _moved(self, stage: Stage, tail: Split | None = None) -> Stage:
        """`stage` over the digits of its loops; of one of them, when a `tail` is given, over that alone."""
        names = (*(i.name for i in self.view.loops), *stage.loop_names)
        splits = [tail if tail is not None and n == tail.loop else self.splits[n] for n in names]
        digits = [d for s in reversed(splits) for d in s.bound(*INSIDE)]
        uses = tuple(self.homes[u.buffer].use(u) if u.buffer in self.homes else u for u in stage.uses)
        moved = replace(stage, loops=_nested(digits), uses=uses, constraints=())
        moved = moved.substitute({s.loop: s.form for s in splits if s.digits} | self._gone(stage, digits))
        kept = tuple(_of_all_lanes(c, splits) for c in stage.constraints)
        limits = tuple(c for s in splits if s is not tail for c in s.inside())
        alone = () if tail is None else self.splits[tail.loop].first()
        return replace(moved, constraints=(*kept, *limits, *alone, *self._alone(stage)))

    def _gone(self, stage: Stage, digits: list[Digit]) -> dict[str, Affine]:
        """Digits that a tail does without: the cells of the first ones are used."""
        known = {d.index.name for d in digits}
        names = (*(i.name for i in self.view.loops), *stage.loop_names)
        return {d.index.name: Affine() for n in names for d in self._all_inside(n) if d.index.name not in known}

    def _all_inside(self, loop: str) -> tuple[Digit, ...]:
        return self.splits[loop].bound(*INSIDE)

    def _alone(self, stage: Stage) -> tuple[Affine, ...]:
        """One item does what the others, which differ in loops that `stage` does not have, would repeat."""
        seen = any(u.writes and (u.buffer not in self.homes or self.homes[u.buffer].shared) for u in stage.uses)
        idle = [
            d
            for n in self.own
            if n not in stage.loop_names
            for d in self.splits[n].digits
            if d.index.bind not in INSIDE and d.index.name in {i.name for i in self.items}
        ]
        return (sum((Affine.var(d.index.name, -1) for d in idle), Affine()),) if seen and idle else ()


@dataclass(frozen=True, slots=True)
class Version:
    """What the items of a group do where all forms of `guard` (of the grid's indexes) are >= 0."""

    parts: tuple[Part, ...]
    guard: tuple[Affine, ...] = ()


def item_kernel(
    view: KernelView,
    grid: tuple[Index, ...],
    items: tuple[Index, ...],
    versions: Sequence[Version],
    allocs: tuple[Refinement, ...],
) -> Block:
    """The scheduled block: groups, their items, and what each item does in order."""
    shared = tuple(a for a in allocs if a.loc in SHARED)
    body = tuple(_item(view, k, grid, items, v, allocs) for k, v in enumerate(versions))
    return scheduled(view, grid, body, shared)


def _item(
    view: KernelView,
    number: int,
    grid: tuple[Index, ...],
    items: tuple[Index, ...],
    version: Version,
    allocs: tuple[Refinement, ...],
) -> Block:
    parts, limits = _hoisted(version.parts, {i.name for i in (*grid, *items)})
    mentioned = {n for p in parts for s in _stages(p) for n in s.names()} | {n for c in limits for n in c.names}
    passed = tuple(Index(i.name, 1, Affine.var(i.name)) for i in grid if i.name in mentioned)
    buffers = {r.into: r for r in (*view.refs, *allocs)}
    names = tuple(i.name for i in (*grid, *items))
    return Block(
        f"{view.name}_item{number or ''}",
        indexes=(*passed, *items),
        constraints=limits,
        guard=version.guard,
        refs=(
            *whole_refs(view, view.stages),
            *(replace(a, dir=Direction.INOUT, source=a.into) for a in allocs if a.loc in SHARED),
            *(a for a in allocs if a.loc not in SHARED),
        ),
        body=tuple(s for p in parts for s in _statements(view, p, buffers, names)),
    )


def _hoisted(parts: tuple[Part, ...], known: set[str]) -> tuple[tuple[Part, ...], tuple[Affine, ...]]:
    """Constraints of items that all stages have are checked once, where no item waits for another."""
    stages = [p for p in parts if isinstance(p, Stage)]
    if len(stages) < len(parts):
        return parts, ()
    common = [c for c in stages[0].constraints if set(c.names) <= known]
    limits = tuple(c for c in dict.fromkeys(common) if all(c in s.constraints for s in stages))
    return tuple(replace(s, constraints=_without(s.constraints, limits)) for s in stages), limits


def inner_and_edges(parts: Sequence[Part], around: tuple[Index, ...], grid: set[str]) -> list[Version]:
    """Groups whose iterations all meet the constraints do not check them; those at an edge do, each edge by itself.

    Where items wait for each other there is one version: compilers do not all take barriers in branches.
    """
    if not all(isinstance(p, Stage) for p in parts):
        return [Version(tuple(parts))]
    least = {c: _least(c, p, around, grid) for p in parts if isinstance(p, Stage) for c in p.constraints}
    edges = tuple(dict.fromkeys(e for e in least.values() if e is not None))
    straight = any(i.bind in _STATIC for p in parts if isinstance(p, Stage) for i in p.loops)
    if not 0 < len(edges) <= MOST_EDGES or not straight:
        return [Version(tuple(parts))]
    met = tuple(c for c, e in least.items() if e is not None)
    inner = tuple(replace(p, constraints=_without(p.constraints, met)) if isinstance(p, Stage) else p for p in parts)
    outer = [Version(tuple(parts), (*edges[:k], e * -1 + -1)) for k, e in enumerate(edges)]
    return [Version(inner, edges), *outer]


def _least(constraint: Affine, stage: Stage, around: tuple[Index, ...], grid: set[str]) -> Affine | None:
    """The least value of the constraint in a group, as a form of the grid's indexes; None where that decides nothing."""
    ranges = {i.name: (0, i.range - 1) for i in (*around, *stage.loops)}
    group = Affine.of([(n, c) for n, c in constraint.terms if n in grid], constraint.const)
    if not group.terms or set(constraint.names) <= grid:
        return None
    least = group + (constraint - group).bounds(ranges)[0]
    low, high = least.bounds(ranges)
    return least if low < 0 <= high else None


def _stages(part: Part) -> tuple[Stage, ...]:
    match part:
        case Stage():
            return (part,)
        case Pieces():
            return part.stages
        case _:
            return ()


def _statements(
    view: KernelView, part: Part, buffers: dict[str, Refinement], names: tuple[str, ...]
) -> list[Statement]:
    match part:
        case Pieces():
            return [part.block(view, buffers, names)]
        case Total():
            return part.statements()
        case Sync():
            return [part]
        case Stage():
            return [close_stage(part, buffers, names)]


def is_plain(uses: list[Use]) -> bool:
    """All accesses are the same, each subscript a loop of its own: an item meets only what it stored itself."""
    names = [n for f in uses[0].forms for n in f.names]
    alike = all(u.forms == uses[0].forms and not u.extent for u in uses)
    plain = all(f.is_const or f in (Affine.var(n) for n in f.names) for f in uses[0].forms)
    return alike and plain and len(set(names)) == len(names)


def _sized(alloc: Refinement, shape: tuple[int, ...], loc: Location) -> Refinement:
    type = TensorType.row_major(alloc.type.dtype, shape, align=16)
    return replace(alloc, type=type, access=(Affine(),) * len(shape), loc=loc)


def _nested(digits: Sequence[Digit]) -> tuple[Index, ...]:
    """Serial loops outermost, lanes innermost, so that what is unrolled is straight-line code."""
    return tuple(d.index for bind in INSIDE for d in digits if d.index.bind is bind)


def _of_all_lanes(constraint: Affine, splits: Sequence[Split]) -> Affine:
    """The constraint over the digits of the loops; of one lane, where all agree."""
    lanes = {
        d.index.name: Affine()
        for s in splits
        for d in s.bound(Bind.VECTOR)
        if lanes_agree(constraint, s.loop, d.index.range)
    }
    return constraint.substitute({s.loop: s.form for s in splits if s.digits}).substitute(lanes)


def _without(constraints: tuple[Affine, ...], known: tuple[Affine, ...]) -> tuple[Affine, ...]:
    return tuple(c for c in constraints if c not in known)


def _synchronised(parts: list[Part], shared: set[str], barrier: Sync) -> list[Part]:
    """Barriers between what items store to the group's memory and what others read or store there after them."""
    made: list[Part] = []
    open_: dict[str, list[Use]] = {}
    for part in parts:
        uses = [u for u in part.uses if u.buffer in shared] if isinstance(part, Stage) else []
        if any(_waits(use, open_.get(use.buffer, [])) for use in uses):
            made.append(barrier)
            open_ = {}
        made.append(part)
        for use in uses:
            open_.setdefault(use.buffer, []).append(use)
    return made


def _waits(use: Use, earlier: list[Use]) -> bool:
    """Another item may have to be done with the cell first."""
    return any((use.writes or e.writes) and e.forms != use.forms for e in earlier)
