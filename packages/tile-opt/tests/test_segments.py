"""Segments of a loop: every cover is exact, and pieces that are called decided are."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.stripe.affine import Affine
from tile_opt.kernel.segments import (
    Part,
    Segment,
    cover,
    cover_exactly,
    cover_masked,
    cover_parts,
    cover_unevenly,
    cover_vectors,
    decided,
    interior,
    split_edges,
)

EXTENTS = st.integers(1, 70)
LANES = st.sampled_from([1, 2, 4, 8, 16])
TILES = st.integers(1, 5)


def covered(segments: tuple[Segment, ...]) -> list[int]:
    """Every iteration that runs, as often as it does."""
    return [i for s in segments for i in range(s.start, s.stop)]


@given(EXTENTS, TILES, LANES)
def test_exact_covers_run_every_iteration_once(extent: int, vectors: int, lanes: int) -> None:
    tile = vectors * lanes
    exact = cover_exactly(extent, tile, lanes), cover_unevenly(extent, tile, lanes)
    for segments in (cover(0, extent, tile), *exact, cover_masked(0, extent, tile, lanes)):
        assert covered(segments) == [*range(extent)]


@given(EXTENTS, TILES, LANES)
def test_what_tiles_leave_over_is_one_vector_or_whole_ones_and_a_shorter_one(
    extent: int, vectors: int, lanes: int
) -> None:
    """A piece for each power of two would walk the sum again."""
    tile = vectors * lanes
    left = [s for s in cover_unevenly(extent, tile, lanes) if s.size < tile]
    assert len(left) <= 2
    assert vectors != 2 or extent % tile <= lanes + lanes // 2 or len(left) <= 1


@given(EXTENTS, TILES, LANES)
def test_what_is_masked_is_less_than_a_vector_and_makes_whole_ones(extent: int, vectors: int, lanes: int) -> None:
    for segment in cover_masked(0, extent, vectors * lanes, lanes):
        assert 0 <= segment.past < lanes
        assert segment.size % lanes == 0 or (segment.size < lanes and lanes % segment.size == 0)


@given(EXTENTS, TILES, LANES)
def test_overlapping_covers_stay_inside_and_leave_nothing_out(extent: int, vectors: int, lanes: int) -> None:
    segments = cover_vectors(0, extent, vectors * lanes, lanes)
    assert {*covered(segments)} == {*range(extent)}
    assert all(s.size % lanes == 0 for s in segments) or extent < lanes


@given(EXTENTS, TILES, LANES, st.data())
def test_parts_run_every_iteration_once_on_each_side(
    extent: int, vectors: int, lanes: int, data: st.DataObject
) -> None:
    """Whole tiles and the others share iterations: of each tile one of the two runs, and `within` only whole ones."""
    low = data.draw(st.integers(0, extent))
    high = data.draw(st.integers(low, extent))
    others = data.draw(st.sampled_from([Part.CUT, Part.SINGLY]))
    parts = cover_parts(extent, (low, high), vectors * lanes, lanes, others)
    whole = covered(tuple(s for s in parts if s.part is Part.WHOLE))
    rest = covered(tuple(s for s in parts if s.part is not Part.WHOLE))
    assert {*whole, *rest} == {*range(extent)}
    assert len({*whole}) == len(whole)
    assert len({*rest}) == len(rest)
    full = extent // (vectors * lanes) * vectors * lanes
    assert {*whole} - {*rest} <= {*range(low, high)}
    assert {*range(full)} == {*whole}


# --- what constraints decide -------------------------------------------------------------------------


@st.composite
def constrained(draw: st.DrawFn) -> tuple[tuple[Affine, ...], dict[str, int]]:
    """Constraints on loops i, j and k."""
    extents = {n: draw(st.integers(1, 9)) for n in "ijk"}
    forms = st.builds(
        lambda i, j, k, c: Affine.var("i", i) + Affine.var("j", j) + Affine.var("k", k) + c,
        st.integers(-3, 3),
        st.integers(-2, 2),
        st.sampled_from([0, 0, 1]),
        st.integers(-9, 9),
    )
    return tuple(draw(st.lists(forms, min_size=1, max_size=3))), extents


def verdicts(constraint: Affine, extents: dict[str, int], i: int) -> set[bool]:
    """Whether it holds in iteration i of loop i, over all iterations of the others."""
    others = product(range(extents["j"]), range(extents["k"]))
    return {constraint.evaluate({"i": i, "j": j, "k": k}) >= 0 for j, k in others}


@settings(max_examples=300)
@given(constrained())
def test_the_interior_is_where_everything_holds(drawn: tuple[tuple[Affine, ...], dict[str, int]]) -> None:
    constraints, extents = drawn
    low, high = interior("i", constraints, extents)
    on_i = [c for c in constraints if c.coefficient("i")]
    holds = [i for i in range(extents["i"]) if all(verdicts(c, extents, i) == {True} for c in on_i)]
    assert [*range(low, high)] == holds


@settings(max_examples=300)
@given(constrained())
def test_pieces_without_an_edge_are_decided(drawn: tuple[tuple[Affine, ...], dict[str, int]]) -> None:
    """Each constraint holds in all of a piece's iterations or in none, and the pieces follow one another."""
    constraints, extents = drawn
    pieces = decided("i", constraints, extents)
    assert [i for start, stop, _ in pieces for i in range(start, stop)] == [*range(extents["i"])]
    for start, stop, edge in pieces:
        for c in constraints if not edge else ():
            if "i" in c.names:
                assert len({v for i in range(start, stop) for v in verdicts(c, extents, i)}) == 1


@given(EXTENTS, TILES, LANES, st.data())
def test_edges_are_what_leaves_the_inside(extent: int, vectors: int, lanes: int, data: st.DataObject) -> None:
    low = data.draw(st.integers(0, extent))
    high = data.draw(st.integers(low, extent))
    segments = cover_masked(0, extent, vectors * lanes, lanes)
    parts = split_edges(segments, low, high)
    assert covered(tuple(s for s, _ in parts)) == covered(segments)
    for segment, edge in parts:
        assert edge or (low <= segment.start and segment.stop <= high)
