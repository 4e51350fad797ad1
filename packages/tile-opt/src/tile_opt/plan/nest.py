"""From a kernel view and a plan to nested blocks: grid, tile loops, and stages over one tile each.

Every combination of tile segments becomes a sibling block whose inner loops have constant extents. Local
buffers grow by the tile's dimensions; those that held one cell become registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block, Direction, Index, Location, Refinement, Scope, Statement, TensorType

from tile_opt.kernel.segments import Segment
from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView, Stage, Use, close_stage, direction_of
from tile_opt.plan.plans import LoopPlan, Role, TilePlan

REGISTER = Location("REG", scope=Scope.THREAD)
ARRAY = Location("LOCAL", scope=Scope.THREAD)
GROUP_MEMORY = Location("LOCAL", scope=Scope.GROUP)
_BINDS = {Role.UNROLL: Bind.UNROLL, Role.VECTOR: Bind.VECTOR}


@dataclass(frozen=True, slots=True)
class Tile:
    """One loop inside one sibling: the segment it runs, and how its iteration is computed."""

    plan: LoopPlan
    segment: Segment
    edge: bool
    position: Affine
    """Tile number within the whole loop."""
    form: Affine
    """The iteration, inner index included."""
    outer: tuple[Index, ...]
    inner: tuple[Index, ...]
    constraints: tuple[Affine, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """A packed operand: buffer ``[outer loops][tile of loop][own loops][lane]``."""

    buffer: str
    operand: tuple[Affine, ...]
    """Subscripts of the use that was packed; other uses of the same buffer keep reading it."""
    loop: str
    outer: tuple[str, ...]
    own: tuple[str, ...]

    def forms(self, position: Affine, inner: Affine) -> tuple[Affine, ...]:
        """Subscripts of the element that iteration `inner` of tile `position` reads."""
        return (*map(Affine.var, self.outer), position, *map(Affine.var, self.own), inner)


Panels = Mapping[str, Panel]
"""Packed operands by the buffer they replace."""


def build_nest(view: KernelView, plan: TilePlan, panels: Panels | None = None) -> Block:
    """The scheduled kernel block; reads of the buffers in `panels` go to their packed copies."""
    grid = tuple(Index(_grid_name(p), p.groups, bind=Bind.GRID) for p in plan.loops if p.groups > 1)
    tilings = [[_tile(p, k) for k in range(len(p.segments))] for p in plan.loops]
    siblings = [_sibling(view, tiles, number, grid, panels or {}) for number, tiles in enumerate(product(*tilings))]
    body = tuple(b for b in siblings if b is not None)
    stages = tuple(_reading_panels(s, panels or {}, ()) for s in view.stages)
    return scheduled(replace(view, stages=stages), grid, body)


def _grid_name(plan: LoopPlan) -> str:
    return f"{plan.name}_g"


def _tile(plan: LoopPlan, k: int) -> Tile:
    segment, edge = plan.segments[k]
    before = sum(s.count for s, _ in plan.segments[:k])
    outer, position, constraints = _position(plan, segment, before)
    inner = _inner(plan, segment)
    form = (position + -before) * segment.size + segment.start
    for index in inner:
        form = form + Affine.var(index.name)
    return Tile(plan, segment, edge, position, form, outer, inner, constraints)


def _position(plan: LoopPlan, segment: Segment, before: int) -> tuple[tuple[Index, ...], Affine, tuple[Affine, ...]]:
    """Loops over this segment's tiles, the tile number they give, and what keeps it inside the segment."""
    name = f"{plan.name}_t"
    if plan.groups == 1 or plan.chunk is None:
        loops = (Index(name, segment.count),) if segment.count > 1 else ()
        return loops, (Affine.var(name) if loops else Affine()) + before, ()
    position = Affine.var(_grid_name(plan), plan.chunk)
    loops = ()
    if plan.chunk > 1:
        loops = (Index(name, plan.chunk),)
        position = position + Affine.var(name)
    constraints: list[Affine] = []
    if before:
        constraints.append(position + -before)
    if before + segment.count < plan.groups * plan.chunk:
        constraints.append(position * -1 + (before + segment.count - 1))
    return loops, position, tuple(constraints)


def _inner(plan: LoopPlan, segment: Segment) -> tuple[Index, ...]:
    if segment.size == 1:
        return ()
    lanes = 1
    if plan.role is Role.VECTOR:
        lanes = plan.lanes if segment.size % plan.lanes == 0 else segment.size
    return (Index(f"{plan.name}_i", segment.size, bind=_BINDS[plan.role], lanes=lanes),)


def _sibling(
    view: KernelView, tiles: tuple[Tile, ...], number: int, grid: tuple[Index, ...], panels: Panels
) -> Block | None:
    outer = tuple(i for t in tiles for i in t.outer)
    grid_names = {i.name for i in grid}
    constraints = tuple(c for t in tiles for c in t.constraints)
    guard = tuple(c for c in constraints if set(c.names) <= grid_names)
    inside = tuple(c for c in constraints if not set(c.names) <= grid_names)
    inner = tuple(sorted((i for t in tiles for i in t.inner), key=lambda i: i.bind is Bind.VECTOR))
    allocs = tuple(_expanded(a, inner) for a in view.allocs)
    buffers = {r.into: r for r in (*view.refs, *allocs)}
    names = tuple(i.name for i in (*grid, *outer))
    stages = [_tiled_stage(view, _reading_panels(s, panels, tiles), tiles, inner) for s in view.stages]
    kept = [s for s in stages if s is not None]
    if not kept:
        return None
    body = tuple(close_stage(s, buffers, names) for s in kept)
    used = {n for s in kept for n in s.names()} | {n for c in inside for n in c.names}
    passed = tuple(Index(i.name, 1, Affine.var(i.name)) for i in grid if i.name in used)
    return Block(
        f"{view.name}_tile{number}",
        indexes=passed + outer,
        constraints=inside,
        guard=guard,
        refs=whole_refs(view, tuple(kept)) + allocs,
        body=body,
    )


