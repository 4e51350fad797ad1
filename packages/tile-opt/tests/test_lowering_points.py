"""Counting the iterations of nested loops, against running through them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lowering_support import TARGET, lower
from test_lowering_nests import TILED
from tile_ir.stripe.affine import Affine, DivMod, DivModOp, Quasi
from tile_ir.stripe.nodes import Block, Index
from tile_ir.stripe.parser import parse_program
from tile_opt.lowering import points
from tile_opt.lowering.points import OUTSIDE

NAMES = ("i", "j", "k")


def test_bounds_of_one_index_are_exact_however_many_values_it_has() -> None:
    """A last group apart had been counted as often as all groups: kernels that peel it seemed to take twice as long."""
    groups, items = Index("g", 32485), Index("i", 256)
    last = Block("last", indexes=(Index("g", 1, Affine.var("g")), items), guard=(Affine.var("g", 1024) - 33262977,),
                 constraints=(Affine.var("g", -1024) + Affine.var("i", -4) + 33263996,))  # fmt: skip
    whole = OUTSIDE.inside(Block("all", indexes=(groups,)))
    assert whole.inside(last).points() == 96
    first = Block("first", indexes=(Index("g", 1, Affine.var("g")), items), guard=(Affine.var("g", -1024) + 33262976,))
    assert whole.inside(first).points() == 32484 * 256


def run_through(blocks: list[Block], outer: Mapping[str, int] = {}) -> int:
    """Iterations of the innermost of nested blocks."""
    if not blocks:
        return 1
    block, *rest = blocks
    if any(g.evaluate(outer) < 0 for g in block.guard):
        return 0
    axes = [range(i.range) if i.value is None else (i.value.evaluate(outer),) for i in block.indexes]
    count = 0
    for values in product(*axes):
        at = dict(zip((i.name for i in block.indexes), values, strict=True))
        if all(c.evaluate(at) >= 0 for c in block.constraints):
            count += run_through(rest, at)
    return count


def affines(names: list[str]) -> st.SearchStrategy[Affine]:
    terms = st.dictionaries(st.sampled_from(names), st.integers(-3, 3)) if names else st.just({})
    return st.builds(Affine.of, terms, st.integers(-4, 6))


def forms(names: list[str]) -> st.SearchStrategy[Quasi]:
    plain = affines(names)
    return (
        plain
        | plain
        | st.builds(DivMod, plain, st.integers(2, 3), st.sampled_from(DivModOp), st.sampled_from([-1, 1]), plain)
    )


@st.composite
def nests(draw: st.DrawFn) -> list[Block]:
    blocks: list[Block] = []
    outer: list[str] = []
    for depth in range(draw(st.integers(1, 3))):
        indexes = [Index(n, 1, Affine.var(n)) for n in outer if draw(st.booleans())]
        own = [n for n in NAMES if n not in {i.name for i in indexes}]
        indexes += [Index(n, draw(st.integers(0 if draw(st.booleans()) else 1, 4))) for n in own if draw(st.booleans())]
        names = [i.name for i in indexes]
        guard = tuple(draw(st.lists(forms(outer), max_size=1)))
        constraints = tuple(draw(st.lists(forms(names), max_size=2)))
        blocks.append(Block(f"b{depth}", tuple(indexes), constraints, guard))
        outer = names
    return blocks


def counted(blocks: list[Block]) -> int:
    nest = OUTSIDE
    for block in blocks:
        nest = nest.inside(block)
    return nest.points()


@settings(max_examples=150)
@given(nests(), st.booleans())
def test_points_are_those_that_run(blocks: list[Block], few: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if few:
            patch.setattr(points, "FEW", 0)
        assert counted(blocks) == run_through(blocks)


@settings(max_examples=100)
@given(nests())
def test_where_they_are_too_many_the_count_is_a_bound(blocks: list[Block]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(points, "LIMIT", 3)
        patch.setattr(points, "FEW", 0)
        assert counted(blocks) >= run_through(blocks)


@pytest.mark.parametrize("step", [1, 3])
def test_a_form_of_many_points_is_counted_by_its_values(step: int) -> None:
    low = Affine.of({"i": step, "j": 1, "k": -1}, -40)
    block = Block("b", tuple(Index(n, r) for n, r in zip(NAMES, (50, 60, 40), strict=True)), (low, low * -1 + 100))
    assert points.LIMIT < 50 * 60 * 40
    want = sum(40 <= step * i + j - k <= 140 for i in range(50) for j in range(60) for k in range(40))
    assert counted([block]) == want


def test_a_rest_of_many_groups_runs_once() -> None:
    """The vectors that a kernel of many groups leaves over had been counted as often as all of them."""
    at, ranges = Affine.of({"i": 4348, "j": 1}), (65, 4348)
    blocks = [
        Block("b", tuple(Index(n, r) for n, r in zip(NAMES, ranges, strict=False)), forms)
        for forms in ((at * -1 + 278296,), (at - 278297, at * -1 + 278297))
    ]
    assert [counted([block]) for block in blocks] == [278297, 1]


def test_a_rest_of_pieces_of_groups_runs_as_often_as_it_can() -> None:
    """Groups of 1266 vectors, of which a loop goes over half: nothing is left over behind the vectors of all three."""
    at = Affine.of({"i": 40512, "j": 32})
    forms = (at - 80993, at * -1 - Affine.var("k") + 81023)
    ranges = zip(NAMES, (3, 633, 32), strict=True)
    assert counted([Block("b", tuple(Index(n, r) for n, r in ranges), forms)]) == 0


def test_tiled_and_shifted_indexes_are_counted_exactly() -> None:
    i, j = Affine.of({"i": 7, "j": 1}), Affine.var("k")
    forms = (i * -1 + 499, i + j - 500, (i + j) * -1 + 1600)
    block = Block("b", tuple(Index(n, r) for n, r in zip(NAMES, (146, 7, 1000), strict=True)), forms)
    assert counted([block]) == sum(500 <= x + y <= 1600 for x in range(500) for y in range(1000))


def test_tiles_count_the_rows_that_exist() -> None:
    (kernel,) = lower(parse_program(TILED), TARGET).kernels
    assert kernel.flops == 2 * 13 * 40 * 20
