"""Products on matrix instructions of which constraints over several loops leave something out: triangles, and bands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tensor_support import (
    SMALL,
    Sample,
    blocks_of,
    bound,
    inputs_of,
    instructions,
    on_matrix,
    run_kernels,
    scheduled,
    tf32,
    view_of,
)
from test_tensor_boxes import BOXES
from test_tensor_teams import TEAMS
from tile_ir.dtype import DType
from tile_ir.matrix import MATRIX_INSTRUCTIONS
from tile_ir.program.nodes import Program
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block
from tile_ir.stripe.nodes import Program as Stripe
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import Options, Target
from tile_opt.kernel.instructions import matches
from tile_opt.passes.base import kernels_of
from tile_opt.passes.kernels.tensor_tile import TensorTile
from tile_opt.pipeline import schedule
from tile_opt.plan.plan import Across
from tile_opt.plan.space.tensor.counted import left
from tile_opt.proof import Verdict, prove
from tile_opt.translate import to_stripe

Array = np.ndarray[Any, Any]
Kept = Callable[[Array, Array, Array], Array]
F64, F32, BF16 = DType.FLOAT64, DType.FLOAT32, DType.BFLOAT16
CUTS: dict[str, tuple[str, Kept]] = {
    "lower": ("i - k < 2000", lambda i, j, k: (k <= i) & (j >= 0)),
    "upper": ("k - i < 2000", lambda i, j, k: (k >= i) & (j >= 0)),
    "band": ("k - i + 8 < 17", lambda i, j, k: (abs(k - i) <= 8) & (j >= 0)),
    "columns": ("j - k < 2000", lambda i, j, k: (k <= j) & (i >= 0)),
    "results": ("i - j < 2000", lambda i, j, k: (j <= i) & (k >= 0)),
    "both factors": ("i - k < 2000, k - j + 4 < 2000", lambda i, j, k: (k <= i) & (j <= k + 4)),
}


def product(cut: str, dtype: DType, m: int, n: int, k: int, turned: bool = False) -> Program:
    head, right = ("B[N, K]", "B[j, k]") if turned else ("B[K, N]", "B[k, j]")
    source = f"function (A[M, K], {head}) -> (R) {{ R[i, j : M, N] = +(A[i, k] * {right}), {CUTS[cut][0]}; }}"
    return bound(source, dtype, A=(m, k), B=(n, k) if turned else (k, n))


def agree(cut: str, target: Target, dtype: DType, m: int, n: int, k: int, turned: bool = False) -> Stripe:
    """The scheduled program, which adds up what the constraints leave by matrix instructions."""
    program = product(cut, dtype, m, n, k, turned)
    stripe = scheduled(program, target)
    assert on_matrix(stripe)
    compare(cut, stripe, target, dtype, (m, n, k), program, turned)
    return stripe


def compare(
    cut: str,
    stripe: Stripe,
    target: Target,
    dtype: DType,
    sizes: tuple[int, int, int],
    program: Program,
    turned: bool = False,
) -> None:
    inputs, (m, n, k) = inputs_of(program), sizes
    a, b = (x.astype(np.float64) if dtype is F64 else tf32(x) for x in inputs.values())
    kept = CUTS[cut][1](*np.ogrid[:m, :n, :k])
    want = np.einsum("ik,kj,ijk->ij", a, b.T if turned else b, kept.astype(float))
    error = {F64: 1e-13, F32: 1e-5, BF16: 2.0**-8}[dtype]
    np.testing.assert_allclose(
        run_kernels(stripe, target, inputs).astype(np.float64), want, rtol=error, atol=30 * error
    )


@pytest.mark.parametrize("cut", CUTS)
def test_single_sub_groups(cut: str) -> None:
    assert "mma_m16n8k16_bf16" in instructions(agree(cut, SMALL, BF16, 40, 40, 70))


@pytest.mark.parametrize("name", ["mma_m16n8k8_tf32", "mma_m16n8k8_f64"])
def test_other_dtypes(name: str) -> None:
    agree("lower", replace(SMALL, matrix=(name,)), MATRIX_INSTRUCTIONS[name].a.dtype, 40, 24, 40)


@pytest.mark.parametrize("cut", ["lower", "columns"])
def test_teams(cut: str) -> None:
    assert any(name.startswith("wgmma") for name in instructions(agree(cut, TEAMS, BF16, 72, 40, 136)))


def test_factors_that_tensor_copies_bring() -> None:
    assert "tensor_copy" in instructions(agree("upper", BOXES, F32, 72, 40, 96, turned=True))


def test_steps_of_which_nothing_counts_are_not_gone_through() -> None:
    """The loop over steps ends with the group's last row; groups with the most rows come first."""
    (kernel,) = kernels_of(scheduled(product("lower", BF16, 256, 32, 256), SMALL))
    assert isinstance(kernel, Block)
    steps = next(b for b in blocks_in(kernel) if b.name.endswith("_steps"))
    (index,) = (i for i in steps.indexes if i.range > 1)
    (wanted,) = steps.constraints
    assert isinstance(wanted, Affine) and wanted.coefficient(index.name) < 0
    assert [c < 0 for n, c in wanted.terms if n != index.name] == [True]


