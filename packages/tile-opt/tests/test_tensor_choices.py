"""What tensor_tile chooses: pitches that keep lanes on different banks, and tiles that keep multiprocessors busy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import prod

import pytest
from explain_support import FRONT
from tensor_support import (
    BUSY,
    DTYPES,
    LAYOUTS,
    SMALL,
    TENSOR,
    blocks_of,
    bound,
    inputs_of,
    matmul,
    near,
    on_matrix,
    optimize_given,
    plan_of,
    plans_of,
    run_kernels,
    scheduled,
    tf32,
    view_of,
    walk_instr,
)
from tile_ir.diagnostics import TilePlanError
from tile_ir.dtype import DType
from tile_ir.semtree.nodes import Alloc, Space
from tile_ir.stripe.nodes import Bind, Block, Refinement
from tile_ir.target import PassConfig, Target
from tile_opt.lower_kernels import lower_kernels
from tile_opt.model.estimate import estimate
from tile_opt.passes.kernels.group_tile import GroupTile
from tile_opt.passes.kernels.tensor_tile import TensorTile
from tile_opt.pipeline import schedule
from tile_opt.plan.space.gpu.tiles import estimated, ranked
from tile_opt.plan.space.tensor import plans
from tile_opt.plan.steps.groups.banks import bank_conflicts
from tile_opt.plan.text import parse_plans, print_plans
from tile_opt.translate import to_stripe

F32, BF16 = DTYPES


# --- banks of local memory -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("addresses", "width", "conflicts"),
    [
        ([4 * i for i in range(32)], 4, 1),
        ([8 * i for i in range(32)], 4, 2),
        ([128 * i for i in range(32)], 4, 32),
        ([0] * 32, 4, 1),
        ([2 * i for i in range(32)], 4, 1),
        ([16 * i for i in range(8)], 16, 1),
        ([128 * i for i in range(8)], 16, 8),
        ([16 * i for i in range(8)] * 4, 16, 1),
    ],
)
def test_lanes_that_meet_in_a_bank(addresses: list[int], width: int, conflicts: int) -> None:
    assert bank_conflicts(addresses, width) == conflicts


@pytest.mark.parametrize("target", [SMALL, TENSOR], ids=["small", "large"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_loads_of_single_elements_have_no_bank_conflicts(layout: str, target: Target) -> None:
    """Every load of every slice: 32 lanes, 32 banks."""
    stripe = scheduled(matmul(layout, F32, 512, 512, 512).program, target)
    for name in "AB":
        load = next(b for b in walk_instr(stripe, "round") if b.name == f"load_{name}")
        source = next(r for r in load.refs if r.into == "src")
        for point in _points(load, ("lane_high", "lane_low")):
            at = [_address(source, point | {"lane_high": lane // 4, "lane_low": lane % 4}) for lane in range(32)]
            assert bank_conflicts(at, 4) == 1


@pytest.mark.parametrize("target", [SMALL, TENSOR], ids=["small", "large"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_loads_of_matrices_have_no_bank_conflicts(layout: str, target: Target) -> None:
    """Eight lines of 16 bytes at a time, along the dimension that is not contiguous: 32 banks."""
    stripe = scheduled(matmul(layout, BF16, 512, 512, 512).program, target)
    for name in "AB":
        load = next(b for b in walk_instr(stripe, "matrix_load") if b.name == f"load_{name}")
        source = next(r for r in load.refs if r.into == "src")
        across = "row" if _address(source, _zero(load) | {"column": 1}) == source.type.dtype.bytes else "column"
        for point in _points(load, ("row", "column")):
            at = [_address(source, _zero(load) | point | {across: line}) for line in range(8)]
            assert bank_conflicts(at, 16) == 1
            assert all(a % 16 == 0 for a in at)


def _zero(block: Block) -> dict[str, int]:
    """Zero for every name that the block's accesses mention."""
    return {n: 0 for r in block.refs for f in r.access for n in f.names}


