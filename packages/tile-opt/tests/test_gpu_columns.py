"""Columns that groups of items reduce: how many neighbours a group takes, and of how many each item has."""

from __future__ import annotations

from itertools import accumulate

import pytest
from test_gpu_rows import CUMULATIVE, agree, plan_of, stripe_of, target
from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Direction, Index, Refinement, TensorType
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import Target
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.pipeline import optimize
from tile_opt.plan.plan import Plan
from tile_opt.plan.steps.alike import alike

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


def test_columns_of_bytes_have_as_many_loads_under_way_as_wider_ones() -> None:
    """What is stored for each is wider, once for all of its column."""
    source = "function (X[M, N]) -> (R) { B = as_int(X, 32); R[j : N] = +(B[i, j]); }"
    plan = plan_of(source, large(), DType.INT8, X=(20000, 9000))
    assert (plan.reason, lanes(plan)) == ("64 items share a column", 4)


@pytest.mark.parametrize(("length", "run"), [(8, 8), (16, 16), (20, 32), (63, 32)])
def test_short_rows_of_a_scan_go_through_local_memory(length: int, run: int) -> None:
    """Items that each walk one would read every line again for every cell."""
    plan = plan_of(CUMULATIVE, target(threads=64), X=(4096, length))
    assert ([s.unit for s in plan.stagings], plan.levels[-1].covers[-1].size) == (["LOCAL", "LOCAL"], run)
    agree(stripe_of(CUMULATIVE, X=(70, length)), target(threads=64))


def over(stage: str, *loops: Index) -> Stage:
    """Reads a row along all of these loops as one, of a column that the kernel's own loop is at."""
    ends = accumulate(reversed(loops), lambda step, i: step * i.range, initial=1)
    row = Affine.of(dict(zip((i.name for i in reversed(loops)), ends, strict=False)))
    return Stage(stage, loops, (), (Use("x", "X", (row, Affine.var("i_1")), Direction.IN),), ())


def test_a_loop_over_two_of_another_stage_becomes_two() -> None:
    """Else each item would take all of it for itself. The kernel's own loop keeps its name for itself."""
    stages = over("whole", Index("i", 12)), over("parts", Index("j", 3), Index("k", 4))
    type = TensorType.row_major(DType.FLOAT32, (12, 8))
    rows = Refinement(Direction.IN, "X", "X", (Affine(), Affine()), type)
    made = alike(KernelView("sums", (Index("i_1", 8),), stages, (rows,)))
    assert made.stages[0].loops == made.stages[1].loops and len(made.stages[0].loops) == 2
    assert made.stages[0].uses == made.stages[1].uses and "i_1" not in made.stages[0].loop_names


NEIGHBOURS = """function (X[B, C, P]) -> (R) {
    Q = X * X;
    S[b, c, p : B, C, P] = +(Q[b, c + k - 2, p]), k < 5;
    R = X / S;
}"""


@pytest.mark.parametrize(("channels", "pitch"), [(96, 97), (64, 65)])
def test_what_neighbouring_items_share_is_an_odd_number_of_banks_apart(channels: int, pitch: int) -> None:
    """Lanes that read the same place of other columns met in one bank."""
    program = optimize(stripe_of(NEIGHBOURS, X=(32, channels, 3025)), large())
    (shared,) = [r.type for b in blocks_in(program.entry) for r in b.refs if r.dir is Direction.ALLOC and r.into == "Q"]
    assert shared.strides[-1] == pitch
