"""Reshapes behind the elementwise tail of a product go in front of it, and are then part of the product."""

from __future__ import annotations

import numpy as np
import pytest
import tile_lang
from tile_ir.dtype import DType
from tile_ir.program.nodes import Elementwise, Program, Reshape, TensorType
from tile_lang.evaluate import evaluate
from tile_opt.program import CLEAN, LiftReshapes, rewrite

SHAPES = {"X": (3, 4, 5), "W": (5, 6), "V": (6,), "F": (12, 6), "C": (12, 1)}
LAYER = "A = reshape(X, 12, 5); P[m, n : 12, 6] = +(A[m, k] * W[k, n]);"


def bound(body: str, outputs: str = "R") -> Program:
    types = {n: TensorType(DType.FLOAT32, shape) for n, shape in SHAPES.items()}
    return tile_lang.bind(tile_lang.parse(f"function (X, W, V, F, C) -> ({outputs}) {{ {LAYER} {body} }}"), types)


def same(program: Program, *rewrites: object) -> Program:
    """The program after the rewrites, which has the same results."""
    random = np.random.default_rng(0)
    inputs = {n: random.normal(0, 1, s).astype(np.float32) for n, s in SHAPES.items()}
    after = rewrite(program, rewrites)  # type: ignore[arg-type]
    want, got = evaluate(program, inputs), evaluate(after, inputs)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, 1e-5, 1e-5)
    return after


TAILS = {
    "a bias": "T = P + V; R = reshape(T, 3, 4, 6);",
    "several operations": "T = P + V; U = T * 2; Z = exp(U); R = reshape(Z, 3, 4, 6);",
    "more digits": "T = P + V; R = reshape(T, 3, 2, 2, 6);",
}


@pytest.mark.parametrize("tail", TAILS)
def test_the_tail_has_the_shape_of_the_reshape(tail: str) -> None:
    after = same(bound(TAILS[tail]), LiftReshapes())
    (last,) = (op for op in after.ops if getattr(op, "name", "") == "R")
    assert isinstance(last, Elementwise)
    assert [op.arg for op in after.ops if isinstance(op, Reshape)] == ["X", "P"]


@pytest.mark.parametrize("tail", ["a bias", "several operations"])
def test_nothing_between_rows_and_layers_is_copied(tail: str) -> None:
    after = same(bound(TAILS[tail]), *CLEAN)
    assert not any(isinstance(op, Reshape) for op in after.ops)


LEFT = {
    "somebody wants the tail": ("T = P + V; R = reshape(T, 3, 4, 6); S = T * 2;", "R, S"),
    "somebody wants the product": ("T = P + V; R = reshape(T, 3, 4, 6); S = P * 2;", "R, S"),
    "another operand of all rows": ("T = P + F; R = reshape(T, 3, 4, 6);", "R"),
    "an operand of each row": ("T = P + C; R = reshape(T, 3, 4, 6);", "R"),
    "columns are split": ("T = P + V; R = reshape(T, 12, 2, 3);", "R"),
    "the product is a square": ("T = P * P; R = reshape(T, 3, 4, 6);", "R"),
    "no product": ("T = F + V; R = reshape(T, 3, 4, 6);", "R"),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_is_left_as_it_is(case: str) -> None:
    body, outputs = LEFT[case]
    program = bound(body, outputs)
    assert same(program, LiftReshapes()) is program


def test_rows_of_an_operand_that_no_reshape_made_stay_one_loop() -> None:
    body = "P2[m, n : 12, 6] = +(F[m, k] * F[n, k]), n < 6; R = reshape(P2, 3, 4, 6);"
    after = same(bound(body), *CLEAN)
    assert [op.arg for op in after.ops if isinstance(op, Reshape)] == ["P2"]
