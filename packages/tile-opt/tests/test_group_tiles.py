"""Contractions on the items of groups: every plan of the space keeps the meaning, fits the machine and passes its own checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from math import prod, sqrt
from typing import Any

import numpy as np
import pytest
import tile_lang
from explain_support import FRONT, MULTIPROCESSOR
from explain_support import GPU as TILED
from lowering_support import execute, random_inputs
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.machine import LocalMemory, Occupancy
from tile_ir.program.nodes import TensorType
from tile_ir.semtree import print_function
from tile_ir.stripe import interpret
from tile_ir.stripe.nodes import Bind, Block, Program
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import Target
from tile_opt.kernel.view import KernelView, open_kernel
from tile_opt.lower_kernels import lower_kernels
from tile_opt.model.contraction import contraction
from tile_opt.model.estimate import estimate
from tile_opt.passes.base import kernels_of
from tile_opt.passes.kernels.group_tile import GroupTile
from tile_opt.pipeline import optimize
from tile_opt.plan.builders.group_tiles import group_tile
from tile_opt.plan.check import PlanCheck
from tile_opt.plan.plan import Across, Plan
from tile_opt.plan.space.gpu.copied import copied
from tile_opt.plan.space.gpu.group_plan import GroupPlan
from tile_opt.plan.space.gpu.tiles import TileSpace, plans
from tile_opt.plan.text import parse_plans, print_plans
from tile_opt.translate import to_stripe

Shapes = Mapping[str, tuple[int, ...]]
MATMUL = "function (A[M, L], B[L, N]) -> (R) { R[i, j : M, N] = +(A[i, k] * B[k, j]); }"
ROWS = "function (A[M, L], B[N, L]) -> (R) { R[i, j : M, N] = +(A[i, k] * B[j, k]); }"
CONV = """function (D[N, X, Y, CI], K[I, J, CI, CO]) -> (R) {
    O[n, x, y, co : N, X, Y, CO] = +(D[n, x+i-1, y+j-1, ci] * K[i, j, ci, co]); R = (O > 0 ? O : 0);
}"""
POINTS = "function (D[N, CI, X, Y], K[CO, CI]) -> (R) { R[n, o, x, y : N, CO, (X+1)/2, (Y+1)/2] = +(D[n, c, 2*x, 2*y] * K[o, c]); }"
SAMPLES: dict[str, tuple[str, Shapes]] = {
    "matmul": (MATMUL, {"A": (37, 21), "B": (21, 45)}),
    "transposed": ("function (A[L, M], B[N, L]) -> (R) { R[i, j : M, N] = +(A[k, i] * B[j, k]); }", {"A": (19, 33), "B": (30, 19)}),
    "batched": ("function (A[Z, M, L], B[Z, L, N]) -> (R) { R[z, i, j : Z, M, N] = +(A[z, i, k] * B[z, k, j]); }", {"A": (3, 17, 9), "B": (3, 9, 12)}),
    "bias": ("function (A[M, L], B[L, N], V[N]) -> (R) { C[i, j : M, N] = +(A[i, k] * B[k, j]); R = max(C + V, 0.5); }", {"A": (18, 11), "B": (11, 20), "V": (20,)}),
    "gram": ("function (A[M, L]) -> (R) { R[i, j : M, M] = +(A[i, k] * A[j, k]); }", {"A": (29, 13)}),
    "max_plus": ("function (A[M, L], B[L, N]) -> (R) { R[i, j : M, N] = >(A[i, k] + B[k, j]); }", {"A": (25, 14), "B": (14, 27)}),
    "distance": ("function (A[M, K], B[N, K]) -> (R) { C = -B; D[i, j, k : M, N, K] = =(A[i, k] + C[j, k]); E = D * D; R[i, j : M, N] = +(E[i, j, k]); }", {"A": (21, 10), "B": (26, 10)}),
    "two_sums": ("function (A[M, K, L], B[K, L, N]) -> (R) { R[i, j : M, N] = +(A[i, k, l] * B[k, l, j]); }", {"A": (14, 5, 6), "B": (5, 6, 17)}),
    "conv": (CONV, {"D": (2, 7, 9, 5), "K": (3, 3, 5, 8)}),
    "conv_first": ("function (D[N, CI, X, Y], K[CO, CI, I, J]) -> (R) { R[n, co, x, y : N, CO, X, Y] = +(D[n, ci, x+i-1, y+j-1] * K[co, ci, i, j]); }", {"D": (1, 4, 8, 6), "K": (8, 4, 3, 3)}),
    "strided": ("function (D[N, X, Y, C], K[I, J, C, O]) -> (R) { R[n, x, y, o : N, (X+1)/2, (Y+1)/2, O] = +(D[n, 2*x+i-3, 2*y+j-3, c] * K[i, j, c, o]); }", {"D": (1, 13, 11, 3), "K": (7, 7, 3, 4)}),
    "strided_points": (POINTS, {"D": (2, 5, 13, 11), "K": (6, 5)}),
    "strided_rows": ("function (D[N, X, C], K[C, O]) -> (R) { R[n, x, o : N, (X+1)/2, O] = +(D[n, 2*x, c] * K[c, o]); }", {"D": (2, 13, 6), "K": (6, 8)}),
    "backwards": ("function (D[X, C], K[C, O]) -> (R) { R[x, o : (X+1)/2, O] = +(D[X - 1 - 2*x, c] * K[c, o]); }", {"D": (23, 6), "K": (6, 8)}),
    "dilated": ("function (D[X, C], K[I, C, O]) -> (R) { R[x, o : X, O] = +(D[x+3*i-3, c] * K[i, c, o]); }", {"D": (23, 4), "K": (3, 4, 9)}),
    "depthwise": ("function (D[N, X, Y, C], K[I, J, C]) -> (R) { R[n, x, y, c : N, X, Y, C] = +(D[n, x+i-1, y+j-1, c] * K[i, j, c]); }", {"D": (2, 6, 9, 12), "K": (3, 3, 12)}),
    "weights": ("function (D[N, X, C], G[N, X, O]) -> (R) { R[i, c, o : 3, C, O] = +(D[n, x+i-1, c] * G[n, x, o]); }", {"D": (3, 11, 4), "G": (3, 11, 8)}),
}  # fmt: skip
WAVES = replace(
    TILED, machine=replace(MULTIPROCESSOR, local=LocalMemory(bytes=64 << 10), occupancy=Occupancy(subgroup=64, registers=131072)),
)  # fmt: skip
"""Sub-groups of 64 and less local memory."""
BUSY = TILED.resolved(cores=132)
TARGETS = {"one": TILED, "busy": BUSY, "waves": WAVES.resolved(cores=12)}


def stripe(source: str, shapes: Shapes, dtype: DType = DType.FLOAT32) -> Program:
    types = {n: TensorType(dtype, s) for n, s in shapes.items()}
    return to_stripe(tile_lang.bind(tile_lang.parse(Source(source, "sample.tile")), types, name="sample"))


def views(program: Program) -> Iterator[KernelView]:
    for kernel in kernels_of(optimize(program, TILED, passes=FRONT)):
        view = open_kernel(kernel) if isinstance(kernel, Block) else None
        if view is not None and contraction(view) is not None:
            yield view


def contracted(source: str, shapes: Shapes, dtype: DType = DType.FLOAT32) -> KernelView:
    (view,) = views(stripe(source, shapes, dtype))
    return view


def scheduled(program: Program, target: Target, plan: Plan | None = None) -> Program:
    """The program with `plan` for its contraction; the first of the space when None."""
    front = optimize(program, target, passes=FRONT)
    (name,) = [v.name for v in views(program)]
    made = GroupTile().schedule(front, target, {name: plan} if plan else {})
    assert name in made.decisions
    rest = [p for p in target.passes if p.name == "gpu_tile"]
    return optimize(made.program, target, passes=rest, verify=True)


def agree(program: Program, made: Program, target: Target, share: float = 3e-5) -> None:
    """The kernels find what the unscheduled program means, within a share of the largest result."""
    inputs = random_inputs(program)
    near(execute(lower_kernels(made, target, verify=True), inputs), interpret.run(program, inputs), share)


def near(got: Mapping[str, Any], want: Mapping[str, Any], share: float) -> None:
    for name, value in want.items():
        expected = value.astype(np.float64)
        np.testing.assert_allclose(
            got[name].astype(np.float64), expected, rtol=share, atol=share * np.abs(expected).max()
        )


@pytest.mark.diagonal(5)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SAMPLES)
def test_the_first_plan_keeps_the_meaning(name: str, target: str) -> None:
    program = stripe(*SAMPLES[name])
    agree(program, scheduled(program, TARGETS[target]), TARGETS[target])


@pytest.mark.diagonal(3)
@pytest.mark.parametrize("number", [1, 6, 11])
@pytest.mark.parametrize("name", ["matmul", "conv", "strided", "depthwise", "weights", "gram"])
def test_later_plans_keep_the_meaning_and_pass_their_own_checks(name: str, number: int) -> None:
    program = stripe(*SAMPLES[name])
    (view,) = views(program)
    inputs = random_inputs(program)
    plan = next(islice(plans(view, BUSY), number, None))
    PlanCheck(view, plan, BUSY, {}).before()
    assert parse_plans(print_plans({view.name: plan}))[view.name] == plan
    near(interpret.run(scheduled(program, BUSY, plan), inputs), interpret.run(program, inputs), 3e-5)


@pytest.mark.diagonal(3)
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64, DType.INT32, DType.UINT8])
@pytest.mark.parametrize("name", ["matmul", "max_plus", "conv"])
def test_other_dtypes_keep_the_meaning(name: str, dtype: DType) -> None:
    program = stripe(*SAMPLES[name], dtype)
    share = {2: 2e-2 if dtype is DType.BFLOAT16 else 2e-3}.get(dtype.bytes, 3e-5)
    agree(program, scheduled(program, TILED), TILED, share)


def test_sixteen_bit_operands_are_converted_once_on_their_way() -> None:
    plan = next(plans(contracted(MATMUL, {"A": (512, 256), "B": (256, 512)}, DType.FLOAT16), BUSY))
    assert {s.dtype for s in plan.stagings if s.unit == "LOCAL"} == {"float32"}


@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        (ROWS, {"A": (520, 520), "B": (520, 520)}),
        (SAMPLES["batched"][0], {"A": (56, 128, 256), "B": (56, 256, 89)}),
        (SAMPLES["strided"][0], {"D": (32, 64, 64, 41), "K": (5, 5, 41, 67)}),
    ],
)
def test_sixteen_bit_operands_get_the_tiles_of_words_as_which_they_are_kept(source: str, shapes: Shapes) -> None:
    wide, narrow = (next(plans(contracted(source, shapes, d), BUSY)) for d in (DType.FLOAT32, DType.BFLOAT16))
    assert narrow.levels == wide.levels


def test_items_store_no_more_at_once_where_operands_grow_on_their_way() -> None:
    program = stripe(MATMUL, {"A": (64, 64), "B": (64, 64)}, DType.BFLOAT16)
    text = "".join(print_function(k.function) for k in lower_kernels(scheduled(program, TILED), TILED).kernels)
    assert "float32x4(" in text and "float32x8" not in text


@pytest.mark.parametrize(
    ("shapes", "dtype", "awkward"),
    [
        ({"A": (3001, 3001), "B": (3001, 3000)}, DType.FLOAT32, "A"), ({"A": (2048, 2048), "B": (2048, 2048)}, DType.FLOAT32, ""),
        ({"A": (301, 301), "B": (301, 301)}, DType.FLOAT32, ""), ({"A": (2048, 2048), "B": (2048, 2048)}, DType.FLOAT16, ""),
        ({"A": (3001, 3001), "B": (3001, 3000)}, DType.FLOAT16, "A"),
    ],
)  # fmt: skip
def test_operands_of_large_products_are_copied_before_where_they_are_awkward_to_fetch(
    shapes: Shapes, dtype: DType, awkward: str
) -> None:
    plan = next(plans(contracted(MATMUL, shapes, dtype), BUSY))
    assert {s.operand for s in plan.stagings if s.level < 0} == {*awkward}
    assert parse_plans(print_plans({"kernel": plan}))["kernel"] == plan


@pytest.mark.parametrize(
    ("name", "dtype"), [("matmul", DType.FLOAT32), ("batched", DType.FLOAT16), ("bias", DType.FLOAT32)]
)
def test_copies_of_whole_operands_keep_the_meaning(name: str, dtype: DType) -> None:
    program = stripe(*SAMPLES[name], dtype)
    (view,) = views(program)
    work = contraction(view)
    assert work is not None
    copies = copied(work, BUSY.machine)
    assert copies is not None
    space = TileSpace(copies.work, BUSY)
    first = space.best()[0]
    plan = copies.plan(GroupPlan(copies.work, first.tile, first.cost, space.costs).plan())
    PlanCheck(view, plan, BUSY, {}).before()
    made = scheduled(program, BUSY, plan)
    assert len(kernels_of(made)) >= 1 + len(copies.panels) and all(p.type.sizes[-1] % 4 == 0 for p in copies.panels)
    agree(program, made, BUSY, 2e-3 if dtype is DType.FLOAT16 else 3e-5)


SCALED = "function (A[M, L], B[L, N], S[]) -> (R) { R[i, j : M, N] = +(A[i, k] * B[k, j] * S[]); }"


@pytest.mark.parametrize(
    ("source", "shapes", "dtype", "copies"),
    [
        (*SAMPLES["gram"], DType.FLOAT32, 0), (SCALED, {"A": (9, 7), "B": (7, 8), "S": ()}, DType.FLOAT16, 1),
        (*SAMPLES["conv"], DType.FLOAT16, 0),
    ],
)  # fmt: skip
def test_one_element_both_factors_and_windows_are_not_copied(
    source: str, shapes: Shapes, dtype: DType, copies: int
) -> None:
    work = contraction(contracted(source, shapes, dtype))
    found = copied(work, BUSY.machine) if work is not None else None
    assert (0 if found is None else len(found.panels)) == copies


@pytest.mark.parametrize(("m", "n", "k"), [(8, 12, 200), (16, 8, 317)])
def test_groups_share_the_reduction_where_output_tiles_are_few(m: int, n: int, k: int) -> None:
    program = stripe(MATMUL, {"A": (m, k), "B": (k, n)})
    (view,) = views(program)
    plan = next(p for p in plans(view, BUSY) if any(r.across is Across.GROUPS for r in p.reductions))
    made = scheduled(program, BUSY, plan)
    assert len(kernels_of(made)) == 2
    agree(program, made, BUSY)


@pytest.mark.parametrize(("name", "teams"), [("bias", 4), ("max_plus", 2), ("two_sums", 4), ("conv", 2)])
def test_teams_of_items_share_each_step(name: str, teams: int) -> None:
    """Rests that teams cannot share evenly, windows, several sums, stages behind."""
    program = stripe(*SAMPLES[name])
    (view,) = views(program)
    plan = next(changed(view, BUSY, deep=4, teams=teams))
    PlanCheck(view, plan, BUSY, {}).before()
    assert any(r.across is Across.ITEMS and r.ways == teams for r in plan.reductions)
    agree(program, scheduled(program, BUSY, plan), BUSY)


@pytest.mark.parametrize(("ways", "k"), [(3, 37), (5, 64), (4, 33)])
def test_groups_share_the_reduction_unevenly(ways: int, k: int) -> None:
    """The last group has fewer steps, or only a rest of one; no iteration asks whether it is there."""
    program = stripe(MATMUL, {"A": (20, k), "B": (k, 24)})
    (view,) = views(program)
    plan = next(changed(view, BUSY, deep=4, ways=ways, split="k", versions=2))
    made = scheduled(program, BUSY, plan)
    agree(program, made, BUSY)
    shares = kernels_of(made)[0]
    assert isinstance(shares, Block)
    assert not any("k_share" in c.names for b in blocks_in(shares) for c in b.constraints if "k_i" in c.names)


def test_a_step_may_be_straight_code_in_part() -> None:
    program = stripe(*SAMPLES["matmul"])
    (view,) = views(program)
    plan = next(changed(view, BUSY, deep=16, each={"j": 4, "i": 4}, straight=64))
    assert [c.size for v in plan.bound(Bind.NONE) for c in v.covers if c.loop == "k"][-1] == 4
    PlanCheck(view, plan, BUSY, {}).before()
    agree(program, scheduled(program, BUSY, plan), BUSY)


def test_edges_that_are_many_are_one() -> None:
    """Groups whose share a triangle's edge may cut have the same code, and those behind it theirs."""
    source = "function (Y[S, T], G[S, V]) -> (R) { R[t, v : T, V] = +(Y[s, t] * G[s, v]), s - t < S; }"
    program = stripe(source, {"Y": (64, 24), "G": (64, 8)})
    (view,) = views(program)
    made = scheduled(program, BUSY, next(changed(view, BUSY, deep=4, ways=16, split="s", versions=2)))
    shares = kernels_of(made)[0]
    assert isinstance(shares, Block) and len(shares.body) == 2
    agree(program, made, BUSY)


