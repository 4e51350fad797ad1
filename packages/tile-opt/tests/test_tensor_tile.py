"""Contractions on matrix instructions: what is scheduled how, what is left alone, and that results are those of TF32.

The golden text is made again by ``python test_tensor_tile.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from cProfile import Profile
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensor_support import (
    BIAS_RELU,
    BUSY,
    DTYPES,
    LAYOUTS,
    PORTABLE,
    RELU,
    SMALL,
    TAILS,
    TENSOR,
    Array,
    Sample,
    agree,
    blocks_of,
    bound,
    inputs_of,
    instructions,
    matmul,
    near,
    on_matrix,
    plan_of,
    plans_of,
    run_kernels,
    scheduled,
    tf32,
    walk_instr,
    whole,
    with_local,
)
from tile_ir.dtype import DType
from tile_ir.machine import Occupancy
from tile_ir.matrix import MMA
from tile_ir.semtree.verify import OPTIONAL_NODES
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Direction, Order, Refinement, Scope, Sync, Transfer, Wait
from tile_ir.stripe.nodes import Program as Stripe
from tile_ir.stripe.parser import parse_program
from tile_ir.stripe.printer import print_program
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import Options, Target
from tile_opt.lower_kernels import lower_kernels
from tile_opt.passes.base import kernels_of
from tile_opt.semtree.legalise import used_nodes

GOLDEN = Path(__file__).parent / "golden_tensor" / "matmul_float32.stripe"
SIZES = [(32, 32, 48), (40, 24, 32), (33, 17, 16)]
"""Whole tiles; rows and columns over the end; rows that no copy of 16 bytes fits."""
F32, BF16 = DTYPES
LIGHT = replace(SMALL, nodes=PORTABLE)


def both(inputs: Mapping[str, Array]) -> tuple[Array, Array]:
    """A and B as they are."""
    return inputs["A"], inputs["B"]


def locals_of(stripe: Stripe) -> list[Refinement]:
    """The operands' boxes in local memory."""
    return [r for b in blocks_of(stripe) for r in b.refs if r.dir is Direction.ALLOC and r.loc.scope is Scope.GROUP]


# --- results ---------------------------------------------------------------------------------------


