"""Which products tensor instructions compute, and which are left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tensor_support import (
    DTYPES,
    SMALL,
    bound,
    inputs_of,
    matmul,
    near,
    on_matrix,
    run_kernels,
    scheduled,
    tf32,
    with_local,
)
from tile_ir.dtype import DType
from tile_ir.machine import Machine, Occupancy
from tile_ir.target import Options
from tile_opt.passes.base import kernels_of

F32, BF16 = DTYPES
PRODUCT = "function (A[M, K], B[K, N]) -> (R) { R[i, j : M, N] = %s(A[i, k] %s B[k, j]); }"
DIAGONAL = "function (A[M, K], B[K, N]) -> (R) { R[i, j : 32, 32] = +(A[i + j, k] * B[k, j]); }"
VECTOR = "function (A[M, K], B[K]) -> (R) { R[i : M] = +(A[i, k] * B[k]); }"
SQUARE = (32, 32)
KERNELS: dict[str, tuple[str, Any, tuple[int, ...], tuple[int, ...]]] = {
    "integers": (PRODUCT % ("+", "*"), DType.INT32, SQUARE, SQUARE),
    "two dtypes": (PRODUCT % ("+", "*"), {"A": F32, "B": BF16}, SQUARE, SQUARE),
    "largest products": (PRODUCT % (">", "*"), F32, SQUARE, SQUARE),
    "sums of sums": (PRODUCT % ("+", "+"), F32, SQUARE, SQUARE),
    "a subscript of two loops": (DIAGONAL, F32, (63, 32), SQUARE),
    "a vector": (VECTOR, F32, SQUARE, (32,)),
    "both sides shorter than an instruction's rows": (PRODUCT % ("+", "*"), F32, (15, 32), (32, 15)),
    "a side shorter than an instruction's columns": (PRODUCT % ("+", "*"), F32, SQUARE, (32, 7)),
}


@pytest.mark.parametrize("case", KERNELS)
def test_what_no_instruction_computes_is_left_alone(case: str) -> None:
    source, dtype, a, b = KERNELS[case]
    program = bound(source, dtype, A=a, B=b)
    without = replace(SMALL, passes=tuple(p for p in SMALL.passes if p.name != "tensor_tile"))
    assert scheduled(program, SMALL) == scheduled(program, without)


@pytest.mark.parametrize("dtype", [F32, BF16, DType.FLOAT16])
def test_products_of_short_floats_may_be_allowed_alone(dtype: DType) -> None:
    target = replace(SMALL, options=Options(short_products=True))
    assert on_matrix(scheduled(matmul("nn", dtype, 64, 64, 64).program, target)) is (dtype is not F32)


TARGETS = {
    "precision is not to be reduced": replace(SMALL, options=Options()),
    "no instructions are listed": replace(SMALL, matrix=()),
    "another instruction is listed": replace(SMALL, matrix=("mma_m16n8k16_bf16",)),
    "sub-groups of 64 lanes": replace(SMALL, machine=Machine(occupancy=Occupancy(subgroup=64))),
    "no sub-groups": replace(SMALL, machine=Machine()),
    "groups of 64": replace(SMALL, settings=replace(SMALL.settings, threads=64)),
    "little local memory": with_local(SMALL, 4096),
}


@pytest.mark.parametrize("case", TARGETS)
def test_targets_that_leave_products_alone(case: str) -> None:
    program = matmul("nn", F32, 64, 64, 64).program
    assert on_matrix(scheduled(program, SMALL))
    target = TARGETS[case]
    without = replace(target, passes=tuple(p for p in target.passes if p.name != "tensor_tile"))
    assert scheduled(program, target) == scheduled(program, without)


def test_the_second_product_of_a_chain_is_a_kernel_of_its_own() -> None:
    source = """function (A[M, K], B[K, N], C[N, L]) -> (R) {
        P[i, j : M, N] = +(A[i, k] * B[k, j]); R[i, l : M, L] = +(P[i, j] * C[j, l]); }"""
    program = bound(source, F32, A=(32, 16), B=(16, 24), C=(24, 32))
    stripe = scheduled(program, SMALL)
    assert len(kernels_of(stripe)) == 2
    inputs = inputs_of(program)
    got = run_kernels(stripe, SMALL, inputs)
    a, b, c = (tf32(inputs[n]) for n in "ABC")
    # The product in between is rounded, too: a step of TF32 of its size.
    np.testing.assert_allclose(got, a @ b @ c, rtol=0, atol=2.0**-11 * (np.abs(a @ b) @ np.abs(c)).max())


def test_operands_are_rounded_to_the_nearest() -> None:
    """What would be a sum of lost halves were they cut off."""
    sample = matmul("nn", F32, 32, 32, 32)
    inputs = {n: np.full((32, 32), 1 + 2.0**-10 + 2.0**-11, np.float32) for n in "AB"}
    got = run_kernels(scheduled(sample.program, SMALL), SMALL, inputs)
    assert np.all(got == 32 * (1 + 2.0**-9) ** 2)
    near(got, sample, inputs, tf32, 0)