@pytest.mark.parametrize(
    ("cut", "idle", "least", "most"),
    [("lower", 0.0, 0.5, 0.6), ("lower", 1.0, 1.0, 1.0), ("upper", 0.5, 0.75, 0.8), ("band", 1.0, 0.1, 0.3), ("results", 0.0, 0.5, 0.6)],
)  # fmt: skip
def test_the_share_of_steps_that_is_left(cut: str, idle: float, least: float, most: float) -> None:
    view = view_of(Sample(product(cut, BF16, 1024, 1024, 1024), lambda x: (x["A"], x["B"])), SMALL)
    match = matches(view, MATRIX_INSTRUCTIONS["mma_m16n8k16_bf16"])[0]
    found = left(match, view.ranges, dict.fromkeys(view.ranges, 64), idle)
    assert least <= found <= most


def test_a_matrix_is_left_to_items_where_rows_columns_and_depth_are_in_one_constraint() -> None:
    source = "function (A[M, K], B[K, N]) -> (R) { R[i, j : M, N] = +(A[i, k] * B[k, j]), i + j - k < 2000; }"
    assert not on_matrix(scheduled(bound(source, BF16, A=(40, 40), B=(40, 40)), SMALL))


@pytest.mark.parametrize("cut", ["lower", "columns", "results"])
def test_groups_that_share_the_depth(cut: str) -> None:
    """A share of which nothing counts for a group's rows has no step; each has zeros where the diagonal runs through it."""
    target = SMALL.resolved(cores=8)
    sample = Sample(product(cut, F32, 32, 32, 160), lambda x: (x["A"], x["B"]))
    plans = TensorTile().candidates(view_of(sample, target), target)
    shared = next(p for p in plans if any(r.across is Across.GROUPS for r in p.reductions))
    stripe = schedule(to_stripe(sample.program), target, verify=True, plans={"kernel_0": shared}).program
    assert any(b.name.endswith("_shares") for b in blocks_of(stripe))
    compare(cut, stripe, target, F32, (32, 32, 160), sample.program)


@pytest.mark.parametrize("cut", ["lower", "results"])
def test_zeros_stand_for_what_is_left_out_of_float64_where_the_user_allows_it(cut: str) -> None:
    """An infinite factor would make them NaN; results are left out by themselves."""
    program, exact = product(cut, F64, 32, 32, 32), replace(SMALL, matrix=("mma_m16n8k8_f64",), options=Options())
    assert on_matrix(scheduled(program, exact)) is (cut == "results")
    assert on_matrix(scheduled(program, replace(exact, options=Options(reduced_precision=True))))


def test_padding_of_float64_is_no_zero() -> None:
    source = "function (D[X, C], K[T, C, O]) -> (R) { R[x, o : 64, O] = +(D[x + t - 1, c] * K[t, c, o]); }"
    program = bound(source, F64, D=(64, 32), K=(3, 32, 32))
    assert not on_matrix(scheduled(program, replace(SMALL, options=Options())))


@pytest.mark.parametrize("cut", ["lower", "upper", "results"])
def test_proved(cut: str) -> None:
    """Zeros in local memory count as none in products; other zeros would be contributions that nobody asked for."""
    program = product(cut, BF16, 64, 32, 96)
    report = prove(to_stripe(program), scheduled(program, SMALL))
    assert not report.of(Verdict.REFUTED) and not report.of(Verdict.OPEN)
