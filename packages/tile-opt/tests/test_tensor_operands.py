"""Operands that look like matrices and are not quite: where a batch lies closest, diagonals, casts that lose something."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tensor_support import SMALL, TENSOR, Sample, agree, blocks_of, bound, on_matrix, run_kernels, scheduled
from tile_ir.dtype import DType
from tile_ir.stripe.nodes import Direction, Scope
from tile_ir.stripe.nodes import Program as Stripe
from tile_ir.target import PassConfig, Target

DTYPES = (DType.FLOAT32, DType.BFLOAT16, DType.FLOAT16)
BATCH_LAST = "function (A[M, K, P], B[K, N, P]) -> (R) { R[i, j, b : M, N, P] = +(A[i, k, b] * B[k, j, b]); }"
INLINE = PassConfig("inline", options={"max_recompute": 1000.0})
EAGER = replace(TENSOR, passes=tuple(INLINE if p.name == "inline" else p for p in TENSOR.passes))
"""Whatever is computed element by element is computed again where it is used."""


def without(target: Target, name: str) -> Target:
    return replace(target, passes=tuple(p for p in target.passes if p.name != name))


def local_bytes(stripe: Stripe) -> int:
    refs = [r for b in blocks_of(stripe) for r in b.refs if r.dir is Direction.ALLOC and r.loc.scope is Scope.GROUP]
    return sum(r.versions * r.type.nbytes for r in refs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_batch_may_lie_closest_in_memory(dtype: DType) -> None:
    """Rows that a collective load reads are rows of one matrix, and local memory holds no gaps between elements."""
    program = bound(BATCH_LAST, dtype, A=(40, 16, 3), B=(16, 24, 3))

    rng = np.random.default_rng(0)
    inputs = {p.name: rng.integers(-4, 5, p.type.shape).astype(p.type.dtype.numpy) for p in program.inputs}
    stripe = scheduled(program, SMALL)
    assert on_matrix(stripe) and local_bytes(stripe) <= SMALL.settings.static_local_bytes
    want = np.einsum("ikb,kjb->ijb", *(x.astype(np.float64) for x in inputs.values()))
    np.testing.assert_array_equal(run_kernels(stripe, SMALL, inputs).astype(np.float64), want)


DIAGONALS: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "rows": ("A[i, i, k] * B[k, j]", {"A": (40, 40, 16), "B": (16, 24)}),
    "depth": ("A[i, k, k] * B[k, j]", {"A": (40, 16, 16), "B": (16, 24)}),
}


@pytest.mark.parametrize("case", DIAGONALS)
def test_a_diagonal_is_not_staged_with_all_around_it(case: str) -> None:
    product, shapes = DIAGONALS[case]
    source = f"function (A[A0, A1, A2], B[K, N]) -> (R) {{ R[i, j : 40, N] = +({product}); }}"
    assert not on_matrix(scheduled(bound(source, DType.FLOAT32, **shapes), TENSOR))


CASTS: dict[str, tuple[str, DType, float]] = {
    "whole numbers": ("T = as_int(A, 32); U = as_float(T, 32);", DType.FLOAT32, 1.5),
    "a smaller range": ("T = as_float(A, 16); U = as_float(T, 32);", DType.FLOAT32, 1e5),
}
"""What makes U of A: statements, A's dtype, and a value of A that they change."""


@pytest.mark.parametrize("case", CASTS)
def test_casts_that_lose_something_are_no_operands(case: str) -> None:
    statements, dtype, value = CASTS[case]
    source = f"function (A[M, K], B[K, N]) -> (R) {{ {statements} R[i, j : M, N] = +(U[i, k] * B[k, j]); }}"
    inputs: dict[str, Any] = {"A": np.full((32, 16), value, dtype.numpy), "B": np.ones((16, 24), np.float32)}
    stripe = scheduled(bound(source, {"A": dtype, "B": DType.FLOAT32}, A=(32, 16), B=(16, 24)), EAGER)
    want = 16.0 if value == 1.5 else np.inf
    assert not on_matrix(stripe) and (run_kernels(stripe, EAGER, inputs) == want).all()


def test_casts_that_widen_are_part_of_the_instruction() -> None:
    source = """function (A[M, K], B[K, N]) -> (R) {
        T = as_float(A, 32); U = as_float(B, 32); R[i, j : M, N] = +(T[i, k] * U[k, j]);
    }"""
    program = bound(source, DType.BFLOAT16, A=(40, 16), B=(16, 24))
    agree(Sample(program, lambda x: (x["A"].astype(np.float64), x["B"].astype(np.float64))), EAGER)


def test_sums_in_memory_are_left_alone() -> None:
    """Without `accumulate` there is no local sum that could become fragments."""
    source = "function (A[M, K], B[K, N]) -> (R) { R[i, j : M, N] = +(A[i, k] * B[k, j]); }"
    program = bound(source, DType.FLOAT32, A=(40, 16), B=(16, 24))
    assert not on_matrix(scheduled(program, without(without(TENSOR, "accumulate"), "gpu_tile")))
