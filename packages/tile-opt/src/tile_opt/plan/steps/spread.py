"""A kernel's iterations dealt out to groups and items, as a plan says.

Every stage becomes a nest of its own inside the item's block. What iterations of the shared loops keep to themselves
stays in registers of the item that has them; a row that other items read lies in the group's memory, behind barriers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Direction,
    Index,
    Location,
    Refinement,
    Statement,
    Sync,
    TensorType,
)

from tile_opt.kernel.view import KernelView, Stage, Use, close_stage
from tile_opt.kernel.work import merged_use
from tile_opt.plan.nest import ARRAY, GROUP_MEMORY, REGISTER, scheduled, whole_refs
from tile_opt.plan.plan import Plan
from tile_opt.plan.steps.combine import Total, partial_results
from tile_opt.plan.steps.digits import Digit, split

Part = Stage | Total | Sync
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

    def __init__(self, view: KernelView, plan: Plan) -> None:
        self.view = view
        self.loops = {i.name: i for i in (*view.loops, *(i for s in view.stages for i in s.loops))}
        self.splits = {name: split(plan, loop) for name, loop in self.loops.items()}
        self.own = tuple(n for n in self.loops if n not in {i.name for i in view.loops})
        self.grid = self._ordered(plan, Bind.GRID)
        items = self._ordered(plan, Bind.GROUP, Bind.SUBGROUP, Bind.LANE)
        self.items = tuple(replace(i, bind=Bind.GROUP) for i in items)
        self.inner = tuple(d for i in view.loops for d in self.splits[i.name].bound(*INSIDE))
        """What each item does of the shared loops, in every stage."""
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
        made = _sized(alloc, shape, GROUP_MEMORY)
        strides = TensorType.row_major(alloc.type.dtype, tuple(shape[k] for k in order)).strides
        placed = [0] * len(shape)
        for k, stride in zip(order, strides, strict=True):
            placed[k] = stride
        layout = replace(made.type.layout, strides=tuple(placed))
        return Home(replace(made, type=replace(made.type, layout=layout)), dims, rows=False, shared=True)

    # --- stages -------------------------------------------------------------------------------------

    def build(self) -> Block:
        """The scheduled kernel."""
        allocs = [h.alloc for h in self.homes.values()]
        parts: list[Part] = []
        for stage in self.view.stages:
            made, more = self._parts(stage)
            parts += made
            allocs += more
        parts = _synchronised(parts, {h.alloc.into for h in self.homes.values() if h.shared})
        together = any(isinstance(p, (Total, Sync)) for p in parts)
        limits = () if together else self._item_limits()
        if limits:
            parts = [replace(p, constraints=_without(p.constraints, limits)) if isinstance(p, Stage) else p for p in parts]
        return item_kernel(self.view, self.grid, self.items, parts, tuple(allocs), limits)

    def _item_limits(self) -> tuple[Affine, ...]:
        """Limits of shared loops that an item checks once."""
        known = {i.name for i in (*self.grid, *self.items)}
        limits = (c for i in self.view.loops for c in self.splits[i.name].inside())
        return tuple(c for c in limits if set(c.names) <= known)

    def _parts(self, stage: Stage) -> tuple[list[Part], list[Refinement]]:
        moved = self._moved(stage)
        whole, merged = merged_use(stage), merged_use(moved)
        over = self._reduced(stage, whole)
        if whole is None or merged is None or not over:
            return [moved], []
        digits = tuple(sorted(self.inner, key=lambda d: d.index.bind is Bind.VECTOR))
        sizes, own = tuple(d.index.range for d in digits), tuple(Affine.var(d.index.name) for d in digits)
        start, partial, alloc = partial_results(self.view, moved, merged, sizes, own, self.taken)
        rank = len(self.homes[whole.buffer].alloc.type.sizes)
        assert whole.agg is not None
        total = Total(
            alloc.into, whole.buffer, whole.agg, alloc.type.dtype, sizes or (1,), rank, tuple(i.name for i in over)
        )
        return [start, partial, total], [alloc]

    def _reduced(self, stage: Stage, merged: Use | None) -> tuple[Index, ...]:
        """Items' indexes of the own loops that what `stage` merges into does not move with."""
        if merged is None:
            return ()
        kept = {n for f in merged.forms for n in f.names}
        loops = {n for n in stage.loop_names if n not in kept and self.spread(n)}
        names = {d.index.name for n in loops for d in self.splits[n].digits}
        return tuple(i for i in self.items if i.name in names)

    def _moved(self, stage: Stage) -> Stage:
        own = tuple(d for n in stage.loop_names for d in self._inside(n))
        splits = [self.splits[n] for n in (*(i.name for i in self.view.loops), *stage.loop_names)]
        uses = tuple(self.homes[u.buffer].use(u) if u.buffer in self.homes else u for u in stage.uses)
        moved = replace(stage, loops=_nested(own, self.inner), uses=uses)
        moved = moved.substitute({s.loop: s.form for s in splits if s.digits})
        limits = tuple(c for s in splits for c in s.inside())
        return replace(moved, constraints=(*moved.constraints, *limits, *self._alone(stage)))

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