def _reading_panels(stage: Stage, panels: Panels, tiles: tuple[Tile, ...]) -> Stage:
    """`stage` with the uses of packed operands redirected to their panels."""
    if not panels:
        return stage
    return replace(stage, uses=tuple(_panel_use(u, panels.get(u.buffer), tiles) for u in stage.uses))


def _panel_use(use: Use, panel: Panel | None, tiles: tuple[Tile, ...]) -> Use:
    if panel is None or use.forms != panel.operand:
        return use
    tile = next((t for t in tiles if t.plan.name == panel.loop), None)
    if tile is None:
        return replace(use, buffer=panel.buffer)
    inner = Affine.var(tile.inner[0].name) if tile.inner else Affine()
    return replace(use, buffer=panel.buffer, forms=panel.forms(tile.position, inner))


def scheduled(
    view: KernelView, grid: tuple[Index, ...], body: tuple[Statement, ...], shared: tuple[Refinement, ...] = ()
) -> Block:
    """The block of a scheduled kernel: a grid over `body`, with the view's buffers whole and what a group shares."""
    return Block(
        view.name,
        indexes=grid,
        refs=whole_refs(view, view.stages) + shared,
        body=body,
        tags=view.tags | {"scheduled"},
        comment=view.comment,
        origin=view.origin,
    )


def element(type: TensorType) -> TensorType:
    """One element of a view."""
    return replace(type, sizes=(1,) * len(type.sizes))


def inout(ref: Refinement) -> Refinement:
    """The whole of a parent's buffer, to read and write."""
    return replace(ref, dir=Direction.INOUT, source=ref.into, access=(Affine(),) * len(ref.type.sizes))


def whole_refs(view: KernelView, stages: tuple[Stage, ...]) -> tuple[Refinement, ...]:
    """The buffers that `stages` use, passed down whole with the direction of their uses."""
    uses = [u for s in stages for u in s.uses]
    return tuple(
        replace(r, dir=direction_of(mine), source=r.into, access=(Affine(),) * len(r.type.sizes))
        for r in view.refs
        if (mine := [u for u in uses if u.buffer == r.into])
    )


def _expanded(alloc: Refinement, inner: tuple[Index, ...]) -> Refinement:
    """The local buffer for a whole tile; one cell per iteration means registers."""
    sizes = alloc.type.sizes + tuple(i.range for i in inner)
    private = all(s == 1 for s in alloc.type.sizes)
    keep = alloc.loc.unit == "REG" or private
    type = TensorType.row_major(alloc.type.dtype, sizes, align=64)
    return replace(alloc, type=type, access=(Affine(),) * len(sizes), loc=REGISTER if keep else ARRAY)


def _tiled_stage(view: KernelView, stage: Stage, tiles: tuple[Tile, ...], inner: tuple[Index, ...]) -> Stage | None:
    kept = _open_constraints(view, stage, tiles)
    if kept is None:
        return None
    unrolled = _unrolled_loops(stage, tiles, kept)
    loops = tuple(replace(i, bind=Bind.UNROLL) if i.name in unrolled else i for i in _ordered(view, stage))
    local = tuple(Affine.var(i.name) for i in inner)
    uses = tuple(replace(u, forms=u.forms + local) if view.is_local(u.buffer) else u for u in stage.uses)
    moved = replace(stage, loops=loops + inner, uses=uses, constraints=kept)
    return moved.substitute({t.plan.name: t.form for t in tiles})


def _open_constraints(view: KernelView, stage: Stage, tiles: tuple[Tile, ...]) -> tuple[Affine, ...] | None:
    """Constraints that this tile can violate; None when one can never hold."""
    ranges = {name: (0, extent - 1) for name, extent in view.ranges.items()}
    ranges |= {t.plan.name: (t.segment.start, t.segment.stop - 1) for t in tiles}
    kept: list[Affine] = []
    for constraint in stage.constraints:
        low, high = constraint.bounds(ranges)
        if high < 0:
            return None
        if low < 0:
            kept.append(constraint)
    return tuple(kept)


def _unrolled_loops(stage: Stage, tiles: tuple[Tile, ...], constraints: tuple[Affine, ...]) -> set[str]:
    """Loops that meet an unrolled edge in a constraint: unrolling both decides it at compile time."""
    edges = {t.plan.name for t in tiles if t.edge and t.plan.role is Role.UNROLL}
    return {n for c in constraints if set(c.names) & edges for n in c.names if n in stage.loop_names}


def _ordered(view: KernelView, stage: Stage) -> tuple[Index, ...]:
    """Own loops with the longest strides outside, so that the innermost walks memory in small steps."""
    if any(i.bind is not Bind.NONE or i.order.value == "ordered" for i in stage.loops):
        return stage.loops
    reads = [u for u in stage.uses if u.reads and not view.is_local(u.buffer)]

    def reach(index: Index) -> int:
        return max((abs(flat_stride(view, u, index.name)) for u in reads), default=0)

    return tuple(sorted(stage.loops, key=reach, reverse=True))
