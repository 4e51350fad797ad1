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
from tile_opt.kernel.view import KernelView
from tile_opt.plan.plan import Plan
from tile_opt.plan.space.gpu.odd_tiles import EACH, ITEMS, nested, odd_tile, overhang, run_of
from tile_opt.plan.steps.groups.transpose import Turn, shares

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


@pytest.mark.parametrize(
    ("shape", "source"),
    [
        pytest.param((2, 3079, 2693), "R[k, j, i : C, B, A]", id="a short loop in front of two long ones"),
        pytest.param((3, 500, 700), "R[k, i, j : C, A, B]", id="a short loop between them"),
    ],
)
def test_lanes_do_not_meet_in_the_banks_of_local_memory(shape: tuple[int, int, int], source: str) -> None:
    """Rows are padded where lanes go from one to the next: behind all of several loops 32 lanes had met in one bank."""
    view, plan = permutation(shape, source)
    turn, tile = Turn(view, plan, 16), plan.levels[0].covers
    assert turn.cycles(32) <= 2 * 2 * prod(c.size for c in tile) // 256


def test_short_neighbours_leave_room_for_other_loops() -> None:
    """The two loops along memory have 64 elements here: groups of so few took as long to begin as to copy."""
    function = "function (X[A, B, C, D]) -> (R) { R[j, l, i, k : B, D, A, C] = =(X[i, j, k, l]); }"
    _, plan = chosen(function, (16, 16144, 32, 2))
    assert 2048 <= prod(c.size for c in plan.levels[0].covers) <= 8192


def test_items_share_what_is_copied_by_vectors() -> None:
    """Dealt out by elements, as it is stored, and by fours: parts of one item's number that were no parts of the other's."""
    function = "function (X[A, B, C, D, E]) -> (R) { R[j, k, m, i, l : B, C, E, A, D] = =(X[i, j, k, l, m]); }"
    _, plan = chosen(function, (16, 7, 2, 33, 512))
    assert "through local memory" in plan.reason


def permutation(shape: tuple[int, ...], result: str) -> tuple[KernelView, Plan]:
    return chosen(f"function (X[A, B, C]) -> (R) {{ {result} = =(X[i, j, k]); }}", shape)


def chosen(source: str, shape: tuple[int, ...]) -> tuple[KernelView, Plan]:
    """The one kernel of a program and its plan."""
    function = tile_lang.parse(Source(source, "sample.tile"))
    (found,) = compile(tile_lang.bind(function, {"X": TensorType(DType.FLOAT32, shape)}), GPU).decisions.values()
    return found.view, found.plan
