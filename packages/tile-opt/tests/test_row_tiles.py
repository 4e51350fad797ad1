"""Rows that begin anywhere: short ones go through local memory, with the same results, by plans that are read back."""

from __future__ import annotations

import pytest
from test_gpu_rows import agree, plan_of, stripe_of, target, views
from tile_ir.dtype import DType
from tile_ir.stripe.nodes import Bind
from tile_opt.kernel.view import KernelView
from tile_opt.passes.kernels.gpu_tile import GpuTile
from tile_opt.plan.text import parse_plans, print_plans

SOFTMAX = """function (X[M, N]) -> (R) {
    T[i, z : M, 1] = >(X[i, j]), z < 1; E = exp(X - T); S[i, z : M, 1] = +(E[i, j]), z < 1; R = E / S; }"""
SHOWN = """function (X[M, N], W[M], V[N]) -> (R, S) {
    S[i : M] = +(X[i, j]); Q[i, j : M, N] = +(X[i, j] * V[j]); R[i, j : M, N] = +(Q[i, j] * W[i]); }"""
SUM = "function (X[M, N]) -> (R) { R[i : M] = +(X[i, j]); }"
CENTRED = "function (X[M, N]) -> (R) { S[i, z : M, 1] = +(X[i, j]), z < 1; R = X - S / 4.0; }"
ON = target(256, 1, 49152)


def in_local_memory(view: KernelView) -> bool:
    """Whether rows of the kernel go through it, which pays for some thousands of them."""
    return "through local memory" in next(GpuTile().candidates(view, ON)).reason


def taken(source: str, dtype: DType, rows: int, length: int) -> bool:
    (view,) = views(stripe_of(source, dtype, X=(rows, length)), ON)
    return in_local_memory(view)


@pytest.mark.parametrize(
    ("source", "dtype", "rows", "length"),
    [
        pytest.param(CENTRED, DType.FLOAT32, 4100, 3, id="ragged tiles"),
        pytest.param(CENTRED, DType.FLOAT32, 4096, 3, id="whole tiles"),
        pytest.param(CENTRED, DType.INT16, 2111, 7, id="narrow elements"),
        pytest.param(SUM, DType.FLOAT16, 4111, 5, id="a result of each row"),
        pytest.param(SOFTMAX, DType.FLOAT64, 2600, 5, id="wide elements"),
    ],
)
def test_results_stay(source: str, dtype: DType, rows: int, length: int) -> None:
    assert taken(source, dtype, rows, length)
    agree(stripe_of(source, dtype, X=(rows, length)), ON)


@pytest.mark.parametrize(
    "results",
    [
        pytest.param("R = X - S; T[i : M] = >(R[i, j]);", id="a result that is read again"),
        pytest.param("R = X - S; T[i, j : M, N] = +(R[i, k]), j - k < N;", id="sums of what is stored"),
        pytest.param("R = X - S; Q[i, z : M, 1] = >(R[i, j]), z < 1; T = R * Q;", id="a result of two others"),
    ],
)
def test_kernels_that_read_what_they_store_keep_their_meaning(results: str) -> None:
    source = f"function (X[M, N]) -> (R, T) {{ S[i, z : M, 1] = +(X[i, j]), z < 1; {results} }}"
    assert not any(map(in_local_memory, views(stripe_of(source, X=(4100, 3)), ON)))
    agree(stripe_of(source, X=(260, 3)), ON)


def test_rows_that_choose_places_are_taken_as_before() -> None:
    source = "function (I[M, N], T[L]) -> (R) { G = gather(T, I); R[i : M] = +(G[i, j]); }"
    kernels = views(stripe_of(source, DType.INT32, I=(4100, 3), T=(9,)), ON)
    assert kernels and not any(map(in_local_memory, kernels))


@pytest.mark.parametrize("product", ["X[i, j] * X[i, N - 1 - j]", "X[i, N - 1 - j] * X[i, j]"])
def test_rows_that_are_also_read_otherwise_are_taken_as_before(product: str) -> None:
    source = f"function (X[M, N]) -> (R) {{ R[i : M] = +({product}); }}"
    assert not taken(source, DType.FLOAT32, 4100, 3)
    agree(stripe_of(source, X=(260, 3)), ON)