def item_kernel(
    view: KernelView,
    grid: tuple[Index, ...],
    items: tuple[Index, ...],
    parts: Sequence[Part],
    allocs: tuple[Refinement, ...],
    limits: tuple[Affine, ...] = (),
) -> Block:
    """The scheduled block: groups, their items, and what each item does in order; `limits` leave out whole items."""
    stages = tuple(p for p in parts if isinstance(p, Stage))
    mentioned = {n for s in stages for n in s.names()} | {n for c in limits for n in c.names}
    passed = tuple(Index(i.name, 1, Affine.var(i.name)) for i in grid if i.name in mentioned)
    shared = tuple(a for a in allocs if a.loc == GROUP_MEMORY)
    private = tuple(a for a in allocs if a.loc != GROUP_MEMORY)
    buffers = {r.into: r for r in (*view.refs, *allocs)}
    names = tuple(i.name for i in (*grid, *items))
    item = Block(
        f"{view.name}_item",
        indexes=(*passed, *items),
        constraints=limits,
        refs=(
            *whole_refs(view, view.stages),
            *(replace(a, dir=Direction.INOUT, source=a.into) for a in shared),
            *private,
        ),
        body=tuple(s for p in parts for s in _statements(p, buffers, names)),
    )
    return scheduled(view, grid, (item,), shared)


def _statements(part: Part, buffers: dict[str, Refinement], names: tuple[str, ...]) -> list[Statement]:
    match part:
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


def _nested(own: tuple[Digit, ...], shared: tuple[Digit, ...]) -> tuple[Index, ...]:
    """Serial loops outermost, lanes innermost, so that what is unrolled is straight-line code."""
    order = (Bind.NONE, Bind.UNROLL, Bind.VECTOR)
    return tuple(d.index for bind in order for d in (*own, *shared) if d.index.bind is bind)


def _without(constraints: tuple[Affine, ...], known: tuple[Affine, ...]) -> tuple[Affine, ...]:
    return tuple(c for c in constraints if c not in known)


def _synchronised(parts: list[Part], shared: set[str]) -> list[Part]:
    """Barriers between what items store to the group's memory and what others read or store there after them."""
    made: list[Part] = []
    open_: dict[str, list[Use]] = {}
    for part in parts:
        uses = [u for u in part.uses if u.buffer in shared] if isinstance(part, Stage) else []
        if any(_waits(use, open_.get(use.buffer, [])) for use in uses):
            made.append(Sync())
            open_ = {}
        made.append(part)
        for use in uses:
            open_.setdefault(use.buffer, []).append(use)
    return made


def _waits(use: Use, earlier: list[Use]) -> bool:
    """Another item may have to be done with the cell first."""
    return any((use.writes or e.writes) and e.forms != use.forms for e in earlier)
