"""Sums of what lies beside each other are written part by part: the same bits, without additions of whole tensors."""

from __future__ import annotations

import numpy as np
import pytest
from tile_ir.dtype import DType
from tile_ir.program.nodes import Contraction, Elementwise, Program, TensorType
from tile_ir.stripe.interpret import run
from tile_lang import bind, parse
from tile_lang.evaluate import evaluate
from tile_opt.program import DropDead, OnePlace, PlacedParts, rewrite
from tile_opt.translate import to_stripe

THREE = """function (A[M, N], B[L, N], C[K, N]) -> (O) {
    P[i, j : 12, N] = =(A[i, j]); Q[3 + i, j : 12, N] = =(B[i, j]); R[11 - i, j : 12, N] = =(C[i, j]); O = P + Q + R; }"""
BETWEEN = """function (A[M, N], B[M, N]) -> (O) {
    P[i, j, k : M, 3, N] = =(A[i, k]), j < 1; Q[i, 2 + j, k : M, 3, N] = =(B[i, k]), j < 1; S = Q + P; O = S * 2; }"""
BESIDE = """function (A[M, N], B[M, K]) -> (O) {
    P[i, j : M, N + K] = =(A[i, j]); Q[i, N + j : M, N + K] = =(B[i, j]); O = P + Q; }"""
MEETING = """function (A[M, N], B[L, N]) -> (O) {
    P[i, j : 6, N] = =(A[i, j]); Q[2 + i, j : 6, N] = =(B[i, j]); O = P + Q; }"""
WANTED = """function (A[M, N], B[L, N]) -> (O, P) {
    P[i, j : 12, N] = =(A[i, j]); Q[3 + i, j : 12, N] = =(B[i, j]); O = P + Q; }"""
SHAPES = {"A": (3, 4), "B": (3, 4), "C": (2, 4)}


def bound(text: str, dtype: DType) -> Program:
    return bind(parse(text), {name: TensorType(dtype, SHAPES[name]) for name in given(text)})


def given(text: str) -> list[str]:
    """The inputs that a text has."""
    return [name for name in SHAPES if f"{name}[" in text.partition("->")[0]]


def additions(program: Program) -> int:
    return sum(isinstance(op, Elementwise) and op.fn == "add" for op in program.ops)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT16, DType.INT8, DType.BOOL])
@pytest.mark.parametrize("text", [THREE, BETWEEN])
def test_parts_are_placed_with_the_same_bits(text: str, dtype: DType) -> None:
    """A zero of either sign beside a zero is 0."""
    program = bound(text, dtype)
    after = rewrite(program, (PlacedParts(), DropDead()))
    assert additions(after) == 0
    assert sum(isinstance(op, Contraction) for op in after.ops) == sum(
        isinstance(op, Contraction) for op in program.ops
    )
    values = np.array([0.0, -0.0, np.nan, 1.5] if dtype.is_float else [0, 1, 0, 1])
    inputs = {name: np.resize(values, SHAPES[name]).astype(dtype.numpy) for name in given(text)}
    expected = evaluate(program, inputs)["O"]
    for got in (evaluate(after, inputs)["O"], run(to_stripe(after), inputs)["O"]):
        assert np.array_equal(got, expected, equal_nan=dtype.is_float)
        assert np.array_equal(np.signbit(got[got == 0]), np.signbit(expected[expected == 0]))


@pytest.mark.parametrize("text", [BESIDE, MEETING, WANTED])
def test_other_sums_stay(text: str) -> None:
    """Parts of rows, cells that several parts have, and parts that are wanted themselves."""
    program = bound(text, DType.FLOAT32)
    assert PlacedParts().apply(program) is program


PRODUCTS = """function (A[M, N], B[L, N]) -> (O) {
    P[i, 0, k : M, 2, L] = +(A[i, j] * B[k, j]); Q[i, 1, k : M, 2, L] = +(A[i, j] * A[k, j]); O = P + Q; }"""


def test_where_products_alone_are_placed_copies_stay_a_sum() -> None:
    rewrites = (OnePlace(), PlacedParts(products=True), DropDead())
    assert additions(rewrite(bound(THREE, DType.FLOAT32), rewrites)) == 2
    before = bound(PRODUCTS, DType.FLOAT32)
    after = rewrite(before, rewrites)
    assert additions(after) == 0
    inputs = {n: np.random.default_rng(0).normal(0, 1, SHAPES[n]).astype(np.float32) for n in "AB"}
    assert np.array_equal(evaluate(after, inputs)["O"], evaluate(before, inputs)["O"])