def _points(block: Block, without: tuple[str, str]) -> list[dict[str, int]]:
    """Points of the block's own indexes but two."""
    own = [i for i in block.indexes if i.value is None and i.name not in without]
    zero = _zero(block)
    return [zero | dict(zip((i.name for i in own), at, strict=True)) for at in product(*(range(i.range) for i in own))]


def _address(ref: Refinement, point: dict[str, int]) -> int:
    """Bytes from the start of the local box."""
    strides = ref.type.strides
    forms = zip(ref.access[-len(strides) :], strides, strict=True)  # the first one selects a version
    return ref.type.dtype.bytes * sum(f.evaluate(point) * stride for f, stride in forms)


# --- which tile ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "sizes", "tile"),
    [
        *((d, (4096, 4096, 4096), (128, 128)) for d in DTYPES),
        (BF16, (1024, 1024, 1024), (128, 64)),
        (F32, (1024, 1024, 1024), (128, 128)),
        *((d, (512, 512, 512), (64, 64)) for d in DTYPES),
        *((d, (256, 256, 4096), (128, 128)) for d in DTYPES),
    ],
    ids=str,
)
def test_tiles_keep_the_multiprocessors_busy(dtype: DType, sizes: tuple[int, int, int], tile: tuple[int, int]) -> None:
    """Large tiles reuse operands most; a few multiprocessors with large ones take longer than many with small ones.

    Where results are few and sums are deep, groups share the sums, and tiles stay large.
    """
    plan = plan_of(matmul("nn", dtype, *sizes), BUSY)
    assert plan is not None
    assert ((plan.rows, plan.columns), plan.stages, plan.warps) == (tile, 3, 4)


IMAGES = "function (D[N, C, X, Y], K[O, C]) -> (R) { R[n, o, x, y : N, O, X, Y] = +(D[n, c, x, y] * K[o, c]); }"


def test_sub_groups_have_all_of_few_columns() -> None:
    """Half of the columns of other tiles would be behind the end."""
    sample = matmul("nn", BF16, 128, 16, 16)
    best = next(t for t in plans_of(sample, BUSY) if t.columns == 16)
    assert (best.warps, best.instructions[1]) == (4, 2)
    inputs = inputs_of(sample.program)
    stripe = optimize_given(sample, BUSY, print_plans({"kernel_0": best.plan}))
    near(run_kernels(stripe, BUSY, inputs), sample, inputs, tf32, 1e-6)


def test_rows_and_columns_are_neighbours_in_memory() -> None:
    """Not images of a batch, though these leave as few over: every element would be a sector of its own."""
    program = bound(IMAGES, F32, D=(32, 64, 28, 28), K=(64, 64))
    (decision,) = schedule(to_stripe(program), BUSY).decisions.values()
    assert decision.plan.instruction is not None
    assert {loop for role, loop in decision.plan.instruction.loops if role in "mn"} == {"o", "y"}


STRIDED = """function (D[N, C, X, Y], K[O, C]) -> (R) {
    R[n, o, x, y : N, O, X/2, Y/2] = +(D[n, c, 2*x, 2*y] * K[o, c]); }"""


@pytest.mark.parametrize(("channels", "taken"), [(8, False), (256, True)], ids=["few products", "many"])
def test_instructions_are_left_where_items_are_faster(channels: int, taken: bool) -> None:
    """Neighbours are skipped, so that rows are sectors of their own: a permission must not make it slower."""
    passes = (
        *FRONT,
        PassConfig("tensor_tile", options={"faster": True}),
        PassConfig("group_tile"),
        PassConfig("gpu_tile"),
    )
    program = bound(STRIDED, F32, D=(32, channels, 56, 56), K=(channels, channels))
    assert on_matrix(scheduled(program, BUSY))
    assert on_matrix(scheduled(program, replace(BUSY, passes=passes))) is taken


def always(seconds: float) -> Callable[[object, object], float]:
    return lambda view, target: seconds


@pytest.mark.parametrize(("seconds", "taken"), [(1e-9, False), (1.0, True)], ids=["faster", "slower"])
def test_near_forecasts_are_settled_by_what_the_kernel_is_estimated_to_take(
    seconds: float, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "forecast", always(1e-9))
    monkeypatch.setattr(plans, "OPTIMISM", 1e12)
    monkeypatch.setattr(plans, "estimated", always(seconds))
    found = TensorTile(faster=True).candidates(view_of(matmul("nn", BF16, 512, 512, 512), BUSY), BUSY)
    assert (next(found, None) is not None) is taken


