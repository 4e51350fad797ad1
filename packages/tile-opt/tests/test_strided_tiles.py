"""Convolutions whose operands are walked in steps, whose windows are large, or whose results begin anywhere: tiles of groups."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from test_group_tiles import BUSY, POINTS, contracted
from tile_ir.stripe.affine import Affine
from tile_opt.kernel.view import KernelView
from tile_opt.model.contraction import contraction
from tile_opt.plan.builders.group_tiles import group_tile
from tile_opt.plan.plan import Plan
from tile_opt.plan.space.gpu.group_plan import GroupPlan
from tile_opt.plan.space.gpu.tiles import TileSpace
from tile_opt.plan.steps.groups.staging import box_of

ROWS = "function (D[N, X, C], K[C, O]) -> (R) { R[n, x, o : N, (X+1)/2, O] = +(D[n, 2*x, c] * K[c, o]); }"
PLAIN = "function (D[N, CI, X, Y], K[CO, CI]) -> (R) { R[n, o, x, y : N, CO, X, Y] = +(D[n, c, x, y] * K[o, c]); }"
WINDOWS = """function (D[N, CI, X, Y], K[CO, CI, I, J]) -> (R) {
    R[n, o, x, y : N, CO, X / 2, Y / 2] = +(D[n, c, 2*x + i - 3, 2*y + j - 3] * K[o, c, i, j]);
}"""
BESIDE = "function (A[M, L], B[L, N]) -> (R) { R[i, j + FIRST : M, N + 4] = +(A[i, k] * B[k, j]); }"


def best(source: str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[KernelView, Plan]:
    """The tile that goes through local memory."""
    view = contracted(source, shapes)
    work = contraction(view)
    assert work is not None
    space = TileSpace(work, BUSY)
    ranked = space.best()[0]
    return view, GroupPlan(work, ranked.tile, ranked.cost, space.costs).plan()


def test_a_box_has_what_loops_touch() -> None:
    x, y, u = (Affine.var(n) for n in "xyu")
    box = box_of((x * 4 + y * 2 + 1, y * -6 + 30, u * 3 + x), {"x": 8, "y": 2})
    assert box.extents == (16, 2, 8)
    assert box.steps == (2, 6, 1)
    assert [form.const for form in box.corner] == [1, 24, 0]


@pytest.mark.parametrize(("source", "shapes"), [
    (POINTS, {"D": (32, 64, 58, 58), "K": (48, 64)}), (ROWS, {"D": (64, 512, 64), "K": (64, 64)}),
])  # fmt: skip
def test_copies_have_no_gaps(source: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    view, plan = best(source, shapes)
    work = contraction(view)
    assert work is not None
    (copy,) = (c for c in group_tile(view, work.main, plan).staged if c.use.buffer == "D")
    assert 2 in copy.box.steps


@pytest.mark.parametrize("source", [POINTS, PLAIN])
def test_items_run_along_channels_rather_than_images(source: str) -> None:
    """An image more shares weights alone, which lanes along pixels share already; a channel more shares the pixels."""
    _, plan = best(source, {"D": (256, 64, 30, 30), "K": (40, 64)})
    (unrolled,) = [level for level in plan.levels if level.bind.value == "unroll"]
    assert "o" in {cover.loop for cover in unrolled.covers}
    assert "n" not in {cover.loop for cover in unrolled.covers}


def test_large_windows_leave_room_for_tiles_in_which_operands_are_used_often() -> None:
    view = contracted(WINDOWS, {"D": (32, 64, 92, 92), "K": (118, 64, 7, 7)})
    work = contraction(view)
    assert work is not None
    assert TileSpace(work, BUSY).best()[0].tile.cells >= 32


@pytest.mark.parametrize(("first", "meet"), [(0, False), (1, True), (2, True), (4, False)])
def test_results_meet_in_local_memory_where_their_rows_begin_anywhere(first: int, meet: bool) -> None:
    _, plan = best(BESIDE.replace("FIRST", str(first)), {"A": (1024, 256), "B": (256, 512)})
    assert any(s.operand == "R" and s.unit == "LOCAL" for s in plan.stagings) is meet