@pytest.mark.parametrize("deep", [1, 3])
def test_steps_put_what_another_place_of_the_tree_fetched(deep: int) -> None:
    """The first window begins on a multiple of pieces, the others anywhere: all are fetched alike."""
    source = "function (D[Y, X], K[I, O]) -> (R) { R[o, y, x : O, Y, X] = +(D[y, x+i-4] * K[i, o]); }"
    program = stripe(source, {"D": (4, 64), "K": (9, 8)})
    (view,) = views(program)
    for plan in islice(changed(view, BUSY, deep=deep), 3):
        agree(program, scheduled(program, BUSY, plan), BUSY)


def changed(view: KernelView, target: Target, **changes: Any) -> Iterator[Plan]:
    """Plans of the best tiles of several sub-groups, with decisions changed."""
    work = contraction(view)
    assert work is not None
    space = TileSpace(work, target)
    for ranked in space.best():
        tile = replace(ranked.tile, **({"ways": 1, "split": "", "staged": True} | changes))
        cost = space.costs.cost(tile)
        if cost is not None and tile.count <= target.settings.threads:
            yield GroupPlan(work, tile, cost, space.costs).plan()


@pytest.mark.parametrize("name", SAMPLES)
def test_plans_fit_local_memory_and_groups(name: str) -> None:
    view = contracted(*SAMPLES[name])
    work = contraction(view)
    assert work is not None
    for plan in islice(plans(view, BUSY), 5):
        if all(r.across is not Across.GROUPS for r in plan.reductions):
            assert sum(c.bytes for c in group_tile(view, work.main, plan).staged) <= BUSY.settings.max_mem
    assert all(r.tile.count <= BUSY.settings.threads for r in TileSpace(work, BUSY).best())


