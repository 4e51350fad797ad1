"""Products of factors of two widths, as matrix instructions take them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tile_ir.dtype import DType
from tile_ir.program.nodes import Elementwise, Program, TensorType
from tile_lang import bind, parse
from tile_lang.evaluate import evaluate
from tile_opt.program import AlikeFactors

PRODUCT = "C[m, n : M, N] = +(A[m, k] * B[k, n]);"
SHAPES = {"A": (8, 7), "B": (7, 40)}


def program(a: DType, b: DType, text: str = PRODUCT) -> Program:
    types = {n: TensorType(dtype, SHAPES[n]) for n, dtype in (("A", a), ("B", b))}
    return bind(parse(f"function (A[M, K], B[K, N]) -> (C) {{ {text} }}"), types)


@pytest.mark.parametrize("wider", ["A", "B"])
def test_the_wider_factor_is_rounded_once(wider: str) -> None:
    dtypes = [DType.FLOAT32 if n == wider else DType.BFLOAT16 for n in "AB"]
    before = program(dtypes[0], dtypes[1])
    after = AlikeFactors(uses=8).apply(before)
    (short,) = (op for op in after.ops if isinstance(op, Elementwise))
    assert short.args == (wider,) and short.type.dtype is DType.BFLOAT16
    random = np.random.default_rng(0)
    given = {n: random.normal(0, 1, SHAPES[n]).astype(d.numpy) for n, d in zip("AB", dtypes, strict=True)}
    rounded = given | {wider: given[wider].astype(ml_dtypes.bfloat16).astype(np.float32)}
    np.testing.assert_array_equal(evaluate(after, given)["C"], evaluate(before, rounded)["C"])


@pytest.mark.parametrize(
    ("a", "b", "uses"),
    [
        (DType.FLOAT32, DType.FLOAT32, 8),
        (DType.FLOAT32, DType.FLOAT16, 8),
        (DType.FLOAT32, DType.BFLOAT16, 41),
        (DType.FLOAT32, DType.BFLOAT16, 0),
    ],
    ids=["alike", "beside a shorter range", "used seldom", "not allowed"],
)
def test_others_stay(a: DType, b: DType, uses: int) -> None:
    before = program(a, b)
    assert AlikeFactors(uses=uses).apply(before) is before


@pytest.mark.parametrize("text", ["C[m, n : M, N] = >(A[m, k] * B[k, n]);", "C[m, n : M, N] = +(A[m, k] + B[k, n]);"])
def test_what_is_no_sum_of_products_stays(text: str) -> None:
    before = program(DType.FLOAT32, DType.BFLOAT16, text)
    assert AlikeFactors(uses=1).apply(before) is before
