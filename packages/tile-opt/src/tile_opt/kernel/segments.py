"""Covering a loop's range exactly with tiles: equal tiles, remainders and edges as separate segments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import pairwise

from tile_ir.frozen import frozen
from tile_ir.powers import power_of_two
from tile_ir.stripe.affine import Affine, intervals


class Part(Enum):
    """Which tiles of a segment run, where the loops around a loop decide how much of it does."""

    ALL = "all"
    """Nothing is decided for a whole tile."""
    WHOLE = "whole"
    """Those of which every iteration runs."""
    CUT = "cut"
    """The others, their lanes masked."""
    SINGLY = "singly"
    """The others, one iteration after the other."""


@frozen
class Segment:
    """`count` tiles of `size` iterations each, the first at iteration `start`.

    A single tile may have fewer iterations than vectors of it have lanes: the last `past` of them are masked.
    """

    start: int
    count: int
    size: int
    past: int = 0
    part: Part = Part.ALL

    @property
    def stop(self) -> int:
        """The iteration after the last one."""
        return self.start + self.count * self.size - self.past


def whole(extent: int) -> tuple[Segment, ...]:
    """Every iteration a tile of its own."""
    return (Segment(0, extent, 1),)


def cover(start: int, stop: int, tile: int) -> tuple[Segment, ...]:
    """Full tiles, then one smaller tile for what remains."""
    full, rest = divmod(stop - start, tile)
    parts = (Segment(start, full, tile), Segment(start + full * tile, 1, rest))
    return tuple(p for p in parts if p.count and p.size)


def cover_vectors(start: int, stop: int, tile: int, lanes: int) -> tuple[Segment, ...]:
    """Tiles that are multiples of `lanes`; the last one overlaps its neighbour rather than leave a ragged end.

    Fewer than `lanes` iterations are covered by powers of two. Overlap computes some cells twice, to the
    same values, so it is for stages that overwrite.
    """
    extent = stop - start
    if extent < lanes:
        return powers_of_two(start, stop)
    full, rest = divmod(extent, min(tile, extent // lanes * lanes))
    parts = [Segment(start, full, (extent - rest) // full)]
    if rest:
        size = -(-rest // lanes) * lanes
        parts.append(Segment(stop - size, 1, size))
    return tuple(parts)


def cover_exactly(extent: int, tile: int, lanes: int) -> tuple[Segment, ...]:
    """Tiles, then whole vectors, then powers of two: no iteration twice, none left out."""
    full, rest = divmod(extent, tile)
    parts = [Segment(0, full, tile)] if full else []
    start = full * tile
    if rest >= lanes:
        parts.append(Segment(start, 1, rest // lanes * lanes))
        start += rest // lanes * lanes
    return (*parts, *powers_of_two(start, extent))


def cover_unevenly(extent: int, tile: int, lanes: int) -> tuple[Segment, ...]:
    """Tiles, then one vector of as many lanes as remain: a piece for each power of two would walk a sum again.

    Whole vectors stand alone where that one would be wider than a tile, or than two registers.
    """
    full, rest = divmod(extent, tile)
    whole = 0 if power_of_two(rest) <= min(tile, 2 * lanes) else rest // lanes * lanes
    start = full * tile
    parts = Segment(0, full, tile), Segment(start, 1, whole), Segment(start + whole, 1, rest - whole)
    return tuple(p for p in parts if p.count and p.size)


def cover_masked(start: int, stop: int, tile: int, lanes: int) -> tuple[Segment, ...]:
    """Tiles, then one of whole vectors, whose lanes past the end are masked; what is less than a vector gets a shorter one."""
    full, left = divmod(stop - start, tile)
    size = -(-left // lanes) * lanes if left > lanes else short_vector(left, lanes)
    parts = (Segment(start, full, tile), Segment(start + full * tile, 1, size, size - left))
    return tuple(p for p in parts if p.count and p.stop > p.start)


def cover_parts(extent: int, within: tuple[int, int], tile: int, lanes: int, others: Part) -> tuple[Segment, ...]:
    """Tiles of which every iteration runs, as it does `within` [low, high) anyway; the others; then what remains.

    Remainders are masked where the others are, else run one iteration after the other.
    """
    full, rest = divmod(extent, tile)
    low, high = min(full, -(-within[0] // tile)), min(full, within[1] // tile)
    pieces = ((0, full, Part.WHOLE), (0, low, others), (max(low, high), full, others))
    parts = [Segment(a * tile, b - a, tile, part=part) for a, b, part in pieces if b > a]
    if not rest:
        return tuple(parts)
    if others is Part.CUT:
        return (*parts, *cover_masked(full * tile, extent, tile, lanes))
    return (*parts, Segment(full * tile, rest, 1))


def short_vector(rest: int, lanes: int) -> int:
    """Lanes of the shortest vector that holds `rest` iterations, of halves of `lanes`."""
    while lanes % 2 == 0 and rest <= lanes // 2:
        lanes //= 2
    return lanes


def powers_of_two(start: int, stop: int) -> tuple[Segment, ...]:
    """Single tiles of falling powers of two."""
    parts: list[Segment] = []
    while start < stop:
        size = 1 << ((stop - start).bit_length() - 1)
        parts.append(Segment(start, 1, size))
        start += size
    return tuple(parts)


def interior(name: str, constraints: tuple[Affine, ...], extents: Mapping[str, int]) -> tuple[int, int]:
    """The iterations [low, high) of a loop for which every constraint on it holds whatever the other loops do."""
    low, high = 0, extents[name]
    ranges = intervals(extents)
    for constraint in constraints:
        c = constraint.coefficient(name)
        if not c:
            continue
        rest, _ = (constraint - Affine.var(name, c)).bounds(ranges)
        if c > 0:
            low = max(low, -(rest // c))
        else:
            high = min(high, rest // -c + 1)
    return (low, high) if low < high else (0, 0)


def fills_vectors(name: str, constraints: tuple[Affine, ...], extents: Mapping[str, int], lanes: int) -> bool:
    """Most of a loop's iterations, and a vector of them at least, run whatever the other loops do."""
    low, high = interior(name, constraints, extents)
    return high - low >= min(extents[name], max(lanes, extents[name] // 2))


def decided(
    name: str, constraints: tuple[Affine, ...], extents: Mapping[str, int]
) -> tuple[tuple[int, int, bool], ...]:
    """(start, stop, edge) of pieces of a loop: outside edges each constraint on it holds always or never.

    A constraint on this loop alone leaves no edge. Neighbouring edges are one.
    """
    extent = extents[name]
    open_parts = [_undecided(name, c, extents) for c in constraints if name in c.names]
    cuts = sorted({0, extent, *(min(max(at, 0), extent) for part in open_parts for at in part)})
    pieces: list[tuple[int, int, bool]] = []
    for start, stop in pairwise(cuts):
        edge = any(a <= start < b for a, b in open_parts)
        if edge and pieces and pieces[-1][2]:
            start = pieces.pop()[0]
        pieces.append((start, stop, edge))
    return tuple(pieces)


def _undecided(name: str, constraint: Affine, extents: Mapping[str, int]) -> tuple[int, int]:
    """The iterations [low, high) of a loop for which other loops decide; before and after them the constraint is decided."""
    c = constraint.coefficient(name)
    rest = (constraint - Affine.var(name, c)).bounds(intervals(extents))
    first, last = sorted(-(r // c) if c > 0 else r // -c + 1 for r in rest)
    return first, last


def weakest(constraint: Affine, others: Iterable[Affine], ranges: Mapping[str, tuple[int, int]]) -> Affine:
    """A form that is never larger where all the others hold, with the largest least value: where it holds, so does the constraint."""
    for other in others:
        times = {constraint.coefficient(n) // other.coefficient(n) for n in other.names}
        forms = [constraint, *(constraint - other * k for k in times if k > 0)]
        constraint = max(forms, key=lambda form: form.bounds(ranges)[0])
    return constraint


def split_edges(segments: tuple[Segment, ...], low: int, high: int) -> tuple[tuple[Segment, bool], ...]:
    """Segments cut so that each lies inside [low, high) or not; edge tiles and masked ones stand alone. The flag says "edge"."""
    parts: list[tuple[Segment, bool]] = []
    for s in segments:
        if s.past:
            parts.append((s, True))
            continue
        first = min(s.count, max(0, -(-(low - s.start) // s.size)))
        last = max(first, min(s.count, (high - s.start) // s.size))
        parts += [(Segment(s.start + k * s.size, 1, s.size), True) for k in range(first)]
        if last > first:
            parts.append((Segment(s.start + first * s.size, last - first, s.size), False))
        parts += [(Segment(s.start + k * s.size, 1, s.size), True) for k in range(last, s.count)]
    return tuple(parts)
