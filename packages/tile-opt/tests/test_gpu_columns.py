"""Columns that groups of items reduce: how many neighbours a group takes, and of how many each item has."""

from __future__ import annotations

import pytest
from test_gpu_rows import CUMULATIVE, agree, plan_of, stripe_of, target
from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.stripe.nodes import Bind
from tile_ir.target import Target
from tile_opt.plan.plan import Plan

CENTRED = "function (X[M, N]) -> (R) { T[z, j : 1, N] = +(X[i, j]), z < 1; R = X - T; }"
SUM = "function (X[M, N]) -> (R) { R[j : N] = +(X[i, j]); }"


def large(cores: int = 132) -> Target:
    """Groups may have 1024 items."""
    on = target(threads=256, cores=cores)
    assert on.machine.occupancy is not None
    return replace(on, machine=replace(on.machine, occupancy=replace(on.machine.occupancy, group_items=1024)))


def lanes(plan: Plan) -> int:
    return next((v.lanes for v in plan.bound(Bind.VECTOR)), 1)


@pytest.mark.parametrize(("length", "items"), [(23, 1), (73, 4), (128, 8), (300, 16), (599, 32), (2053, 32)])
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16], ids=str)
def test_items_have_a_word_of_each_iteration_of_narrow_columns(length: int, items: int, dtype: DType) -> None:
    """Combining what eight columns found would take longer than loading them."""
    plan = plan_of(CENTRED, large(), dtype, X=(length, 6400))
    assert (plan.reason, lanes(plan)) == (f"{items} items share a column of words", 2)


@pytest.mark.parametrize(("columns", "kept"), [(6400, False), (64000, True)])
def test_long_narrow_columns_that_no_cache_has_are_kept(columns: int, kept: bool) -> None:
    plan = plan_of(CENTRED, large(), DType.FLOAT16, X=(1500, columns))
    assert bool(plan.stagings) is kept and lanes(plan) == (1 if kept else 2)


@pytest.mark.parametrize("shape", [(23, 128), (100, 34), (40, 33), (64, 2)])
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.INT16, DType.UINT8], ids=str)
def test_columns_of_narrow_elements(shape: tuple[int, int], dtype: DType) -> None:
    agree(stripe_of(CENTRED, dtype, X=shape), target())


@pytest.mark.parametrize(("columns", "wide", "beside"), [(256, 1, 16), (100, 1, 16), (1 << 17, 4, 128)])
def test_short_sums_of_few_columns_are_dealt_out_to_more_groups(columns: int, wide: int, beside: int) -> None:
    """An item has one column of them."""
    plan = plan_of(SUM, large(), X=(448, columns))
    assert (lanes(plan), plan.tile("j", 0, columns)) == (wide, beside)


@pytest.mark.parametrize(("length", "run"), [(8, 8), (16, 16), (20, 32), (63, 32)])
def test_short_rows_of_a_scan_go_through_local_memory(length: int, run: int) -> None:
    """Items that each walk one would read every line again for every cell."""
    plan = plan_of(CUMULATIVE, target(threads=64), X=(4096, length))
    assert ([s.unit for s in plan.stagings], plan.levels[-1].covers[-1].size) == (["LOCAL", "LOCAL"], run)
    agree(stripe_of(CUMULATIVE, X=(70, length)), target(threads=64))


RUNS = """function (X[M, N, P], W[N]) -> (R) {
    T[a, b, p : 1, 1, P] = +(X[m, n, p]), a < 1, b < 1; D = X - T; R[p : P] = +(D[m, n, p] * W[n]); }"""


def test_items_share_a_loop_over_two_of_another_stage_as_these() -> None:
    """Else each would take all of the first sum for itself."""
    plan = plan_of(RUNS, large(), X=(40, 8, 64), W=(8,))
    assert {r.loop for r in plan.reductions} == {c.loop for c in plan.levels[0].covers} - {"p"}
    agree(stripe_of(RUNS, X=(5, 8, 12), W=(8,)), target())
