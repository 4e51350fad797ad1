"""Scans whose rows the items of a group share: runs of cells, spans of runs, and blocks of long rows."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest
from test_gpu_rows import CUMULATIVE, agree, plan_of, stripe_of, target, views
from tile_ir.dtype import DType
from tile_ir.stripe.nodes import Bind, Order
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import PassConfig
from tile_opt.passes.kernels.gpu_tile import GpuTile


def test_scans_of_many_blocks_fall_back_to_single_elements() -> None:
    """An item would keep a total of each block: too many, so that it takes an element by itself."""
    on = target(cores=64)
    on = replace(on, passes=(PassConfig("scan", options={"block": 4}), *on.passes[1:]))
    agree(stripe_of("function (X[M, N]) -> (R) { R[i, j : M, N] = +(X[k, j]), i - k < M; }", X=(300, 4)), on)


def test_scans_of_scans() -> None:
    """What is in front of each block is a scan, which is cut when it is long itself."""
    on = target(cores=64)
    on = replace(on, passes=(PassConfig("scan", options={"block": 6}), *on.passes[1:]))
    stripe = stripe_of(CUMULATIVE, X=(2, 300))
    names = [v.name.removeprefix("kernel_0_") for v in views(stripe, on)]
    assert names[0] == "totals" and names[1] == "ends_totals" and names[-2:] == ["ends_blocks", "blocks"], names
    agree(stripe, on)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.INT16], ids=str)
def test_items_share_the_rows_of_a_scan(dtype: DType) -> None:
    """Each has a run of its row; teams of as many items as a run has cells copy runs."""
    on = target(threads=64)
    plan = plan_of(CUMULATIVE, on, X=(64, 160))
    assert [r.ways for r in plan.reductions] == [8] and [s.unit for s in plan.stagings] == ["LOCAL", "LOCAL"]
    agree(stripe_of(CUMULATIVE, dtype, X=(50, 150)), on)


SCANS = {
    "rows": CUMULATIVE,
    "columns": "function (X[M, N]) -> (R) { R[i, j : M, N] = +(X[k, j]), i - k < M; }",
    "exclusive": "function (X[M, N]) -> (R) { R[i, j : M, N] = +(X[i, j - k - 1]), k < N; }",
    "from the end": "function (X[M, N]) -> (R) { R[i, j : M, N] = >(X[i, j + k]), k < N; }",
    "with more to do": "function (X[M, N]) -> (R) { T[i, j : M, N] = +(X[i, j - k]), k < N; R = T * 2.0 + 1.0; }",
    "both ways": "function (X[M, N]) -> (R) { R[i, k : M, N] = +(X[i - j, k - l]), j < M, l < N; }",
    "a vector": "function (X[M, N]) -> (R) { V = reshape(X, M * N); R[i : M * N] = +(V[i - j]), j < M * N; }",
}


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize(("shape", "threads"), [((3, 200), 128), ((35, 65), 32)])
def test_scans_whose_rows_items_share(name: str, shape: tuple[int, int], threads: int) -> None:
    agree(stripe_of(SCANS[name], X=shape), target(threads=threads))


def test_items_take_in_many_runs_span_by_span() -> None:
    """One after the other, the last of 32 would wait for 31 before it. What an item has read for its total it keeps."""
    on, stripe = target(threads=128), stripe_of(CUMULATIVE, X=(2, 900))
    (view,) = views(stripe, on)
    plan = next(GpuTile().candidates(view, on))
    assert [r.ways for r in plan.reductions] == [32]
    kernel = GpuTile().build(view, plan, on).kernel
    assert [i.range for b in blocks_in(kernel) for i in b.indexes if i.name.startswith("earlier")] == [7, 3]
    assert any(r.into == "X_run" and r.type.sizes == (32,) for b in blocks_in(kernel) for r in b.refs)
    agree(stripe, on)


def test_items_keep_what_they_read_of_columns_in_whole_tiles() -> None:
    """Of torn lines caches have no room for what a group reads a second time."""
    on, stripe = target(threads=64, cores=1), stripe_of(SCANS["columns"], X=(140, 64))
    on = replace(on, passes=(PassConfig("scan", options={"block": 1 << 20}), *on.passes[1:]))
    (view,) = views(stripe, on)
    kernel = GpuTile().build(view, next(GpuTile().candidates(view, on)), on).kernel
    assert any(r.into == "X_run" and r.type.sizes == (16,) for b in blocks_in(kernel) for r in b.refs)
    agree(stripe, on)


def test_few_columns_of_a_scan_are_dealt_out_to_more_groups() -> None:
    on = target(threads=256, cores=64)
    assert on.machine.occupancy is not None
    wide = replace(on.machine, occupancy=replace(on.machine.occupancy, group_items=1024))
    on = replace(on, machine=wide, passes=(PassConfig("scan", options={"block": 1 << 20}), *on.passes[1:]))
    tiles = [plan_of(SCANS["columns"], on, X=(300, n)).levels[0].covers[-1].size for n in (8192, 4096, 1024, 512)]
    assert tiles == [64, 32, 16, 8]


def test_a_scan_of_shares_that_do_not_come_out_even_is_refused() -> None:
    on = target(threads=64)
    (view,) = views(stripe_of(CUMULATIVE, X=(64, 64)), on)
    plan = next(GpuTile().candidates(view, on))
    grid, serial, group = plan.levels
    half = replace(group, covers=tuple(replace(c, size=16) if c.size == 32 else c for c in group.covers))
    odd = replace(grid, covers=tuple(replace(c, size=6) for c in grid.covers))
    with pytest.raises(ValueError, match="6 rows of 4 runs do not make teams of 16 items"):
        GpuTile().build(view, replace(plan, levels=(odd, serial, half)), on)
    with pytest.raises(ValueError, match="three levels"):
        GpuTile().build(view, replace(plan, levels=(grid, serial)), on)


def test_items_ask_for_the_end_of_a_row_in_its_last_tile_alone() -> None:
    """Where they ask at every cell they load one after the other."""
    on, stripe = target(threads=32), stripe_of(CUMULATIVE, X=(1, 2060))
    (view,) = views(stripe, on)
    kernel = GpuTile().build(view, next(GpuTile().candidates(view, on)), on).kernel
    (tiles,) = (
        b for b in blocks_in(kernel) if any(i.name.endswith("_t") and i.order is Order.ORDERED for i in b.indexes)
    )
    whole = [b for b in blocks_in(tiles) if b.name.startswith("copy")]
    copies = [b for b in blocks_in(kernel) if b.name.startswith("copy")]
    assert [bool(b.constraints) for b in whole] == [False, False]
    assert [bool(b.constraints) for b in copies if b not in whole] == [True, True]
    agree(stripe, on)


def test_teams_copy_several_rows_of_few_runs_at_once() -> None:
    on = target(threads=128)
    (view,) = views(stripe_of(CUMULATIVE, X=(400, 64)), on)
    kernel = GpuTile().build(view, next(GpuTile().candidates(view, on)), on).kernel
    copies = [b for b in blocks_in(kernel) if b.name.startswith("copy")]
    assert copies and all(prod(i.range for i in b.indexes if i.bind is Bind.UNROLL) == 16 for b in copies)
