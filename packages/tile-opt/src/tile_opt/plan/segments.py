"""Loop segments of a plan: the range of full vectors or tiles without boundary conditions, and the remainders."""

from __future__ import annotations

from tile_ir.stripe.affine import Affine, intervals
from tile_ir.stripe.nodes import Bind

from tile_opt.kernel.segments import (
    Part,
    Segment,
    cover,
    cover_masked,
    cover_parts,
    cover_unevenly,
    cover_vectors,
    decided,
    interior,
    split_edges,
    weakest,
    whole,
)
from tile_opt.kernel.view import KernelView
from tile_opt.plan.plan import Edge, Plan
from tile_opt.plan.steps.bind import Binding

LONG = 32
"""Iterations of a loop from which on those at its ends have code of their own where only they mask lanes."""


def segments_of(view: KernelView, plan: Plan, loop: str, size: int, binding: Binding | None) -> tuple[Segment, ...]:
    """Tiles of `size` iterations, remainders and edges of a loop, by what runs a tile of it."""
    extent = view.ranges[loop]
    if size == 1:
        return _masked_at_ends(view, plan, loop) or whole(extent)
    edge = plan.edge(loop)
    vector = binding is not None and binding.bind is Bind.VECTOR
    constraints = () if edge is Edge.MASK and not vector else constraints_on(view, loop)
    if binding is not None and vector:
        if _is_cut_outside(view, loop, constraints):
            others = Part.CUT if edge is Edge.MASK else Part.SINGLY
            within = interior(loop, constraints, view.ranges)
            return cover_parts(extent, within, size, binding.lanes, others)
        return _vectors(loop, constraints, view.ranges, size, binding.lanes, edge)
    tiles = cover(0, extent, size)
    if binding is None or not constraints:
        return tiles
    return tuple(s for s, _ in split_edges(tiles, *interior(loop, constraints, view.ranges)))


def _masked_at_ends(view: KernelView, plan: Plan, loop: str) -> tuple[Segment, ...]:
    """The iterations of a long reduction in which no lane is masked, apart from the others; empty where there are few."""
    lanes = {c.loop for level in plan.levels if level.bind is Bind.VECTOR for c in level.covers}
    met = tuple(c for c in constraints_on(view, loop) if lanes & {*c.names})
    extent = view.ranges[loop]
    if loop in {i.name for i in view.loops} or extent < LONG or not met:
        return ()
    others = tuple(c for c in view.constraints if loop not in c.names)
    ranges = intervals(view.ranges)
    low, high = interior(loop, tuple(weakest(c, others, ranges) for c in met), view.ranges)
    return tuple(s for s, _ in split_edges(whole(extent), low, high)) if 2 * (high - low) > extent else ()


def _is_cut_outside(view: KernelView, loop: str, constraints: tuple[Affine, ...]) -> bool:
    """The kernel's loops alone decide how much of a stage's loop runs."""
    shared = {i.name for i in view.loops}
    return loop not in shared and len(set(constraints)) == 1 and shared.issuperset({*constraints[0].names} - {loop})


def constraints_on(view: KernelView, loop: str) -> tuple[Affine, ...]:
    """Constraints of the kernel and of its stages that mention the loop."""
    return tuple(c for c in (*view.constraints, *(c for s in view.stages for c in s.constraints)) if loop in c.names)


def _vectors(
    loop: str, constraints: tuple[Affine, ...], extents: dict[str, int], size: int, lanes: int, edge: Edge
) -> tuple[Segment, ...]:
    if edge is Edge.MASK:
        return _masked(loop, constraints, extents, size, lanes)
    parts: list[Segment] = []
    for start, stop, is_edge in decided(loop, constraints, extents):
        if is_edge:
            parts.append(Segment(start, stop - start, 1))
        elif edge is Edge.OVERLAP:
            parts += cover_vectors(start, stop, size, lanes)
        else:
            exact = cover_unevenly(stop - start, size, lanes)
            parts += [Segment(start + s.start, s.count, s.size) for s in exact]
    return tuple(parts)


def _masked(
    loop: str, constraints: tuple[Affine, ...], extents: dict[str, int], size: int, lanes: int
) -> tuple[Segment, ...]:
    """Whole vectors all over; cut where a constraint on this loop alone begins or ends to hold."""
    alone = tuple(c for c in constraints if set(c.names) == {loop})
    met = tuple(c for c in constraints if c not in alone)
    pieces = decided(loop, alone, extents)
    tiles = tuple(s for start, stop, _ in pieces for s in cover_masked(start, stop, size, lanes))
    return tuple(s for s, _ in split_edges(tiles, *interior(loop, met, extents))) if met else tiles
