"""Loop segments of a plan: the range of full vectors or tiles without boundary conditions, and the remainders."""

from __future__ import annotations

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind

from tile_opt.kernel.segments import (
    Part,
    Segment,
    cover,
    cover_exactly,
    cover_masked,
    cover_parts,
    cover_vectors,
    decided,
    interior,
    split_edges,
    whole,
)
from tile_opt.kernel.view import KernelView
from tile_opt.plan.plan import Edge, Plan
from tile_opt.plan.steps.bind import Binding


def segments_of(view: KernelView, plan: Plan, loop: str, size: int, binding: Binding | None) -> tuple[Segment, ...]:
    """Tiles of `size` iterations, remainders and edges of a loop, by what runs a tile of it."""
    extent = view.ranges[loop]
    if size == 1:
        return whole(extent)
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
    for start, stop, is_edge in decided(loop, constraints, extents, lanes):
        if is_edge:
            parts.append(Segment(start, stop - start, 1))
        elif edge is Edge.OVERLAP:
            parts += cover_vectors(start, stop, size, lanes)
        else:
            exact = cover_exactly(stop - start, size, lanes)
            parts += [Segment(start + s.start, s.count, s.size) for s in exact]
    return tuple(parts)


def _masked(
    loop: str, constraints: tuple[Affine, ...], extents: dict[str, int], size: int, lanes: int
) -> tuple[Segment, ...]:
    """Whole vectors all over; cut where a constraint on this loop alone begins or ends to hold."""
    alone = tuple(c for c in constraints if set(c.names) == {loop})
    met = tuple(c for c in constraints if c not in alone)
    pieces = decided(loop, alone, extents, 1)
    tiles = tuple(s for start, stop, _ in pieces for s in cover_masked(start, stop, size, lanes))
    return tuple(s for s, _ in split_edges(tiles, *interior(loop, met, extents))) if met else tiles
