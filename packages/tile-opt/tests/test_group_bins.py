"""Scatters into few cells: groups merge in their own memory, with the same results, where the model finds that shorter."""

from __future__ import annotations

import pytest
import tile_lang
from lowering_support import check, random_inputs
from test_gpu_rows import target
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.program.nodes import TensorType
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Block, Program
from tile_ir.target import PassConfig, Target
from tile_opt.blocks.tree import kernels_of
from tile_opt.kernel.view import KernelView, open_kernel
from tile_opt.passes.kernels.gpu_tile import GpuTile
from tile_opt.pipeline import optimize
from tile_opt.plan.plan import Plan
from tile_opt.plan.text import parse_plans, print_plans
from tile_opt.translate import to_stripe

HISTOGRAM = "function (I[K], W[K]) -> (H) {{ H[I[k] : {cells}] = {agg}(W[k]); }}"
ROWS = "function (I[K], W[K, D]) -> (H) {{ H[I[k], d : {cells}, D] = {agg}(W[k, d]); }}"


def on(threads: int = 32, cores: int = 2, max_mem: int = 4096) -> Target:
    made = target(threads, cores, max_mem)
    front = ("atomics", "inline", "fuse", "merge", "accumulate", "gpu_tile")
    occupancy = replace(made.machine.occupancy, group_items=threads)
    machine = replace(made.machine, cores=cores, occupancy=occupancy)
    return replace(made, machine=machine, nodes=made.nodes | {"Atomic"}, passes=tuple(map(PassConfig, front)))


def stripe(source: str, dtype: DType = DType.INT32, /, **shapes: tuple[int, ...]) -> Program:
    types = {n: TensorType(DType.INT32 if n in "IJ" else dtype, s) for n, s in shapes.items()}
    return to_stripe(tile_lang.bind(tile_lang.parse(Source(source, "sample.tile")), types))


def scatters(program: Program, target: Target) -> list[tuple[KernelView, Plan]]:
    """The kernels that merge where data says, and the plans that are chosen for them."""
    flat = optimize(program, replace(target, passes=target.passes[:-1]))
    views = [v for k in kernels_of(flat) if isinstance(k, Block) and (v := open_kernel(k)) is not None]
    chosen = [(v, GpuTile().choose(v, target)) for v in views if "scatter" in v.tags]
    return [(v, c[0]) for v, c in chosen if c is not None and any(u.agg for u in v.uses)]


def is_near(plan: Plan) -> bool:
    return any(s.unit == "LOCAL" for s in plan.stagings)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first candidate is taken, whatever the model says."""

    def once(self: GpuTile, view: KernelView, target: Target) -> int:
        return 1

    monkeypatch.setattr(GpuTile, "worth", once)


CASES: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "whole tiles": (HISTOGRAM, {"I": (512,), "W": (512,)}),
    "a rest": (HISTOGRAM, {"I": (509,), "W": (509,)}),
    "rows": (ROWS, {"I": (90,), "W": (90, 20)}),
    "rows of two": (ROWS, {"I": (300,), "W": (300, 2)}),
    "rows of several groups": (ROWS, {"I": (40,), "W": (40, 150)}),
    "a result for each row": (
        "function (I[N, K], W[N, K]) -> (H) {{ H[n, I[n, k] : N, {cells}] = {agg}(W[n, k]); }}",
        {"I": (3, 130), "W": (3, 130)},
    ),
    "a result for each column": (
        "function (I[K], W[D, K]) -> (H) {{ H[d, I[k] : D, {cells}] = {agg}(W[d, k]); }}",
        {"I": (200,), "W": (7, 200)},
    ),
    "two subscripts": (
        "function (I[K], J[K], W[K]) -> (H) {{ H[I[k], J[k] : {cells}, 5] = {agg}(W[k]); }}",
        {"I": (400,), "J": (400,), "W": (400,)},
    ),
    "values that another row has": (
        "function (I[N, K], W[N]) -> (H) {{ V[n, k : N, 130] = =(W[n]); H[I[n, k] : {cells}] = {agg}(V[n, k]); }}",
        {"I": (3, 130), "W": (3,)},
    ),
}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", CASES)
def test_results_stay(name: str) -> None:
    source, shapes = CASES[name]
    program = stripe(source.format(cells=6, agg="+"), **shapes)
    inputs = {n: x - 1 if n in "IJ" else x for n, x in random_inputs(program).items()}
    assert any(is_near(plan) for _, plan in scatters(program, on()))
    check(optimize(program, on(), verify=True), inputs, on(), expected=interpret.run(program, inputs))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("agg", ["+", ">", "<", "*"])
@pytest.mark.parametrize("dtype", [DType.INT32, DType.UINT64])
def test_every_aggregation_starts_from_its_identity(agg: str, dtype: DType) -> None:
    program = stripe(HISTOGRAM.format(cells=9, agg=agg), dtype, I=(200,), W=(200,))
    inputs = random_inputs(program)
    assert all(is_near(plan) for _, plan in scatters(program, on()))
    check(optimize(program, on(), verify=True), inputs, on(), expected=interpret.run(program, inputs))


@pytest.mark.parametrize(
    ("values", "cells", "near"),
    [(1 << 22, 256, True), (1 << 22, 9000, True), (1 << 22, 1 << 20, False), (1 << 12, 9000, False)],
)
def test_the_model_says_where_groups_have_cells_of_their_own(values: int, cells: int, near: bool) -> None:
    """Many values meet in few cells; so many that a group's memory has no room for them, or more than values, they seldom do."""
    program = stripe(HISTOGRAM.format(cells=cells, agg="+"), I=(values,), W=(values,))
    assert [is_near(plan) for _, plan in scatters(program, on(256, 132, 49152))] == [near]


def test_rows_that_lie_side_by_side_come_to_the_result_at_once() -> None:
    """Groups would take longer to merge their cells than sub-groups wait for one another."""
    program = stripe(ROWS.format(cells=1000, agg="+"), I=(20000,), W=(20000, 128))
    assert [is_near(plan) for _, plan in scatters(program, on(256, 132, 98304))] == [False]


def test_plans_are_accepted_when_they_are_given_back() -> None:
    target = on(256, 132, 49152)
    program = stripe(ROWS.format(cells=20, agg="+"), I=(1 << 18,), W=(1 << 18, 64))
    ((view, plan),) = scatters(program, target)
    assert is_near(plan)
    text = print_plans({view.name: plan})
    given = parse_plans(text)
    assert print_plans(given) == text
    assert GpuTile().checked(view, given[view.name], target, given).kernel
