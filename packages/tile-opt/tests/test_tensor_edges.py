"""Contractions on matrix instructions whose last step, or whose windows, reach over the end: zeros in local memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from tensor_support import (
    BIAS_RELU,
    DTYPES,
    PORTABLE,
    SMALL,
    Array,
    Sample,
    agree,
    blocks_of,
    bound,
    inputs_of,
    matmul,
    near,
    on_matrix,
    optimize_given,
    plan_of,
    run_kernels,
    scheduled,
    tf32,
    view_of,
)
from tile_ir.dtype import DType
from tile_ir.emit.walker import walk_statements
from tile_ir.semtree.nodes import Space, Store
from tile_ir.stripe.nodes import Block, Transfer
from tile_ir.stripe.parser import parse_program
from tile_ir.stripe.printer import print_program
from tile_ir.target import Target
from tile_opt.compiler import compile
from tile_opt.passes.base import kernels_of
from tile_opt.passes.kernels.tensor_tile import TensorTile
from tile_opt.plan.plan import Across
from tile_opt.plan.steps.groups.last_group import waits_for_all
from tile_opt.plan.text import print_plans

F32, BF16 = DTYPES
LIGHT = replace(SMALL, nodes=PORTABLE)


def windows(dtype: DType, size: int, step: int, channels: int, batch: int = 1, dilation: int = 1) -> Sample:
    """A padded convolution of rows with 3 taps, some `step` apart, to 8 channels."""
    count = (size - 1) // step + 1
    source = f"""function (D[N, X, C], K[T, C, O]) -> (R) {{
        R[n, x, o : N, {count}, O] = +(D[n, {step}*x + {dilation}*t - {dilation}, c] * K[t, c, o]); }}"""

    def operands(x: Mapping[str, Array]) -> tuple[Array, Array]:
        padded = np.pad(x["D"].astype(np.float32), ((0, 0), (dilation, dilation), (0, 0)))
        taps = [padded[:, dilation * t : dilation * t + size : step] for t in range(3)]
        return np.stack(taps, axis=2).reshape(batch, count, -1), x["K"].astype(np.float32).reshape(-1, 8)

    return Sample(bound(source, dtype, D=(batch, size, channels), K=(3, channels, 8)), operands)


@pytest.mark.parametrize(("columns", "together"), [(42, 2), (41, 1)])
def test_neighbours_before_an_even_end_are_stored_together(columns: int, together: int) -> None:
    """A lane's two columns are both there, or neither is."""
    sample = matmul("nt", F32, 64, columns, 32)
    function = compile(sample.program, SMALL).kernels.kernels[0].function
    assert function is not None
    stores = [s for s in walk_statements(function.body) if isinstance(s, Store) and s.ptr.type.space is Space.GLOBAL]
    assert {s.value.type.lanes for s in stores} == {together}
    agree(sample, SMALL)


@pytest.mark.parametrize(("dtype", "k"), [(F32, 11), (F32, 20), (BF16, 41), (BF16, 8)], ids=str)
def test_a_depth_that_is_no_multiple_of_the_instruction(dtype: DType, k: int) -> None:
    agree(matmul("nn", dtype, 32, 8, k), SMALL)


@pytest.mark.parametrize("layout", ["tn", "nt", "tt"])
def test_odd_sizes_in_every_layout(layout: str) -> None:
    agree(matmul(layout, BF16, 17, 9, 19), SMALL)


def test_the_gradient_of_a_strided_convolution() -> None:
    """Even and odd places have taps of their own; places before the first are computed, and not stored."""
    source = (
        """function (G[X, O], K[T, C, O]) -> (R) { R[2*x + t - 1, c : 32, C] = +(G[x, o] * K[t, c, o]), x < 16; }"""
    )

    def operands(x: Mapping[str, Array]) -> tuple[Array, Array]:
        spread = np.zeros((34, 8), np.float32)
        spread[1:33:2] = x["G"]
        taps = np.stack([spread[2 - t : 34 - t] for t in range(3)], axis=1)
        return taps.reshape(32, -1), x["K"].transpose(0, 2, 1).reshape(-1, 8)

    sample = Sample(bound(source, F32, G=(16, 8), K=(3, 8, 8)), operands)
    inputs = inputs_of(sample.program)
    stripe = scheduled(sample.program, SMALL)
    left, right = (x.astype(np.float64) for x in sample.operands(inputs))
    got = run_kernels(stripe, SMALL, inputs)
    assert on_matrix(stripe) and np.abs(got - left @ right).max() < 2.0**-8 * (np.abs(left) @ np.abs(right)).max()