@pytest.mark.diagonal(3)
@pytest.mark.parametrize("sizes", SIZES, ids=["even", "ragged", "odd"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_product_of_matrices(dtype: DType, layout: str, sizes: tuple[int, int, int]) -> None:
    agree(matmul(layout, dtype, *sizes), SMALL)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_half_floats_have_an_instruction_like_that_of_bfloat16(layout: str) -> None:
    stripe = agree(matmul(layout, DType.FLOAT16, 40, 24, 32), SMALL)
    assert "mma_m16n8k16_f16" in instructions(stripe)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_of_float64_ask_for_no_precision(layout: str) -> None:
    """Sums as a loop of multiply-adds has them."""
    sample, target = matmul(layout, DType.FLOAT64, 40, 24, 33), replace(SMALL, options=Options())
    inputs, stripe = inputs_of(sample.program), scheduled(sample.program, target)
    assert any(name.endswith("_f64") for name in instructions(stripe))
    near(run_kernels(stripe, target, inputs), sample, inputs, whole, 1e-15)


def test_sums_that_registers_do_not_hold_are_in_no_tile() -> None:
    """Four by eight instructions take all that an item may have of them for float64."""
    sample = matmul("nn", DType.FLOAT64, 1024, 1024, 64)
    target = replace(BUSY, matrix=("mma_m16n8k8_f64",), machine=replace(BUSY.machine, occupancy=Occupancy()))
    assert max(prod(tile.instructions) for tile in plans_of(sample, target)) == 16


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_large_tile(dtype: DType) -> None:
    """Four by eight instructions a warp: every fragment is one of several."""
    sample = matmul("nn", dtype, 100, 72, 32)
    plan = plan_of(sample, TENSOR)
    assert plan is not None and plan.instructions == (4, 8)
    agree(sample, TENSOR)


@pytest.mark.parametrize("tail", [RELU, BIAS_RELU], ids=["relu", "bias_relu"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_follows_a_product_is_done_on_its_fragments(dtype: DType, tail: str) -> None:
    agree(matmul("nn", dtype, 40, 24, 32, tail), SMALL)


def test_loops_that_are_one_in_memory_are_one_depth() -> None:
    source = "function (A[M, K, L], B[K, L, N]) -> (R) { R[i, j : M, N] = +(A[i, k, l] * B[k, l, j]); }"
    program = bound(source, F32, A=(40, 4, 8), B=(4, 8, 24))
    agree(Sample(program, lambda x: (x["A"].reshape(40, 32), x["B"].reshape(32, 24))), SMALL)


@pytest.mark.parametrize(("dtype", "deep"), [(F32, 8), (F32, 24), (BF16, 16)], ids=str)
def test_reductions_over_several_loops(dtype: DType, deep: int) -> None:
    """One of them goes in steps, inside the others; here the operands disagree on their order in memory."""
    source = "function (A[M, K, L], B[L, K, N]) -> (R) { R[i, j : M, N] = +(A[i, k, l] * B[l, k, j]); }"
    program = bound(source, dtype, A=(40, 3, deep), B=(deep, 3, 24))
    agree(Sample(program, lambda x: (x["A"].reshape(40, -1), x["B"].transpose(1, 0, 2).reshape(-1, 24))), SMALL)


def test_a_convolution_without_padding() -> None:
    """Windows move the operand's box from one reduction step to the next."""
    source = "function (A[X, C], B[T, C, D]) -> (R) { R[x, d : 38, D] = +(A[x + t, c] * B[t, c, d]); }"
    program = bound(source, F32, A=(40, 16), B=(3, 16, 24))

    def windows(x: Mapping[str, Array]) -> tuple[Array, Array]:
        left = np.stack([x["A"][t : t + 38] for t in range(3)], axis=1)
        return left.reshape(38, -1), x["B"].reshape(-1, 24)

    agree(Sample(program, windows), SMALL)


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_a_batch_of_products(shared: bool) -> None:
    """One B for all of the batch, or one each."""
    right, head, b = ("B[k, j]", "B[K, N]", (16, 24)) if shared else ("B[b, k, j]", "B[P, K, N]", (3, 16, 24))
    source = f"function (A[P, M, K], {head}) -> (R) {{ R[b, i, j : P, M, N] = +(A[b, i, k] * {right}); }}"
    sample = Sample(bound(source, F32, A=(3, 40, 16), B=b), both)
    agree(sample, SMALL)


OFFSETS: dict[str, tuple[str, tuple[int, int], tuple[int, int], Callable[[Array, Array], tuple[Array, Array]]]] = {
    "rows": ("A[i + 2, k] * B[k, j]", (36, 16), (16, 24), lambda a, b: (a[2:], b)),
    "columns": ("A[i, k] * B[k, j + 4]", (34, 16), (16, 28), lambda a, b: (a, b[:, 4:])),
    "unaligned columns": ("A[i, k] * B[k, j + 3]", (34, 16), (16, 27), lambda a, b: (a, b[:, 3:])),
    "depth": ("A[i, k + 4] * B[k, j]", (34, 20), (16, 24), lambda a, b: (a[:, 4:], b)),
}


@pytest.mark.parametrize("case", OFFSETS)
def test_operands_that_start_inside_a_matrix(case: str) -> None:
    text, left, right, parts = OFFSETS[case]
    source = f"function (A[P, Q], B[S, T]) -> (R) {{ R[i, j : 34, 24] = +({text}); }}"
    sample = Sample(bound(source, F32, A=left, B=right), lambda x: parts(x["A"], x["B"]))
    agree(sample, SMALL)


@pytest.mark.parametrize(("m", "n", "rows"), [(15, 32, "j"), (24, 9, "i"), (9, 24, "j"), (24, 15, "i")])
def test_the_side_that_fills_an_instruction_gives_its_rows(m: int, n: int, rows: str) -> None:
    """Even where the other way round less would be computed for nothing."""
    sample = matmul("nn", F32, m, n, 16)
    plan = plan_of(sample, SMALL)
    assert plan is not None and plan.row_loop == rows
    agree(sample, SMALL)


def test_a_matrix_times_itself() -> None:
    source = "function (A[M, K]) -> (R) { R[i, j : M, M] = +(A[i, k] * A[j, k]); }"
    program = bound(source, F32, A=(40, 32))
    inputs = inputs_of(program)
    stripe = scheduled(program, SMALL)
    assert on_matrix(stripe)
    got, a = run_kernels(stripe, SMALL, inputs), tf32(inputs["A"])
    np.testing.assert_allclose(got, a @ a.T, rtol=0, atol=1e-6 * (np.abs(a) @ np.abs(a.T)).max())


OWN_KERNELS: dict[str, tuple[str, Callable[[Array, Array], Array]]] = {
    "computed": ("X = exp(A); R[i, j : M, N] = +(X[i, k] * B[k, j]);", lambda a, b: np.exp(a) @ b),
    "shifted": ("X = A + 0.5; R[i, j : M, N] = +(X[i, k] * B[k, j]);", lambda a, b: (a + 0.5) @ b),
    "rows before the first": (
        "R[i, j : M, N] = +(A[i - 1, k] * B[k, j]);",
        lambda a, b: np.pad(a @ b, ((1, 0), (0, 0)))[:-1],
    ),
    "a sum beside": (
        "P[i, j : M, N] = +(A[i, k] * B[k, j]); S[j : N] = +(B[k, j]); R = P + S;",
        lambda a, b: a @ b + b.sum(0),
    ),
}


@pytest.mark.parametrize("case", OWN_KERNELS)
def test_what_does_not_fit_beside_a_product_is_a_kernel_of_its_own(case: str) -> None:
    text, meaning = OWN_KERNELS[case]
    program = bound(f"function (A[M, K], B[K, N]) -> (R) {{ {text} }}", F32, A=(40, 32), B=(32, 24))
    inputs, stripe = inputs_of(program), scheduled(program, SMALL)
    assert on_matrix(stripe) and len(kernels_of(stripe)) == 2
    # TF32 of operands that are rounded before or after they are computed.
    want = meaning(*(whole(inputs[n]) for n in "AB"))
    np.testing.assert_allclose(run_kernels(stripe, SMALL, inputs), want, rtol=0, atol=2.0**-9 * np.abs(want).max())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_no_number_stays_in_its_row_and_column(dtype: DType) -> None:
    """Columns and rows over the end are computed from zeros, and dropped."""
    sample = matmul("nn", dtype, 40, 24, 32)
    inputs = inputs_of(sample.program)
    inputs["A"][39, 3], inputs["A"][7, 0], inputs["B"][5, 23] = np.nan, np.inf, -np.inf
    got = run_kernels(scheduled(sample.program, SMALL), SMALL, inputs).astype(np.float64)
    finite = np.ones((40, 24), bool)
    finite[[39, 7]], finite[:, 23] = False, False
    assert np.array_equal(np.isfinite(got), finite)


@pytest.mark.diagonal(4)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_targets_without_the_nodes_give_the_same_bits(dtype: DType, layout: str) -> None:
    sample = matmul(layout, dtype, 40, 24, 32)
    inputs = inputs_of(sample.program, 3)
    expected = run_kernels(scheduled(sample.program, SMALL), SMALL, inputs)
    for missing in ({"MatrixLoad"}, OPTIONAL_NODES - PORTABLE):
        target = replace(SMALL, nodes=OPTIONAL_NODES - missing)
        stripe = scheduled(sample.program, target)
        for kernel in lower_kernels(stripe, target).kernels:
            assert kernel.function is not None and not used_nodes(kernel.function) & missing
        got = run_kernels(stripe, target, inputs)
        assert got.tobytes() == expected.tobytes(), sorted(missing)


@st.composite
def samples(draw: st.DrawFn) -> tuple[Sample, Target]:
    dtype, layout = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(LAYOUTS))
    deep = 8 if dtype is F32 else 16
    k = deep * draw(st.integers(1, 64 // deep))
    m, n = draw(st.integers(16, 70)), draw(st.integers(8, 40))
    tail = draw(st.sampled_from([*TAILS]))
    target = draw(st.sampled_from([SMALL, SMALL, TENSOR, LIGHT, with_local(SMALL, 12288)]))
    return matmul(layout, dtype, m, n, k, tail), target


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(samples())
def test_random_products(case: tuple[Sample, Target]) -> None:
    agree(*case)


# --- structure -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "stages", "step"), [(8, 1, 8), (24, 3, 8), (16, 1, 16), (32, 2, 16), (64, 3, 16), (256, 3, 16)]
)
def test_a_step_is_two_instructions_deep_and_three_steps_are_in_flight(k: int, stages: int, step: int) -> None:
    sample = matmul("nn", F32, 64, 64, k)
    plan = plan_of(sample, TENSOR)
    assert plan is not None and (plan.stages, plan.step) == (stages, step)
    stripe = scheduled(sample.program, TENSOR)
    assert [r.versions for r in locals_of(stripe)] == [stages, stages]
    assert [r.type.sizes for r in locals_of(stripe)] == [(plan.rows, step), (step, plan.columns)]


def test_stages_are_as_many_as_fit_in_local_memory() -> None:
    sample = matmul("nn", F32, 64, 64, 256)
    full = plan_of(sample, with_local(SMALL, 15360))
    less = plan_of(sample, with_local(SMALL, 15359))
    assert full is not None and less is not None
    assert (full.rows, full.columns, full.stages) == (less.rows, less.columns, 3)
    assert less.stages == 2
    assert plan_of(sample, with_local(SMALL, 10239)) is None


def test_the_target_says_how_much_local_memory_there_is() -> None:
    """`static_local_bytes` where a device gives a group more than others; else `max_mem`."""
    sample = matmul("nn", F32, 64, 64, 256)
    small = replace(SMALL, settings=replace(TENSOR.settings, max_mem=12000))
    found = [plan_of(sample, t) for t in (small, with_local(small, 0))]
    assert [p.stages for p in found if p is not None] == [3, 2]


@pytest.mark.diagonal(3)
@pytest.mark.parametrize("target", [SMALL, TENSOR, LIGHT], ids=["small", "large", "light"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_kernel_keeps_to_its_local_memory(dtype: DType, layout: str, target: Target) -> None:
    """The most that the boxes take is no more than what makes the plan choose so many stages."""
    sample = matmul(layout, dtype, 512, 512, 512)
    stages, needed = _local_memory(sample, target)
    assert stages == 3 and needed <= 98304
    assert _local_memory(sample, with_local(target, needed - 1))[0] < 3


def _local_memory(sample: Sample, target: Target) -> tuple[int, int]:
    """Versions and bytes of the group's arrays."""
    boxes = locals_of(scheduled(sample.program, target))
    if not boxes:
        return 0, 0
    return boxes[0].versions, sum(r.versions * r.type.nbytes for r in boxes)


@pytest.mark.parametrize(
    ("dtype", "nodes", "expected"),
    [
        (F32, OPTIONAL_NODES, {"round", "mma_m16n8k8_tf32"}),
        (BF16, OPTIONAL_NODES, {"matrix_load", "matrix_load_transposed", "mma_m16n8k16_bf16"}),
        (BF16, OPTIONAL_NODES - {"MatrixLoad"}, {"mma_m16n8k16_bf16"}),
    ],
    ids=["tf32", "bf16", "bf16 without matrix loads"],
)
def test_which_blocks_are_instructions(dtype: DType, nodes: frozenset[str], expected: set[str]) -> None:
    stripe = scheduled(matmul("nn", dtype, 64, 64, 64).program, replace(SMALL, nodes=nodes))
    assert instructions(stripe) == expected


@pytest.mark.parametrize(("layout", "transposed"), [("nn", "B"), ("tn", "AB"), ("nt", ""), ("tt", "A")])
def test_matrices_whose_neighbours_are_no_neighbours_in_depth_are_loaded_transposed(
    layout: str, transposed: str
) -> None:
    stripe = scheduled(matmul(layout, BF16, 64, 64, 64).program, SMALL)
    loads = {b.name: str(b.instr) for b in walk_instr(stripe, "matrix_load")}
    assert {n for n, instr in loads.items() if "_transposed" in instr} == {f"load_{n}" for n in transposed}
    assert set(loads) == {"load_A", "load_B"}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_block_of_a_product_keeps_its_meaning(dtype: DType) -> None:
    """One instruction's worth of iterations, whose body multiplies and adds."""
    stripe = scheduled(matmul("nn", dtype, 64, 64, 64).program, SMALL)
    (instruction,) = (i for i in MMA if i.a.dtype is dtype)
    found = list(walk_instr(stripe, "mma"))
    assert found
    for block in found:
        assert tuple(i.range for i in block.indexes if i.value is None) == instruction.shape
        assert [type(s).__name__ for s in block.body if type(s).__name__ != "Op"] == ["Load", "Load", "Store"]
        assert {r.type.dtype for r in block.refs} == {dtype, F32}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_operand_has_one_allocation_of_fragments(dtype: DType) -> None:
    stripe = scheduled(matmul("nn", dtype, 64, 64, 64).program, SMALL)
    multiplies = [b for b in blocks_of(stripe) if b.name == "multiply"]
    for block in multiplies:
        assert sorted(r.into for r in block.refs if r.dir is Direction.ALLOC) == ["A_fragments", "B_fragments"]
    fragments = [
        r for b in blocks_of(stripe) for r in b.refs if r.dir is Direction.ALLOC and r.loc.scope is Scope.SUBGROUP
    ]
    assert all(r.type.layout.fragment is not None for r in fragments)
    assert len(fragments) == 2 * len(multiplies) + 1
    assert {r.type.dtype for r in fragments if r.into not in ("A_fragments", "B_fragments")} == {F32}


@pytest.mark.parametrize(("k", "stages"), [(64, 3), (16, 2)])
def test_every_step_waits_for_its_copies_and_for_the_other_warps(k: int, stages: int) -> None:
    """A wait closes the batch of copies before it, and a barrier stands between it and what reads the copies."""
    stripe = scheduled(matmul("nn", F32, 64, 64, k).program, SMALL)
    (warps,) = (b for b in blocks_of(stripe) if b.name.endswith("_warps"))
    pending = stages - 2
    order = [_kind(s, pending) for s in warps.body]
    ahead = ["init", "copies", *["wait", "copies"] * (stages - 2)]
    loop = ["steps"] if k // 16 > stages - 1 else []
    assert order == [*ahead, *loop, *["wait", "sync", "step"] * (stages - 1), "R_store"]
    for steps in (b for b in blocks_of(stripe) if b.name.endswith("_steps")):
        kinds = [_kind(s, pending) for s in steps.body]
        assert kinds == ["wait", "sync", "multiply", "copy_A", "copy_B", "multiply"]
        (index,) = (i for i in steps.indexes if i.value is None)
        assert index.order is Order.ORDERED and index.range == k // 16 - (stages - 1)


def _kind(statement: Any, pending: int) -> str:
    match statement:
        case Wait(0, found):
            assert found == pending
            return "wait"
        case Sync(Scope.GROUP, "local"):
            return "sync"
        case Block():
            first, _, last = statement.name.rpartition("_")
            return {"copy_step": "copies", "step": "step"}.get(first, last if last == "steps" else statement.name)
        case _:
            raise AssertionError(statement)


def test_steps_take_turns_in_the_versions() -> None:
    """A step reads the version that was copied for it, and never the one that is being copied."""
    stripe = scheduled(matmul("nn", F32, 64, 64, 128).program, SMALL)
    (steps,) = (b for b in blocks_of(stripe) if b.name.endswith("_steps"))
    leaves = [b for b in blocks_in(steps) if b.name in ("copy_A", "copy_B", "load_A", "load_B")]
    forms = {(b.name, r.access[0]) for b in leaves for r in b.refs if r.loc.scope is Scope.GROUP}
    step = Affine.var("k_s")
    assert forms == {("copy_A", step + 2), ("copy_B", step + 2), ("load_A", step), ("load_B", step)}


@pytest.mark.parametrize(
    ("dtype", "columns", "elements"),
    [(F32, 24, 4), (F32, 18, 2), (F32, 17, 1), (BF16, 24, 8), (BF16, 20, 4), (BF16, 18, 2), (BF16, 17, 1)],
    ids=str,
)
def test_copies_are_as_wide_as_rows_are_aligned(dtype: DType, columns: int, elements: int) -> None:
    """16, 8 or 4 bytes, which can run ahead, or else one element."""
    stripe = scheduled(matmul("nn", dtype, 64, columns, 32).program, SMALL)
    copies = [b for b in blocks_of(stripe) if any(isinstance(s, Transfer) for s in b.body)]
    assert {prod(r.type.sizes) for b in copies if b.name == "copy_B" for r in b.refs} == {elements}


def test_only_copies_over_the_end_are_checked() -> None:
    even, ragged = (scheduled(matmul("nn", F32, m, n, 32).program, SMALL) for m, n in ((64, 32), (40, 24)))
    for stripe, guarded in ((even, False), (ragged, True)):
        copies = [b for b in blocks_of(stripe) if b.name.startswith("copy_") and b.name[5:] in "AB"]
        moves = [s for b in copies for s in b.body if isinstance(s, Transfer)]
        assert moves and all(bool(s.where) is guarded for s in moves)
        assert not any(b.constraints for b in copies)


def test_removing_tags_changes_nothing() -> None:
    from slides_support import untagged

    sample = matmul("nn", F32, 40, 24, 32)
    inputs = inputs_of(sample.program)
    stripe = scheduled(sample.program, SMALL)
    assert run_kernels(untagged(stripe), SMALL, inputs).tobytes() == run_kernels(stripe, SMALL, inputs).tobytes()


def test_a_small_product_has_a_golden_text() -> None:
    text = golden()
    assert text == GOLDEN.read_text(encoding="utf-8")
    assert print_program(parse_program(text)) == text


def test_lanes_of_an_access_are_looked_at_once_for_all_that_it_is_unrolled_into() -> None:
    """Which register each means differs by what the others' constants do."""
    stripe = scheduled(matmul("nn", BF16, 128, 128, 64).program, TENSOR)
    want, profile = lower_kernels(stripe, TENSOR), Profile()
    assert profile.runcall(lower_kernels, stripe, TENSOR) == want
    count = {getattr(e.code, "co_name", ""): e.callcount for e in profile.getstats()}
    assert count["slot"] > 100 and "evaluate" not in count


def golden() -> str:
    return print_program(scheduled(matmul("nn", F32, 40, 32, 48).program, SMALL))


def main() -> None:
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(golden(), encoding="utf-8")


if __name__ == "__main__":
    main()
