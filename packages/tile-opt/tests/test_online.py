"""Pairs of statistics taken chunk by chunk: recognised by what they compute, with the results that two readings have."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.dtype import DType
from tile_ir.program.nodes import Contraction, Poly, Program, TensorType
from tile_ir.stripe.interpret import run
from tile_lang import bind, parse
from tile_lang.evaluate import evaluate
from tile_opt.program import Online, ShareCommon, SplitReduction, rewrite
from tile_opt.translate import to_stripe

Array = npt.NDArray[Any]
ROWS = "T[i, z : M, 1] = {agg}({x}[i, j]), z < 1;", "S[i, z : M, 1] = +({x}[i, j]), z < 1;"
COLUMNS = "T[z, j : 1, N] = {agg}({x}[i, j]), z < 1;", "S[z, j : 1, N] = +({x}[i, j]), z < 1;"
BODIES = {
    "softmax": (">", "E = exp(X - T);", "Y = E / S;"),
    "log-sum-exp": (">", "E = exp(X - T);", "Y = log(S) + T;"),
    "layer norm": ("+", "D = X - T / 7.0; E = D * D;", "Y = D / sqrt(S + 0.5);"),
    "about twice the mean": ("+", "D = X - T / 5.0; E = pow(D, 2.0);", "Y = S;"),
}
TINY = Online(units=2, kept=4, chunk=4)


def source(name: str, lines: tuple[str, str]) -> str:
    agg, element, result = BODIES[name]
    first, second = lines[0].format(agg=agg, x="X"), lines[1].format(x="E")
    return f"function (X[M, N]) -> (Y) {{ {first} {element} {second} {result} }}"


def bound(text: str, *shape: int, dtype: DType = DType.FLOAT32) -> Program:
    return bind(parse(text), {"X": TensorType(dtype, shape)})


def partials(program: Program) -> list[str]:
    return [op.name for op in program.ops if isinstance(op, Contraction) and "_partial" in op.name]


def agree(text: str, x: Array, dtype: DType = DType.FLOAT32, rounding: float = 1e-5, options: Online = TINY) -> Program:
    """The rewritten program, which has the results of the given one."""
    program = bound(text, *x.shape, dtype=dtype)
    after = rewrite(program, (ShareCommon(), options))
    with np.errstate(all="ignore"):
        want, found = evaluate(program, {"X": x}), evaluate(after, {"X": x})
        stripe = run(to_stripe(rewrite(after, (SplitReduction(units=2),))), {"X": x})
    for got in (found["Y"], stripe["Y"]):
        np.testing.assert_allclose(got.astype(float), want["Y"].astype(float), rounding, rounding, equal_nan=True)
    return after


@pytest.mark.parametrize("lines", [ROWS, COLUMNS], ids=["rows", "columns"])
@pytest.mark.parametrize("name", BODIES)
@given(st.integers(1, 5), st.integers(1, 23), st.integers(0, 99))
@settings(max_examples=6)
def test_results_are_those_of_two_readings(name: str, lines: tuple[str, str], m: int, n: int, seed: int) -> None:
    shape = (m, n) if lines is ROWS else (n, m)
    agree(source(name, lines), np.random.default_rng(seed).normal(3, 2, shape).astype(np.float32))


@pytest.mark.parametrize("lines", [ROWS, COLUMNS], ids=["rows", "columns"])
@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("length", [48, 61])
def test_many_chunks_are_put_together_in_two_steps(name: str, lines: tuple[str, str], length: int) -> None:
    """The last run of chunks, and its last chunk, may be shorter than the others."""
    x = np.random.default_rng(7).normal(3, 2, (3, length)).astype(np.float32)
    after = agree(
        source(name, lines), x if lines is ROWS else x.T, options=Online(units=2, kept=4, chunk=2, gathered=6)
    )
    assert partials(after) == ["T_partial", "S_partial", "T_partial_1", "S_partial_1"]


@pytest.mark.parametrize("lines", [ROWS, COLUMNS], ids=["rows", "columns"])
@pytest.mark.parametrize("name", BODIES)
def test_long_rows_are_taken_chunk_by_chunk(name: str, lines: tuple[str, str]) -> None:
    x = np.random.default_rng(1).normal(0, 1, (37, 37)).astype(np.float32)
    assert partials(agree(source(name, lines), x)) == ["T_partial", "S_partial"]


@pytest.mark.parametrize("length", [65, 96, 100, 101, 127, 128, 640, 1003])
def test_chunks_hold_no_more_than_a_group_keeps(length: int) -> None:
    program = Online(units=2, kept=64, chunk=32).apply(bound(source("softmax", ROWS), 3, length))
    part = next(op for op in program.ops if op.name == "T_partial")
    assert isinstance(part, Contraction)
    sizes = [c.size for c in part.constraints if c.formula == Poly.of({"j": 1})]
    assert sizes and max(sizes) <= 32
    assert part.type.shape[0] <= 2 * -(-length // 32)


def test_chunks_of_several_indexes_are_about_as_many_as_wanted() -> None:
    """A third index is not cut for a few more."""
    text = """function (X[A, B, C, N]) -> (Y) {
        T[p, q, r, n : 1, 1, 1, N] = +(X[a, b, c, n]), p < 1, q < 1, r < 1; D = X - T / 215822.0; E = D * D;
        S[p, q, r, n : 1, 1, 1, N] = +(E[a, b, c, n]), p < 1, q < 1, r < 1; Y = D / sqrt(S + 0.5); }"""
    program = Online(units=132).apply(bound(text, 62, 59, 59, 256))
    (part,) = (op for op in program.ops if isinstance(op, Contraction) and op.name == "T_partial")
    assert part.type.shape[:2] == (62, 12) and part.type.size == 62 * 12 * 256


def test_rows_that_groups_keep_are_left_alone() -> None:
    for lines, shape in ((ROWS, (64, 56 << 10)), (COLUMNS, (5000, 64)), (COLUMNS, (2500, 65))):
        program = bound(source("softmax", lines), *shape)
        assert Online(units=132).apply(program) is program
    assert Online().apply(bound(source("softmax", ROWS), 64, 1 << 20)) == bound(source("softmax", ROWS), 64, 1 << 20)
    for lines, shape in ((ROWS, (64, (56 << 10) + 1)), (COLUMNS, (5100, 64)), (COLUMNS, (2550, 65))):
        assert partials(Online(units=132).apply(bound(source("softmax", lines), *shape)))


def test_columns_of_which_only_aggregates_are_wanted_are_cut_earlier() -> None:
    """A group keeps the elements of a softmax for what it stores; of a log-sum-exp nothing but two numbers of each column."""
    for name, columns, cut in (
        ("log-sum-exp", (3000, 64), True),
        ("softmax", (3000, 64), False),
        ("log-sum-exp", (1000, 64), False),
    ):
        program = bound(source(name, COLUMNS), *columns)
        assert bool(partials(Online(units=132).apply(program))) is cut
    assert not partials(Online(units=132).apply(bound(source("log-sum-exp", ROWS), 64, 30000)))


@pytest.mark.parametrize("special", [-np.inf, np.inf, np.nan], ids=str)
@pytest.mark.parametrize("places", [(3,), (0, 1, 2, 3, 4, 5, 6, 7), tuple(range(40))], ids=["one", "a chunk", "all"])
def test_elements_that_are_not_numbers(special: float, places: tuple[int, ...]) -> None:
    """A chunk whose elements are all -inf adds nothing; a masked row of attention has such chunks."""
    x = np.random.default_rng(2).normal(0, 1, (2, 40)).astype(np.float32)
    x[0, list(places)] = special
    agree(source("softmax", ROWS), x)


def test_large_numbers_keep_their_differences() -> None:
    x = np.random.default_rng(3).normal(1000, 1, (3, 40)).astype(np.float32)
    agree(source("layer norm", ROWS), x, rounding=1e-4)
    agree(source("softmax", ROWS), x - 3000)


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64], ids=str)
@pytest.mark.parametrize("name", ["softmax", "layer norm"])
def test_other_dtypes(name: str, dtype: DType) -> None:
    x = np.random.default_rng(4).normal(0, 1, (3, 40)).astype(np.float32).astype(dtype.numpy)
    rounding = {DType.FLOAT16: 4e-3, DType.BFLOAT16: 3e-2, DType.FLOAT64: 1e-12}[dtype]
    assert partials(agree(source(name, ROWS), x, dtype, rounding))


def test_any_axes_and_any_elementwise_front() -> None:
    text = """function (X[A, B, C]) -> (Y) {
        P = 2.0 * X + 1.0;
        T[z, b, y : 1, B, 1] = >(P[a, b, c]), z < 1, y < 1;
        E = exp(P - T);
        S[z, b, y : 1, B, 1] = +(E[a, b, c]), z < 1, y < 1;
        Y = E / S; }"""
    x = np.random.default_rng(5).normal(0, 1, (6, 3, 7)).astype(np.float32)
    assert partials(agree(text, x))


def test_builtin_softmax_is_one_of_them() -> None:
    text = "function (X[M, N]) -> (Y) { Y = builtin_softmax(X, M, N); }"
    x = np.random.default_rng(6).normal(0, 1, (3, 40)).astype(np.float32)
    assert partials(agree(text, x))


@pytest.mark.parametrize(
    "text",
    [
        "T[i, z : M, 1] = >(X[i, j]), z < 1; E = exp(T - X); S[i, z : M, 1] = +(E[i, j]), z < 1; Y = S;",
        "T[i, z : M, 1] = <(X[i, j]), z < 1; E = exp(X - T); S[i, z : M, 1] = +(E[i, j]), z < 1; Y = S;",
        "P = X * X; T[i, z : M, 1] = >(P[i, j]), z < 1; E = exp(X - T); S[i, z : M, 1] = +(E[i, j]), z < 1; Y = S;",
        "T[i, z : M, 1] = >(X[i, j]), z < 1; E = exp(X - T); S[i, z : M, 1] = >(E[i, j]), z < 1; Y = S;",
        "T[z, j : 1, N] = >(X[i, j]), z < 1; E = exp(X - T); S[i, z : M, 1] = +(E[i, j]), z < 1; Y = S;",
        "T[i, z : M, 1] = >(X[i, j]), z < 1, j < 5; E = exp(X - T); S[i, z : M, 1] = +(E[i, j]), z < 1; Y = S;",
        "P = as_float(as_int(X, 32), 32); T[i, z : M, 1] = +(P[i, j]), z < 1; D = X - T; E = D * D; S[i, z : M, 1] = +(E[i, j]), z < 1; Y = S;",
    ],
    ids=["turned around", "the least", "of something else", "not a sum", "of columns", "of a part", "of whole numbers"],
)
def test_what_only_looks_like_a_pair(text: str) -> None:
    assert not partials(TINY.apply(bound(f"function (X[M, N]) -> (Y) {{ {text} }}", 12, 40)))


def test_a_sum_that_others_depend_on_is_of_one_pair() -> None:
    """Squares about the mean of exponentials, whose sum is below a maximum."""
    text = """function (X[M, N]) -> (Y) {
        T[i, z : M, 1] = >(X[i, j]), z < 1; E = exp(X - T); S[i, z : M, 1] = +(E[i, j]), z < 1;
        D = E - S / 40.0; Q = D * D; V[i, z : M, 1] = +(Q[i, j]), z < 1; Y = V + S; }"""
    x = np.random.default_rng(7).normal(0, 1, (3, 40)).astype(np.float32)
    assert partials(agree(text, x)) == ["T_partial", "S_partial"]
