"""Tiles of odd sizes for kernels that turn their operand around."""

from __future__ import annotations

from math import prod

import pytest
import tile_lang
from explain_support import GPU
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.program.nodes import TensorType
from tile_opt.compiler import compile
from tile_opt.plan.space.odd_tiles import EACH, ITEMS, nested, odd_tile, overhang, run_of
from tile_opt.plan.steps.group_transpose import shares

SIZES = st.one_of(st.integers(2, 24), st.integers(25, 200), st.integers(201, 100_000))


@settings(max_examples=60, deadline=None)
@given(st.lists(SIZES, min_size=2, max_size=4), st.data())
def test_both_runs_are_dealt_out_to_the_same_items(sizes: list[int], data: st.DataObject) -> None:
    ranges = {f"i{k}": n for k, n in enumerate(sizes)}
    store, read = (data.draw(st.permutations(list(ranges))) for _ in range(2))
    found = odd_tile((store, read), ranges, 8192, 4)
    if found is None:
        return
    dealt = [shares(found.items, found.tile, order) for order in (store, read)]
    assert all(prod(count for _, count in one) == found.items for one in dealt)
    assert nested(dealt)
    assert ITEMS[1] <= found.items <= ITEMS[0]
    assert EACH[0] * found.items <= prod(found.tile.values()) <= min(EACH[1] * found.items, 8192)


@pytest.mark.parametrize(
    ("sizes", "store", "read"),
    [((89155, 97, 5), "cba", "abc"), ((97, 89155, 5), "cba", "abc"), ((1031, 4099, 7), "cba", "abc")],
    ids=str,
)
def test_short_loops_are_filled(sizes: tuple[int, int, int], store: str, read: str) -> None:
    """Hardly an iteration over the ends, where powers of two have half as many again; and long runs on both sides."""
    ranges = dict(zip("abc", sizes, strict=True))
    found = odd_tile((store, read), ranges, 8192, 4)
    assert found is not None
    assert overhang(found.tile, ranges) < 1.1
    assert all(run_of(found.tile, order, ranges) >= 32 for order in (store, read))


@pytest.mark.parametrize(("shape", "odd"), [((5, 97, 8915), True), ((64, 97, 8915), False)], ids=str)
def test_powers_of_two_are_kept_where_they_fit(shape: tuple[int, int, int], odd: bool) -> None:
    source = "function (X[A, B, C]) -> (R) { R[c, b, a : C, B, A] = =(X[a, b, c]); }"
    program = tile_lang.bind(
        tile_lang.parse(Source(source, "turn.tile")), {"X": TensorType(DType.FLOAT32, shape)}, name="turn"
    )
    (plan,) = compile(program, GPU.resolved(cores=132)).plans.values()
    sizes = [c.size for c in plan.levels[0].covers]
    assert any(size & (size - 1) for size in sizes) is odd