FEW = replace(SMALL.resolved(cores=8), machine=replace(SMALL.machine, cores=8))


@pytest.mark.parametrize(("source", "shapes"), [
    ("R[i, j : 32, 32] = +(A[i, k] * B[k, j])", ((32, 133), (133, 32))),
    ("R[t, i, j : 3, 16, 8] = +(A[n, x + t - 1, i] * B[n, x, j])", ((16, 16, 16), (16, 16, 8))),
], ids=["depth", "weights"])  # fmt: skip
def test_groups_share_the_reduction_of_few_results(source: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    """As in gradients of weights: partial results of each, which a second kernel adds up."""
    heads = [", ".join(f"{name}{n}" for n in range(len(s))) for name, s in zip("PQ", shapes, strict=True)]
    program = bound(f"function (A[{heads[0]}], B[{heads[1]}]) -> (R) {{ {source}; }}", F32, A=shapes[0], B=shapes[1])
    plan = next(TensorTile().candidates(view_of(Sample(program, lambda x: (x["A"], x["B"])), FEW), FEW))
    assert any(r.across is Across.GROUPS and r.ways > 1 for r in plan.reductions)
    inputs, stripe = inputs_of(program), scheduled(program, FEW)
    assert on_matrix(stripe)
    a, b = (tf32(inputs[n]) for n in "AB")
    want = a @ b if a.ndim == 2 else np.zeros(())
    if a.ndim > 2:
        padded = np.pad(a, ((0, 0), (1, 1), (0, 0)))
        want = np.stack([np.einsum("nxi,nxj->ij", padded[:, t : t + 16], b) for t in range(3)])
    got = run_kernels(stripe, FEW, inputs)
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_the_last_group_of_a_tile_puts_few_partial_results_together(dtype: DType) -> None:
    """Ragged tiles, and what follows the sum: one kernel, as a second one would only begin when this is done."""
    slow = replace(FEW, machine=replace(FEW.machine, launch=replace(FEW.machine.launch, kernel=4e-6)))
    sample = matmul("nt", dtype, 21, 20, 264, BIAS_RELU)
    found = TensorTile().candidates(view_of(sample, slow), slow)
    plans = print_plans({"kernel_0": next(p for p in found if any(r.across is Across.GROUPS for r in p.reductions))})
    inputs, stripe = inputs_of(sample.program), optimize_given(sample, slow, plans)
    (kernel,) = kernels_of(stripe)
    assert on_matrix(stripe) and isinstance(kernel, Block) and waits_for_all(kernel) is not None
    near(run_kernels(stripe, slow, inputs), sample, inputs, tf32, 1e-5)
    apart = replace(slow, nodes=slow.nodes - {"LastGroup"})
    assert len(kernels_of(optimize_given(sample, apart, plans))) == 2


def shared_twice(sample: Sample, target: Target) -> str:
    """The plan in which groups share two loops of the reduction."""
    found = TensorTile().candidates(view_of(sample, target), target)
    shared = (p for p in found if sum(r.across is Across.GROUPS for r in p.reductions) == 2)
    return print_plans({"kernel_0": next(shared)})


@pytest.mark.parametrize(("taps", "last"), [("", True), ("", False), ("t", True)], ids=["1x1", "two kernels", "taps"])
def test_groups_share_two_loops_where_each_is_short(taps: str, last: bool) -> None:
    """Gradients of weights, channels first: images, and their pixels; by a last group or a second kernel."""
    machine = replace(FEW.machine, cores=32, launch=replace(FEW.machine.launch, kernel=4e-6))
    slow = replace(FEW.resolved(cores=32), machine=machine)
    result, place = ("R[i, j, t : 21, 20, 3]", "x + t - 1") if taps else ("R[i, j : 21, 20]", "x")
    source = f"function (A[N, I, X], B[N, J, X]) -> (R) {{ {result} = +(A[n, i, x] * B[n, j, {place}]); }}"
    program = bound(source, F32, A=(3, 21, 37), B=(3, 20, 37))
    sample, inputs = Sample(program, lambda x: (x["A"], x["B"])), inputs_of(program)
    plans = shared_twice(sample, slow)
    a, b = tf32(inputs["A"]), np.pad(tf32(inputs["B"]), ((0, 0), (0, 0), (1, 1)))
    each = [np.einsum("nix,njx->ij", a, b[..., t : t + 37]) for t in range(3)]
    want = np.stack(each, -1) if taps else each[1]
    target = slow if last else replace(slow, nodes=slow.nodes - {"LastGroup"})
    stripe = optimize_given(sample, target, plans)
    assert on_matrix(stripe) and len(kernels_of(stripe)) == 1 + (not last)
    got = run_kernels(stripe, target, inputs)
    assert np.abs(got - want).max() < 1e-5 * np.abs(want).max()


def test_what_is_behind_the_last_product_does_not_count() -> None:
    """The operands are longer than the sum, and what they hold there is no number."""
    source = "function (A[M, K], B[K, N]) -> (R) { R[i, j : 32, 8] = +(A[i, k] * B[k, j]), k < 11; }"
    sample = Sample(bound(source, F32, A=(32, 16), B=(16, 8)), lambda x: (x["A"][:, :11], x["B"][:11]))
    inputs, stripe = inputs_of(sample.program), scheduled(sample.program, SMALL)
    inputs["A"][:, 11:], inputs["B"][11:] = np.nan, np.inf
    assert on_matrix(stripe) and np.isfinite(run_kernels(stripe, SMALL, inputs)).all()


@pytest.mark.parametrize(
    ("dtype", "size", "step", "channels", "batch", "dilation"),
    [(F32, 16, 1, 8, 1, 1), (F32, 31, 2, 5, 1, 1), (BF16, 17, 1, 16, 1, 2), (BF16, 3, 1, 8, 16, 1)],
    ids=["padded", "strided", "dilated", "batch"],
)
def test_a_padded_convolution(dtype: DType, size: int, step: int, channels: int, batch: int, dilation: int) -> None:
    sample = windows(dtype, size, step, channels, batch, dilation)
    stripe = agree(sample, SMALL)
    assert any(s.where for b in blocks_of(stripe) for s in b.body if isinstance(s, Transfer))
    text = print_program(stripe)
    assert "where=[" in text and print_program(parse_program(text)) == text


def test_rows_follow_a_second_loop_where_the_first_is_short() -> None:
    """Sixteen images of three pixels: the images fill an instruction, and pixels the rest of a tile."""
    sample = windows(BF16, 3, 1, 8, batch=16)
    plan = plan_of(sample, SMALL)
    assert plan is not None and plan.row_loop == "n"
    wide = [p for p in TensorTile().candidates(view_of(sample, SMALL), SMALL) if p.tile("x", 0, 3) > 1]
    assert wide and all(p.tile("n", 0, 16) == 16 for p in wide)


@pytest.mark.parametrize("dtype", [F32, DType.FLOAT16])
def test_rows_follow_no_loop_along_memory_where_copies_end_within_a_piece(dtype: DType) -> None:
    """Seventeen rows, and six neighbours beside each: pieces of four of these would be none in local memory."""
    source = "function (X[A, D], Y[D, C, B]) -> (R) { R[b, a, c : B, A, C] = +(X[a, d] * Y[d, c, b]); }"

    def operands(x: Mapping[str, Array]) -> tuple[Array, Array]:
        return x["X"].astype(np.float32), x["Y"].astype(np.float32).transpose(2, 0, 1)

    agree(Sample(bound(source, dtype, X=(24, 8), Y=(8, 17, 6)), operands), SMALL)


def test_zeros_are_those_of_devices_without_asynchronous_copies() -> None:
    sample = windows(F32, 16, 1, 5)
    inputs = inputs_of(sample.program)
    some, light = (run_kernels(scheduled(sample.program, t), t, inputs) for t in (SMALL, LIGHT))
    assert some.tobytes() == light.tobytes()


def test_windows_that_meet_in_one_subscript_with_the_depth_are_left_alone() -> None:
    """Rows and depth both move along x: no box has the operand."""
    source = "function (D[X], K[T, O]) -> (R) { R[x, o : 40, O] = +(D[x + t] * K[t, o]); }"
    assert not on_matrix(scheduled(bound(source, F32, D=(55,), K=(16, 8)), SMALL))
