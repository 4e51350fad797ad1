"""Shared loops across a grid and the items of its groups: the form in which a plan's levels give each iteration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from tile_ir.frozen import frozen, replace
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Index

from tile_opt.kernel.segments import Segment, interior, split_edges
from tile_opt.plan.plan import Edge, Level, Plan

MOST_EDGES = 4
"""Groups beside each other at an end of a loop that have code of their own."""


@frozen
class Axis:
    """One shared loop inside a group: its iteration as a form over the indexes that stand for it."""

    loop: str
    extent: int
    form: Affine
    grid: Index | None
    items: tuple[Index | None, ...]
    """The index of each level of items, outermost first; None where a level leaves the loop whole."""
    run: tuple[Index, ...]
    """What one item keeps of it: pieces, then the elements of a piece."""
    size: int
    """Iterations of a group's tile."""
    guard: tuple[Affine, ...] = ()
    span: tuple[int, int] = (0, 0)
    """Iterations [low, high) that these groups cover."""
    edge: bool = False

    @property
    def ragged(self) -> bool:
        """The last tile reaches beyond the loop."""
        return self.extent % self.size > 0 if self.grid else self.size > self.extent

    @property
    def tiles(self) -> tuple[int, int]:
        """Numbers of the first and the last tile."""
        return self.span[0] // self.size, (self.span[1] - 1) // self.size


def item_levels(plan: Plan) -> tuple[Level, ...]:
    """The levels that deal out shared loops to items, outermost first."""
    own = {r.loop for r in plan.reductions}
    return tuple(v for v in plan.bound(Bind.GROUP) if not all(c.loop in own for c in v.covers))


def axis_of(plan: Plan, loop: Index) -> Axis:
    """The loop as the plan's grid, group and vector levels cut it.

    ValueError where a level of items does not divide the one outside it: they would do what other groups do, too.
    """
    form, size, whole = Affine(), loop.range, loop.range
    grid: Index | None = None
    items: list[Index | None] = []
    run: tuple[Index, ...] = ()
    for level in (*plan.bound(Bind.GRID), *item_levels(plan)):
        cover = level.cover(loop.name)
        if cover and level.bind is Bind.GROUP and size % cover.size:
            raise ValueError(f"{size} iterations of {loop.name!r} are no multiple of {cover.size}")
        count = -(-size // cover.size) if cover else 1
        name = f"{loop.name}_g" if level.bind is Bind.GRID else f"{loop.name}_w{len(items) or ''}"
        index = Index(name, count, bind=level.bind) if count > 1 else None
        step = (cover.stride or cover.size) if cover else 0
        form = form + Affine.var(name, step) if index else form
        size = cover.size if cover else size
        if level.bind is Bind.GRID:
            grid, whole = index, size
        else:
            items.append(index)
            run = _run(loop.name, size, cover.stride if cover else 0, count)
    run = run or _run(loop.name, size, 0, 1)
    form, run = _kept(plan, loop.name, form, run, items)
    return Axis(loop.name, loop.range, form, grid, tuple(items), run, whole, span=(0, loop.range))


def _run(name: str, size: int, stride: int, count: int) -> tuple[Index, ...]:
    """Indexes over what an item keeps: pieces of `stride` where neighbouring items take turns, else one run."""
    piece = stride if stride and count > 1 else size
    found = (Index(f"{name}_p", size // piece, bind=Bind.UNROLL), Index(f"{name}_i", piece, bind=Bind.UNROLL))
    return tuple(i for i in found if i.range > 1)


def _kept(
    plan: Plan, name: str, form: Affine, run: tuple[Index, ...], items: Sequence[Index | None]
) -> tuple[Affine, tuple[Index, ...]]:
    """The form with the run's terms; the run of a vector loop is a vector."""
    lanes = next((v.lanes for v in plan.bound(Bind.VECTOR) if v.cover(name)), 0)
    within = next((i for i in run if i.name == f"{name}_i"), None)
    piece = within.range if within else 1
    apart = piece * (items[-1].range if items and (items[-1] is not None) else 1)
    for index in run:
        form = form + Affine.var(index.name, 1 if index is within else apart)
    if not lanes:
        return form, run
    return form, tuple(replace(i, bind=Bind.VECTOR, lanes=lanes) if i is within else i for i in run)


def choices(plan: Plan, axis: Axis, constraints: tuple[Affine, ...], ranges: dict[str, int]) -> list[Axis]:
    """All groups of the loop first, then, where the plan peels its edges, edge and interior groups apart."""
    if axis.grid is None or plan.edge(axis.loop) is not Edge.PEEL:
        return [axis]
    if not any(axis.loop in c.names for c in constraints):
        return [axis]
    low, high = interior(axis.loop, constraints, ranges)
    segments = _few(split_edges((Segment(0, axis.grid.range, axis.size),), low, high))
    return [axis, *(_part(axis, axis.grid, s, edge) for s, edge in segments)]


def _few(segments: Sequence[tuple[Segment, bool]]) -> Iterator[tuple[Segment, bool]]:
    """Edges side by side as one where they are many: each is code of its own."""
    for edge, beside in groupby(segments, key=lambda each: each[1]):
        parts = [s for s, _ in beside]
        if edge and len(parts) > MOST_EDGES:
            parts = [replace(parts[0], count=len(parts))]
        yield from ((s, edge) for s in parts)


def _part(axis: Axis, grid: Index, segment: Segment, edge: bool) -> Axis:
    first = segment.start // axis.size
    number = Affine.var(grid.name)
    guard = [number + -first] if first else []
    if first + segment.count < grid.range:
        guard.append(number * -1 + (first + segment.count - 1))
    return replace(axis, guard=tuple(guard), span=(segment.start, min(segment.stop, axis.extent)), edge=edge)


def combinations(options: list[list[Axis]]) -> list[tuple[Axis, ...]]:
    """Choices per loop. Beside an edge of one loop the others are not cut: edges are few, and code is not free.

    The first choice of a loop is all of it; the last loops, whose edges cost most, are cut first.
    """
    cut = [k for k, found in enumerate(options) if len(found) > 1]
    if not cut:
        return [tuple(found[0] for found in options)]
    k = cut[-1]
    chosen: list[tuple[Axis, ...]] = []
    for part in options[k][1:]:
        rest = [[found[0]] if part.edge else found for found in options]
        rest[k] = [part]
        chosen += combinations(rest)
    return chosen


def cut_loop(loop: Index, levels: Sequence[tuple[int, Bind, int]], team: str) -> tuple[list[tuple[int, Index]], Affine]:
    """An index per level with its place, and the loop as a form over them; the last level takes what is left.

    What teams of items share has their index, `team`. ValueError where a level does not divide the one outside it.
    """
    found: list[tuple[int, Index]] = []
    form, left = Affine(), loop.range
    for number, (place, bind, size) in enumerate(levels):
        last = number == len(levels) - 1
        size = 1 if last else size
        if bind is Bind.GROUP:
            form = form + Affine.var(team, size)
        elif left % size:
            raise ValueError(f"{left} iterations of {loop.name!r} are no multiple of {size}")
        elif left > size:
            index = replace(loop, name=loop.name if last else f"{loop.name}{number}", range=left // size, bind=bind)
            form = form + Affine.var(index.name, size)
            found.append((place, index))
        left = size
    return found, form