def test_the_estimate_is_that_of_the_kernel_of_items() -> None:
    view = view_of(matmul("nn", F32, 4096, 4096, 64), BUSY)
    made = ranked(view, BUSY)[0]
    assert estimated(view, BUSY) == estimate(GroupTile().build(view, made[1](), BUSY).kernel, BUSY).seconds


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_plan_prints_parses_and_passes_its_own_checks(dtype: DType) -> None:
    sample = matmul("nt", dtype, 100, 72, 64)
    kernel = view_of(sample, SMALL)
    for target in (SMALL, TENSOR):
        for tiles in plans_of(sample, target):
            assert parse_plans(print_plans({"kernel_0": tiles.plan})) == {"kernel_0": tiles.plan}
            TensorTile().checked(kernel, tiles.plan, target, {})


GIVEN = """plan kernel_0 {
  grid i:32 j:64
  subgroup i:16 j:32
  ordered serial k:8
    stage A in LOCAL as [i, k] by group pad 4 versions 2
    stage B in LOCAL as [k, j] by group pad 8 versions 2
  unroll k:8 i:16 j:8
  reduce k across serial
  instruction mma_m16n8k8_tf32 m=i n=j k=k
}
"""


def test_a_plan_may_be_given() -> None:
    sample = matmul("nn", F32, 40, 72, 32)
    inputs = inputs_of(sample.program)
    stripe = optimize_given(sample, TENSOR, GIVEN)
    sizes = [i.range for b in blocks_of(stripe) for i in b.indexes if i.bind in (Bind.GRID, Bind.SUBGROUP)]
    assert sizes == [2, 2, 2, 2]
    near(run_kernels(stripe, TENSOR, inputs), sample, inputs, tf32, 1e-6)


@pytest.mark.parametrize(
    ("line", "wrong", "message"),
    [
        ("subgroup i:16 j:32", "subgroup i:16 j:24", "64 iterations of 'j' are no multiple of 24"),
        ("grid i:32 j:64", "grid i:32", "72 iterations of 'j' are no multiple of 32"),
        ("unroll k:8 i:16 j:8", "unroll k:8 i:8 j:8", "8 iterations of 'i' are no multiple of 16"),
        ("unroll k:8 i:16 j:8", "serial k:8 i:16 j:8", "four levels"),
        ("pad 4 versions 2", "pad 4", "2 versions or more"),
        ("m=i n=j", "m=i n=k", "does not compute what"),
        ("ordered serial k:8", "ordered serial k:12", "12 iterations of 'k' are no multiple of 8"),
    ],
)
def test_a_wrong_plan_is_refused_in_a_sentence(line: str, wrong: str, message: str) -> None:
    sample = matmul("nn", F32, 40, 72, 40)
    with pytest.raises(TilePlanError) as found:
        optimize_given(sample, TENSOR, GIVEN.replace(line, wrong))
    assert message in str(found.value)


def test_a_group_is_as_many_work_items_as_its_warps() -> None:
    stripe = scheduled(matmul("nn", F32, 64, 64, 32).program, SMALL)
    (kernel,) = lower_kernels(stripe, SMALL).kernels
    assert kernel.function is not None
    assert (prod(kernel.function.group_size), kernel.function.subgroup, kernel.groups) == (128, 32, (4, 1, 1))
    grid = [i.range for b in blocks_of(stripe) for i in b.indexes if i.bind is Bind.GRID]
    assert grid == [2, 2]


def test_local_arrays_are_all_that_a_group_shares() -> None:
    (kernel,) = lower_kernels(scheduled(matmul("nn", F32, 64, 64, 32).program, SMALL), SMALL).kernels
    assert kernel.function is not None
    arrays = [s for s in kernel.function.body.body if isinstance(s, Alloc) and s.type.space is Space.LOCAL]
    assert len(arrays) == 2
