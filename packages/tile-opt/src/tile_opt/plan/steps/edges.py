"""Cutting a loop into segments of equal tiles: siblings in which every tile is whole and edges stand alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tile_ir.frozen import frozen, replace
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import Index

from tile_opt.kernel.segments import Part, Segment, weakest
from tile_opt.kernel.view import Stage
from tile_opt.plan.tree import Around, Nest, Node, Ranges, nests_of, spans, stages_of, substitute

ZERO = Affine()


@frozen
class Tiling:
    """How one loop becomes tiles: segments over its whole extent, numbered through by `name`.

    A loop that blocks around divide (`base`: first iteration of a block, over their loops) has `chunk` tiles a block.
    """

    loop: str
    segments: tuple[Segment, ...]
    name: str
    base: Affine = ZERO
    chunk: int = 0

    size: int = 1
    """Iterations of a whole tile: blocks hold a multiple of them."""
    single: str = ""
    """The loop over the iterations of a tile that run one after the other."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The number of each segment's first tile.

        Where every segment lies within whole tiles that start at multiples of the size, remainders share the number
        of the tile that they are parts of; otherwise tiles are numbered one after the other.
        """
        if all(_in_place(s, self.size) for s in self.segments):
            return tuple(s.start // self.size for s in self.segments)
        return tuple(sum(s.count for s in self.segments[:k]) for k in range(len(self.segments)))

    @property
    def count(self) -> int:
        """Tiles in all, as they are numbered."""
        return max((n + s.count for n, s in zip(self.numbers, self.segments, strict=True)), default=0)


def _in_place(segment: Segment, size: int) -> bool:
    if segment.count > 1 or segment.size == size:
        return segment.size == size and segment.start % size == 0
    return segment.start // size == (segment.stop - 1) // size


def tile(nest: Nest, tiling: Tiling, around: Around) -> Nest:
    """`nest` once per segment, each under a loop over the segment's tiles; what a segment decides is decided.

    Inside, the loop keeps its name and runs over one tile.
    """
    siblings: list[Node] = []
    for segment, before in zip(tiling.segments, tiling.numbers, strict=True):
        made = _sibling(nest, tiling, segment, before, around)
        siblings += [] if made is None else [made]
    return Nest(nest.name, body=tuple(siblings), guard=nest.guard)


def _sibling(nest: Nest, tiling: Tiling, segment: Segment, before: int, around: Around) -> Nest | None:
    inner, ranges = decided(replace(nest, guard=()), tiling, segment, around), around.ranges
    if inner is None:
        return None
    loops, position, limits = _position(tiling, segment, before)
    known = {**ranges, **spans(loops)}
    limits = tuple(c for c in limits if c.bounds(known)[0] < 0)
    first = Affine((), segment.start) - tiling.base
    if segment.count > 1:
        first = first + (position + -before) * segment.size
    made = _part(inner, tiling, segment, first, ranges)
    if made is None:
        return None
    inner, decision = made
    limits += decision
    name = tiling.single if segment.part is Part.SINGLY else tiling.loop
    form = first + Affine.var(name) if segment.size > 1 else first
    kept = tuple(
        replace(i, name=name, range=segment.size) if i.name == tiling.loop else i
        for i in nest.loops
        if i.name != tiling.loop or segment.size > 1
    )
    inner = replace(substitute(inner, {tiling.loop: form}), loops=kept)
    if segment.past:
        inner = replace(inner, constraints=(*inner.constraints, (tiling.base + form) * -1 + (segment.stop - 1)))
    own = {i.name for i in loops}
    guard = tuple(c for c in limits if not own.intersection(c.names))
    return Nest(nest.name, loops, (inner,), tuple(c for c in limits if c not in guard), guard)


def _part(
    nest: Nest, tiling: Tiling, segment: Segment, first: Affine, ranges: Ranges
) -> tuple[Nest, tuple[Affine, ...]] | None:
    """What runs of the segment's part, and the condition on tiles that start at `first` that they are in it.

    Where the loops around decide nothing, all tiles count as whole.
    """
    if segment.part is Part.ALL:
        return nest, ()
    limits = {c for c in _constraints(nest) if tiling.loop in c.names}
    if len(limits) != 1 or not set(ranges).issuperset(names_in(limits) - {tiling.loop}):
        return (nest, ()) if segment.part is Part.WHOLE else None
    (limit,) = limits
    worst = segment.size - 1 if limit.coefficient(tiling.loop) < 0 else 0
    whole = limit.substitute({tiling.loop: first + worst})
    if segment.part is Part.WHOLE:
        return _without(nest, limit), (whole,)
    return nest, (whole * -1 + -1,)


def _constraints(nest: Nest) -> Iterator[Affine]:
    """Of the tree and its stages."""
    for inner in nests_of(nest):
        yield from inner.constraints
    for stage in stages_of(nest):
        yield from stage.constraints


def _without(nest: Nest, constraint: Affine) -> Nest:
    """The tree where the constraint holds."""

    def kept(constraints: tuple[Affine, ...]) -> tuple[Affine, ...]:
        return tuple(c for c in constraints if c != constraint)

    body: list[Node] = []
    for node in nest.body:
        match node:
            case Nest():
                body.append(_without(node, constraint))
            case Stage():
                body.append(replace(node, constraints=kept(node.constraints)))
            case _:
                body.append(node)
    return replace(nest, body=tuple(body), constraints=kept(nest.constraints))


def _position(tiling: Tiling, segment: Segment, before: int) -> tuple[tuple[Index, ...], Affine, tuple[Affine, ...]]:
    """The loop over this segment's tiles, the tile number they give, and what keeps it inside the segment."""
    if not tiling.chunk:
        loops = (Index(tiling.name, segment.count),) if segment.count > 1 else ()
        return loops, (Affine.var(tiling.name) if loops else Affine()) + before, ()
    size = tiling.size
    assert all(c % size == 0 for _, c in tiling.base.terms), f"blocks of {tiling.loop} hold whole tiles"
    position = Affine(tuple((n, c // size) for n, c in tiling.base.terms))
    loops = (Index(tiling.name, tiling.chunk),) if tiling.chunk > 1 else ()
    if loops:
        position = position + Affine.var(tiling.name)
    limits = (position + -before, position * -1 + (before + segment.count - 1))
    return loops, position, limits


def decided(nest: Nest, tiling: Tiling, segment: Segment, around: Around) -> Nest | None:
    """`nest` without the constraints that hold throughout a segment, and without what never runs there."""
    inside = around.within(replace(nest, constraints=()))
    constraints = _open(nest.constraints, tiling, segment, inside)
    if constraints is None:
        return None
    inside = replace(inside, facts=(*inside.facts, *constraints))
    body: list[Node] = []
    for node in nest.body:
        kept: Node | None = node
        if isinstance(node, Stage):
            met = replace(inside, ranges={**inside.ranges, **spans(node.loops)})
            mine = _open(node.constraints, tiling, segment, met)
            kept = None if mine is None else replace(node, constraints=mine)
        elif isinstance(node, Nest):
            kept = decided(node, tiling, segment, inside)
        body += [] if kept is None else [kept]
    return replace(nest, constraints=constraints, body=tuple(body)) if body else None


def _open(constraints: Sequence[Affine], tiling: Tiling, segment: Segment, around: Around) -> tuple[Affine, ...] | None:
    """Constraints that the segment can violate, as far as what holds around it leaves that open; None when one can never hold."""
    ranges = {**around.ranges, tiling.loop: (segment.start, segment.stop - 1)}
    facts = [_anywhere(f, tiling) for f in around.facts]
    kept: list[Affine] = []
    for constraint in constraints:
        form = _anywhere(constraint, tiling)
        low, high = form.bounds(ranges)
        if high < 0:
            return None
        if low < 0 and weakest(form, facts, ranges).bounds(ranges)[0] < 0:
            kept.append(constraint)
    return tuple(kept)


def _anywhere(form: Affine, tiling: Tiling) -> Affine:
    """A form over iterations of the whole loop: no longer over those of a block."""
    return form - tiling.base * form.coefficient(tiling.loop)
