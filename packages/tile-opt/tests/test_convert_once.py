"""Narrow numbers that are used again and again are converted once, others where they are used: the same bits in any case."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from program_samples import random_inputs
from test_to_stripe_programs import assert_same
from tile_ir.dtype import DType
from tile_ir.program.nodes import Contraction, Elementwise, Program, TensorType
from tile_lang import bind, parse
from tile_lang.evaluate import evaluate
from tile_opt.program import ConvertOnce
from tile_opt.translate import to_stripe

EAGER = ConvertOnce(uses=1, least=0)
PRODUCT = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m, k] * B[k, n]); }"
SQUARE = (
    "function (A[M, K], B[K, N]) -> (C, D) { C[m, n : M, N] = +(A[m, k] * B[k, n]); D[m : M] = +(A[m, k] * A[m, k]); }"
)
WINDOW = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = +(A[m + i, k] * B[k, n]), i < 3; }"
LARGEST = "function (A[M, K], B[K, N]) -> (C) { C[m, n : M, N] = >(A[m, k] * B[k, n]); }"


GIVEN = """function (A[M, K], B[K, N]) -> (C) {
    P = as_float(A, 32); Q = as_float(B, 32); C[m, n : M, N] = +(P[m, k] * Q[k, n]); }"""
BOTH = """function (A[M, K], B[K, N]) -> (C, P) {
    P = as_float(A, 32); C[m, n : M, N] = +(P[m, k] * A[m, k] * B[k, n]); }"""


def bound(text: str, m: int, k: int, n: int, dtype: DType = DType.FLOAT16, other: DType | None = None) -> Program:
    return bind(parse(text), {"A": TensorType(dtype, (m, k)), "B": TensorType(other or dtype, (k, n))})


def loaded(program: Program) -> list[set[DType]]:
    """What contractions load."""
    types = program.types()
    products = [op for op in program.ops if isinstance(op, Contraction)]
    return [{types[str(load.tensor)].dtype for load in op.loads} for op in products]


def converted(program: Program) -> list[str]:
    """Inputs of which there are copies."""
    return [str(op.args[0]) for op in program.ops if isinstance(op, Elementwise) and op.fn == "cast"]


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
@pytest.mark.parametrize("text", [PRODUCT, WINDOW, SQUARE, LARGEST, GIVEN, BOTH])
@pytest.mark.parametrize("rewrite", [EAGER, ConvertOnce()])
def test_results_keep_their_bits(text: str, dtype: DType, rewrite: ConvertOnce) -> None:
    """Also where a contraction reads one operand twice, and where rounding of each product comes before an aggregation."""
    program = bound(text, 5, 7, 6, dtype)
    after = rewrite.apply(program)
    inputs = {name: x * np.asarray(0.7, x.dtype) for name, x in random_inputs(program).items()}
    for name, array in evaluate(program, inputs).items():
        assert_same(evaluate(after, inputs)[name], array)
    assert to_stripe(after)


def test_each_operand_is_converted_once_for_all_contractions() -> None:
    after = EAGER.apply(bound(SQUARE, 5, 7, 6))
    assert converted(after) == ["A", "B"]
    assert loaded(after) == [{DType.FLOAT32}, {DType.FLOAT32}]


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.INT8])
def test_conversions_of_the_program_move_to_the_few_that_read_them(dtype: DType) -> None:
    """They stay where others read them, too, and where each element is read often."""
    few, many = (ConvertOnce().apply(bound(GIVEN, m, 64, 64, dtype)) for m in (4, 64))
    assert (converted(few), loaded(few)) == (["A"], [{dtype, DType.FLOAT32}])
    assert (converted(many), loaded(many)) == (["A", "B"], [{DType.FLOAT32}])
    both = ConvertOnce().apply(bound(BOTH, 64, 64, 4, dtype))
    assert (converted(both)[:1], loaded(both)) == (["A"], [{dtype, DType.FLOAT32}])


def test_what_is_converted_before_a_run_stays() -> None:
    program = bound(GIVEN, 4, 64, 20)
    a, b = program.inputs
    after = ConvertOnce().apply(replace(program, inputs=(a, replace(b, bound=True))))
    assert (converted(after), loaded(after)) == (["B"], [{DType.FLOAT16, DType.FLOAT32}])


def test_only_narrow_floats_are_copied() -> None:
    assert EAGER.apply(program := bound(PRODUCT, 5, 7, 6, DType.FLOAT32)) is program
    assert EAGER.apply(program := bound(PRODUCT, 5, 7, 6, DType.INT8)) is program
    assert converted(EAGER.apply(bound(PRODUCT, 5, 7, 6, DType.FLOAT16, DType.FLOAT32))) == ["A"]


@pytest.mark.parametrize(("m", "n", "copied"), [(31, 4096, ["A"]), (4096, 31, ["B"]), (32, 32, ["A", "B"])])
def test_few_rows_or_columns_read_the_matrix_as_it_is(m: int, n: int, copied: list[str]) -> None:
    assert converted(ConvertOnce().apply(bound(PRODUCT, m, 64, n))) == copied


def test_small_products_stay_one_kernel() -> None:
    assert ConvertOnce().apply(program := bound(PRODUCT, 32, 8, 32)) is program