@pytest.mark.parametrize("most", [20000, 10000, 3000])
def test_windows_that_do_not_fit_go_step_by_step(most: int) -> None:
    small = replace(TILED, settings=replace(TILED.settings, max_mem=most))
    shapes = {"D": (1, 16, 16, 16), "K": (9, 9, 16, 16)}
    view = contracted(CONV.replace("-1", "-4"), shapes)
    work = contraction(view)
    assert work is not None
    assert sum(c.bytes for c in group_tile(view, work.main, next(plans(view, small))).staged) <= most


def test_predicted_times_go_on_from_size_to_size() -> None:
    """Time per operation of neighbours on a grid of sizes, and one more or less, differs by little."""
    sizes = [round(128 * sqrt(2) ** n) for n in range(0, 11, 2)]
    for size in sizes:
        each = [_per_operation(n) for n in (size - 1, size, size + 1)]
        # One more row of tiles than multiprocessors take at once is a step that is really there.
        assert max(each) <= 1.5 * min(each), size


def _per_operation(n: int) -> float:
    work = contraction(contracted(MATMUL, {"A": (n, n), "B": (n, n)}))
    assert work is not None
    return TileSpace(work, BUSY).best()[0].cost.seconds / prod((n, n, n))


def test_tiles_that_meet_in_one_bank_give_way_to_another_form() -> None:
    """Images whose rows are 128 bytes long, run by run: the space's own forecast does not see the conflicts."""
    source = """function (D[N, C, X, Y, Z], K[O, C, U, V, W]) -> (R) {
        R[n, o, x, y, z : N, O, X, Y, Z] = +(D[n, c, x+u-1, y+v-1, z+w-1] * K[o, c, u, v, w]);
    }"""
    view = contracted(source, {"D": (2, 64, 32, 32, 32), "K": (128, 64, 3, 3, 3)})
    first = next(plans(view, BUSY))
    chosen = GroupTile().choose(view, BUSY)
    assert chosen is not None
    plan, built = chosen
    slow = estimate(GroupTile().build(view, first, BUSY).kernel, BUSY).seconds
    assert plan.bound(Bind.GROUP) != first.bound(Bind.GROUP)
    assert slow > 1.5 * estimate(built.kernel, BUSY).seconds


def test_large_products_get_the_tile_that_measured_best() -> None:
    """128 x 128 for 128 items of 16 x 8 in sub-groups of 4 x 8 lanes, eight steps deep: facts of an H200."""
    plan = next(plans(contracted(MATMUL, {"A": (4096, 4096), "B": (4096, 4096)}), BUSY))
    lines = print_plans({"C": plan}).splitlines()
    assert lines[1:5] == ["  grid i:128 j:128", "  group i:64 j:64", "  group i:16/4 j:8/4", "  ordered serial k:8"]
