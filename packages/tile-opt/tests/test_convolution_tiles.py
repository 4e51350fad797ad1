"""Register tiles of convolutions: ragged channels, windows, groups, and reductions that are too deep for a cache."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
from explain_support import compiled
from model_support import processor
from tile_ir.stripe.nodes import Bind
from tile_opt.kernel.segments import cover_masked
from tile_opt.plan.plan import Edge, Plan

LAST = "D[N, X, Y, C], K[I, J, C, O]", "R[n, x, y, o : N, X, Y, O] = +(D[n, x + i - 1, y + j - 1, c] * K[i, j, c, o])"
GROUPS = "D[P, A], K[C, B]", "R[p, 14*g + o : P, 448] = +(D[p, 32*g + c] * K[c, 14*g + o]), g < 32, c < 32, o < 14"
PIXELS = "D[N, C, Y], K[O, C]", "R[n, o, y : N, O, Y] = +(D[n, c, y] * K[o, c])"


def plan_of(kernel: tuple[str, str], data: tuple[int, ...], weights: tuple[int, ...]) -> Plan:
    """The plan on a processor that masks, whose third cache is far."""
    target, (heads, text) = processor("xeon", 2), kernel
    target = replace(target, settings=replace(target.settings, masks=True))
    made = compiled(f"function ({heads}) -> (R) {{ {text}; }}", target, D=data, K=weights)
    (plan,) = made.plans.values()
    return plan


def order(plan: Plan) -> list[str]:
    """Loops from the outermost on, each where a level covers it for the last time but for straight-line code."""
    levels = [level for level in plan.levels if level.bind in (Bind.GRID, Bind.NONE)]
    return list(dict.fromkeys(cover.loop for level in levels for cover in level.covers))


@pytest.mark.parametrize("channels", [29, 31, 33, 65, 127])
def test_channels_that_fill_no_vectors_are_masked_in_tiles_of_vectors(channels: int) -> None:
    """Vectors that overlap would be tiles of their own, with as few sums each as there are rows."""
    plan = plan_of(LAST, (8, 56, 56, 32), (3, 3, 32, channels))
    assert dict(plan.edges)["o"] is Edge.MASK
    width = next(c.size for level in reversed(plan.levels) for c in level.covers if c.loop == "o" and c.size > 1)
    tiles = cover_masked(0, channels, width, 16)
    assert sum(t.count * -(-t.size // 16) for t in tiles) == -(-channels // 16)
    assert len(tiles) <= 2


@pytest.mark.parametrize("channels", [17, 33, 65, 129])
def test_a_last_vector_that_is_almost_empty_does_not_keep_one_core_idle(channels: int) -> None:
    """As many groups for each core would be half of the work for each only if the last vectors took as long as the others."""
    (grid,) = plan_of(LAST, (2, 28, 28, channels), (3, 3, channels, channels)).bound(Bind.GRID)
    sizes = {"n": 2, "x": 28, "y": 28, "o": channels}
    counts = {c.loop: -(-sizes[c.loop] // c.size) for c in grid.covers}
    assert "o" not in counts or grid.covers[-1].loop == "o"
    assert prod(counts.values()) >= 8


def test_rows_that_read_the_same_elements_at_different_steps_read_them_once() -> None:
    plan = plan_of(LAST, (1, 112, 112, 75), (3, 3, 75, 16))
    (straight,) = plan.bound(Bind.UNROLL)
    assert {c.loop for c in straight.covers} in ({"j", "y"}, {"i", "x"})


def test_a_reduction_too_deep_for_the_second_cache_is_cut_where_no_edge_cuts_it() -> None:
    plan = plan_of(LAST, (2, 28, 28, 216), (7, 7, 216, 128))
    (copied,) = (s for s in plan.stagings if s.unit != "REG")
    depth = plan.levels[copied.level].cover("c")
    assert depth is not None
    assert 49 * depth.size * 64 * 4 <= 2 << 20


def test_pieces_of_rows_are_taken_one_after_the_other() -> None:
    """Groups of few channels would go through all rows for an eighth of a page each."""
    plan = plan_of(GROUPS, (1536, 1024), (32, 448))
    found = order(plan)
    assert found.index("v0_0") < found.index("v1_1")


def test_vectors_lie_along_pixels_where_channels_are_far_apart() -> None:
    plan = plan_of(PIXELS, (14, 38, 2048), (11, 38))
    (vector,) = plan.bound(Bind.VECTOR)
    assert [c.loop for c in vector.covers] == ["y"]
