"""Transposed operands of products with few cells are read where they lie."""

from __future__ import annotations

import numpy as np
import pytest
import tile_lang
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.program.nodes import Contraction, Program, TensorType
from tile_lang.evaluate import evaluate
from tile_opt.program import TallProducts

TEXT = """function (X[K, M], Y[K, N]) -> (C) {
    T[m, k : M, K] = =(X[k, m]);
    C[m, n : M, N] = +(T[m, k] * Y[k, n]);
}"""
STACK = """function (X[B, K, M], Y[B, K, N]) -> (C) {
    T[b, m, k : B, M, K] = =(X[b, k, m]);
    C[b, m, n : B, M, N] = +(T[b, m, k] * Y[b, k, n]);
}"""


def bound(text: str, *shapes: tuple[int, ...]) -> Program:
    types = {name: TensorType(DType.FLOAT32, shape) for name, shape in zip("XY", shapes, strict=True)}
    return tile_lang.bind(tile_lang.parse(Source(text, "text.tile")), types)


def test_the_product_reads_what_was_transposed() -> None:
    program = bound(TEXT, (200, 5), (200, 4))
    made = TallProducts().apply(program)
    product = made.ops[-1]
    assert isinstance(product, Contraction)
    assert [load.tensor for load in product.loads] == ["X", "Y"]
    rng = np.random.default_rng(0)
    inputs = {name: rng.integers(-9, 9, (200, n)).astype(np.float32) for name, n in (("X", 5), ("Y", 4))}
    np.testing.assert_array_equal(evaluate(made, inputs)["C"], inputs["X"].T @ inputs["Y"])


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        (TEXT, ((5000, 5), (5000, 33))),
        (TEXT, ((200, 100), (200, 4))),
        (STACK, ((3, 200, 5), (3, 200, 4))),
    ],
    ids=["used often", "many cells", "a stack"],
)
def test_others_stay(text: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    program = bound(text, *shapes)
    assert TallProducts().apply(program) is program