def test_operands_that_are_no_rows_are_taken_as_before() -> None:
    source = "function (X[M, N], Y[M, K]) -> (R) { R[i, j : M, N] = +(X[i, j] * Y[i, 2 * j]); }"
    (view,) = views(stripe_of(source, X=(4100, 3), Y=(4100, 8)), ON)
    assert not in_local_memory(view)


@pytest.mark.parametrize(("most", "rows"), [(49152, 4), (15360, 3), (5000, 0)])
def test_tiles_have_as_many_rows_as_local_memory_holds(most: int, rows: int) -> None:
    reason = plan_of(CENTRED, target(256, 1, most), X=(40000, 5)).reason
    assert reason.endswith(f"{rows} of each item") if rows else "local memory" not in reason


@pytest.mark.parametrize(
    ("dtype", "rows", "length"),
    [
        pytest.param(DType.FLOAT32, 40000, 4, id="a row is a whole access"),
        pytest.param(DType.FLOAT32, 40000, 17, id="rows that items share"),
        pytest.param(DType.INT8, 40000, 9, id="bytes"),
        pytest.param(DType.FLOAT16, 40000, 20, id="several elements at a time"),
        pytest.param(DType.FLOAT32, 900, 3, id="few rows"),
    ],
)
def test_other_rows_are_taken_as_before(dtype: DType, rows: int, length: int) -> None:
    assert not taken(CENTRED, dtype, rows, length)


def test_the_plan_is_read_back_and_built_again() -> None:
    (view,) = views(stripe_of(CENTRED, X=(4100, 3)), ON)
    plan = next(GpuTile().candidates(view, ON))
    assert parse_plans(print_plans({"k": plan})) == {"k": plan}
    assert GpuTile().build(view, plan, ON) == GpuTile().build(view, parse_plans(print_plans({"k": plan}))["k"], ON)


@pytest.mark.parametrize(
    ("dtype", "width", "rows"),
    [(DType.INT8, 333, 8), (DType.FLOAT16, 333, 8), (DType.FLOAT32, 333, 1), (DType.INT8, 320, 1)],
)
def test_narrow_elements_of_a_row_that_all_rows_read_are_loaded_for_several(
    dtype: DType, width: int, rows: int
) -> None:
    """Where rows begin anywhere, accesses are parts of words: a row that is read once more takes as long as the others."""
    source = "function (X, S) -> (Y) { Y = X * S; }"
    plan = plan_of(source, target(256, 132), dtype, X=(100003, width), S=(1, width))
    steps = {c.loop: c.size for level in plan.bound(Bind.GROUP) for c in level.covers}
    assert steps["i0"] == rows


@pytest.mark.parametrize(("width", "tile"), [(20, (51, 20)), (100, (10, 100)), (17, None), (16, None), (333, None)])
def test_items_lie_side_by_side_over_short_rows_that_follow_one_another(
    width: int, tile: tuple[int, int] | None
) -> None:
    """Powers of two would leave gaps between the rows of a group: neighbours would fetch parts of the same lines."""
    source = "function (X, S) -> (Y) { Y = X * S; }"
    plan = plan_of(source, target(256, 132), X=(1000003, width), S=(1, width))
    sizes = tuple(c.size for level in plan.bound(Bind.GRID) for c in level.covers)
    assert (sizes if "side by side" in plan.reason else None) == tile


@pytest.mark.parametrize(
    ("shape", "dtype"), [((67, 12), DType.FLOAT32), ((31, 20), DType.INT32), ((67, 24), DType.FLOAT16)]
)
def test_rows_side_by_side(shape: tuple[int, int], dtype: DType) -> None:
    source, on = "function (X, S) -> (Y) { Y = X * S; }", target(16, 1)
    shapes = {"X": shape, "S": (1, shape[1])}
    assert "side by side" in plan_of(source, on, dtype, **shapes).reason
    agree(stripe_of(source, dtype, **shapes), on)


@pytest.mark.parametrize(("channels", "beside"), [(2, False), (52, False), (500, True)])
def test_as_many_rows_side_by_side_as_leave_few_items_idle(channels: int, beside: bool) -> None:
    source = "function (X, S) -> (Y) { Y = X * S; }"
    plan = plan_of(source, target(256, 132), X=(9000, channels, 20), S=(1, channels, 1))
    assert ("side by side" in plan.reason) is beside
