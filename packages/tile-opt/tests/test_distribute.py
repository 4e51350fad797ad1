"""The gradient of attention's queries in one reading of their rows: what a row adds to each element it adds to the sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from lowering_support import execute
from tensor_support import TENSOR
from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.program.nodes import Contraction, Program, TensorType
from tile_ir.stripe.interpret import run
from tile_ir.target import PassConfig
from tile_lang import bind, parse
from tile_lang.evaluate import evaluate
from tile_opt.blocks.tree import kernels_of
from tile_opt.lower_kernels import lower_kernels
from tile_opt.pipeline import schedule
from tile_opt.plan.space.tensor import rows_in_steps as tensor_space
from tile_opt.program import (
    Distribute,
    DropDead,
    ExchangeSums,
    HeadsApart,
    NormaliseLast,
    OnePlace,
    PlacedParts,
    ShareCommon,
    SingleTerms,
    WideRows,
    rewrite,
)
from tile_opt.translate import to_stripe

Array = npt.NDArray[Any]
SCORES = "P[h, s, t : H, S, T] = +(Q[h, s, d] * K[t, d]);"
STATISTICS = """M[h, s, z : H, S, 1] = >(X[h, s, t]), z < 1; E = exp(X - M); Z[h, s, z : H, S, 1] = +(E[h, s, t]), z < 1;
    Y = E / Z; G[h, s, t : H, S, T] = +(C[h, s, d] * V[t, d]);"""
ROWS = "N = -(G / Z * Y); R[h, s, z : H, S, 1] = +(N[h, s, t]), z < 1; RB[h, s, t : H, S, T] = +(R[h, s, z]), z < 1;"
SUMS = """DQ[h, s, d : H, S, D] = +(W[h, s, t] * K[t, d]); DK[t, d : T, D] = +(W[h, s, t] * Q[h, s, d]);
    DV[t, d : T, D] = +(Y[h, s, t] * C[h, s, d]);"""
PLAIN = ("X = P * 0.3;", "W = (G / Z + RB) * E * 0.3;")
FORMS = {
    "scaled": PLAIN,
    "biased": ("X = P + B;", "W = (G / Z + RB) * E;"),
    "capped": ("U = tanh(P / 3.0); X = U * 3.0;", "W = (G / Z + RB) * E * 3.0 * (1.0 - U * U) / 3.0;"),
    "masked": ("L = B > 0.5; X = L ? P : -inf;", "W = L ? (RB + G / Z) * E : 0.0;"),
    "causal": ("L = index(P, 2) > index(P, 1); X = L ? -inf : P;", "W = L ? 0.0 : (G / Z + RB) * E;"),
    "capped and causal": (
        "L = index(P, 2) > index(P, 1); U = tanh(P / 3.0); X = L ? -inf : U * 3.0;",
        "W0 = L ? 0.0 : (G / Z + RB) * E; W = W0 * 3.0 * (1.0 - U * U) / 3.0;",
    ),
    "subtracted": ("X = P;", "W = E * (G / Z - RB);"),
}
REWRITES = (
    ShareCommon(), SingleTerms(), Distribute(kept=4, deep=16), ExchangeSums(kept=4), HeadsApart(kept=4), WideRows(kept=4),
    NormaliseLast(kept=4), ShareCommon(), DropDead(),
)  # fmt: skip
PASSES = ("inline", "join_rows", "step_rows", "fuse", "merge", "accumulate", "group_tile", "gpu_tile")
MATRIX = replace(TENSOR, passes=tuple(PassConfig(name) for name in PASSES))


def source(name: str) -> str:
    scores, weights = FORMS[name]
    rows = ROWS.replace("-(G / Z * Y)", "G / Z * Y") if name == "subtracted" else ROWS
    body = f"{SCORES} {scores} {STATISTICS} {rows} {weights} {SUMS}"
    return f"function (Q[H, S, D], K[T, D], V[T, D], C[H, S, D], B[S, T]) -> (DQ, DK, DV) {{ {body} }}"


def inputs(dtype: DType = DType.FLOAT32, h: int = 2, s: int = 17, t: int = 43, d: int = 16) -> dict[str, Array]:
    random = np.random.default_rng(0)
    shapes = {"Q": (h, s, d), "K": (t, d), "V": (t, d), "C": (h, s, d), "B": (s, t)}
    return {n: random.normal(0, 0.5, shape).astype(dtype.numpy) for n, shape in shapes.items()}


def program(text: str, given: dict[str, Array], dtype: DType = DType.FLOAT32) -> Program:
    return bind(parse(text), {n: TensorType(dtype, a.shape) for n, a in given.items()})


def names(of: Program) -> set[str]:
    return {op.name for op in of.ops if isinstance(op, Contraction)}


@pytest.mark.parametrize("name", FORMS)
def test_both_sums_give_what_one_gives(name: str) -> None:
    given = inputs()
    before = program(source(name), given)
    after = rewrite(before, REWRITES)
    assert {"DQ_moved", "DQ_alone", "R_wide_sum"} <= names(after), "sums of the same weights"
    want, got = evaluate(before, dict(given)), evaluate(after, dict(given))
    for n in want:
        np.testing.assert_allclose(got[n], want[n], 2e-4, 2e-4)


def test_products_that_are_rounded_to_a_shorter_float_are_those_of_their_factors() -> None:
    """Scores of float16 whose exponentials, and what follows these, are float32."""
    text = (
        source("scaled")
        .replace("E = exp(X - M)", "E = exp(as_float(X, 32) - M)")
        .replace("Y = E / Z", "Y = as_float(E / Z, 16)")
    )
    text = text.replace("-(G / Z * Y)", "-(as_float(G, 32) / Z * E / Z)")
    text = text.replace("W = (G / Z + RB) * E * 0.3", "W = as_float((as_float(G, 32) / Z + RB) * E, 16) * 0.3")
    given = inputs(DType.FLOAT16)
    before = program(text, given, DType.FLOAT16)
    after = rewrite(before, REWRITES)
    assert {"DQ_moved", "DQ_alone"} <= names(after)
    want, got = evaluate(before, dict(given)), evaluate(after, dict(given))
    for n in want:
        np.testing.assert_allclose(got[n].astype(float), want[n].astype(float), 2e-2, 2e-2)


def test_a_row_of_which_a_mask_leaves_nothing_has_no_gradient() -> None:
    given = inputs()
    given["B"][3] = 0.0
    before = program(source("masked"), given)
    with np.errstate(invalid="ignore"):
        want, got = (evaluate(p, dict(given))["DQ"] for p in (before, rewrite(before, REWRITES)))
    assert not want[:, 3].any() and not got[:, 3].any()
    np.testing.assert_allclose(got, want, 2e-4, 2e-4)


@pytest.mark.parametrize("name", ["masked", "biased"])
def test_what_a_tensor_leaves_out_of_all_rows_may_be_of_any_size(name: str) -> None:
    """It was in the mean that is taken away from what the others are multiplied with."""
    given = inputs()
    given["V"][:10], given["B"][:] = 1e30, 1.0
    given["B"][:, :10] = 0.0 if name == "masked" else -np.inf
    before = program(source(name), given)
    after = rewrite(before, REWRITES)
    assert "DQ_moved" in names(after)
    want, got = (evaluate(p, dict(given))["DQ"] for p in (before, after))
    np.testing.assert_allclose(got, want, 2e-4, 2e-4)


def test_what_places_leave_out_of_a_row_may_be_of_any_size() -> None:
    given = inputs()
    given["V"][3:] = 1e30
    before = program(source("causal"), given)
    after = rewrite(before, REWRITES)
    assert "DQ_common" in names(after)
    want, got = (evaluate(p, dict(given))["DQ"][:, :3] for p in (before, after))
    np.testing.assert_allclose(got, want, 2e-4, 2e-4)


@pytest.mark.parametrize("old_and_new", [("(G / Z + RB)", "(G / Z + B)"), ("N = -(G / Z * Y)", "N = -(G / Z * Y * Y)")])
def test_what_is_no_sum_of_the_same_elements_stays_where_it_is(old_and_new: tuple[str, str]) -> None:
    after = rewrite(program(source("scaled").replace(*old_and_new), inputs()), REWRITES)
    assert "DQ_moved" not in names(after)


def test_many_results_of_a_row_have_no_room_for_two_sums() -> None:
    few = replace(Distribute(kept=4), deep=15)
    rewrites = tuple(few if isinstance(r, Distribute) else r for r in REWRITES)
    after = rewrite(program(source("scaled"), inputs()), rewrites)
    assert "DQ_moved" not in names(after) and "R_sums" in names(after)


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, value in {"WARPS": (2,), "TALL": (1,), "PIECES": (16,)}.items():
        monkeypatch.setattr(tensor_space, limit, value)
    monkeypatch.setattr("tile_opt.passes.kernels.join_rows.NEAR", 1e9)


@pytest.mark.usefixtures("small_tiles")
def test_gradients_are_two_kernels() -> None:
    """One for the rows of queries, one for those of keys; and behind them the sums of heads that share keys."""
    text, given = source("capped and causal"), inputs(DType.FLOAT16, t=20)
    wide = {n: a.astype(np.float32) for n, a in given.items()}
    before = rewrite(program(text, given, DType.FLOAT16), REWRITES)
    made = schedule(to_stripe(before, MATRIX), MATRIX, verify=True).program
    assert len(tuple(kernels_of(made))) == 4
    want, got = evaluate(program(text, wide), wide), execute(lower_kernels(made, MATRIX), given)
    for n in want:
        np.testing.assert_allclose(got[n].astype(float), want[n].astype(float), 2e-2, 2e-2)


@pytest.mark.usefixtures("small_tiles")
def test_results_that_are_as_many_as_scores_are_stored_for_who_reads_them() -> None:
    """They were taken for rows that a kernel of their own gives to others."""
    text, given = source("scaled").replace("(DQ, DK, DV)", "(DQ, DV)"), inputs(DType.FLOAT16, s=16, d=16)
    wide = {n: a.astype(np.float32) for n, a in given.items()}
    made = schedule(to_stripe(rewrite(program(text, given, DType.FLOAT16), REWRITES), MATRIX), MATRIX).program
    want, got = evaluate(program(text, wide), wide), run(made, dict(given))
    for n in want:
        np.testing.assert_allclose(got[n].astype(float), want[n].astype(float), 2e-2, 2e-2)


@pytest.mark.usefixtures("small_tiles")
def test_rows_that_leave_the_first_elements_out_take_nothing_away() -> None:
    """Pieces that no row of a group sees are left out, and what they would show."""
    text = (
        source("causal")
        .replace("index(P, 2) > index(P, 1)", "index(P, 2) + 8 < index(P, 1)")
        .replace("DQ, DK, DV", "DQ")
    )
    given = inputs(DType.FLOAT16, h=1, s=48, t=48)
    wide = {n: a.astype(np.float32) for n, a in given.items()}
    made = schedule(to_stripe(rewrite(program(text, given, DType.FLOAT16), REWRITES), MATRIX), MATRIX).program
    assert len(tuple(kernels_of(made))) == 1
    want, got = evaluate(program(text, wide), wide), run(made, dict(given))
    np.testing.assert_allclose(got["DQ"].astype(float), want["DQ"].astype(float), 2e-2, 2e-2)


PACKED = """function (A[H, S, U, D], C[H, S, D]) -> (DA) {
    P[h, s, t : H, S, S] = +(A[h, s, 0, d] * A[h, t, 1, d]); X = P * 0.3;
    M[h, s, z : H, S, 1] = >(X[h, s, t]), z < 1; E = exp(X - M); Z[h, s, z : H, S, 1] = +(E[h, s, t]), z < 1;
    Y = E / Z; G[h, s, t : H, S, S] = +(C[h, s, d] * A[h, t, 2, d]);
    N = -(G / Z * Y); R[h, s, z : H, S, 1] = +(N[h, s, t]), z < 1; RB[h, s, t : H, S, S] = +(R[h, s, z]), z < 1;
    W = (G / Z + RB) * E * 0.3; DQ[h, s, 0, d : H, S, 3, D] = +(W[h, s, t] * A[h, t, 1, d]);
    DK[h, t, 1, d : H, S, 3, D] = +(W[h, s, t] * A[h, s, 0, d]); DV[h, t, 2, d : H, S, 3, D] = +(Y[h, s, t] * C[h, s, d]);
    DQK = DQ + DK; DA = DQK + DV; }"""


@pytest.mark.usefixtures("small_tiles")
def test_gradients_of_one_packed_tensor_are_stored_where_they_belong() -> None:
    """No kernel puts them there, and none finishes what another one has summed up."""
    random = np.random.default_rng(0)
    given = {n: random.normal(0, 0.5, s).astype(np.float16) for n, s in {"A": (2, 20, 3, 16), "C": (2, 20, 16)}.items()}
    wide = {n: a.astype(np.float32) for n, a in given.items()}
    place = PassConfig("in_place", options={"apart": False, "row": 32})
    target = replace(MATRIX, passes=(*MATRIX.passes[:2], place, *MATRIX.passes[2:]))
    before = rewrite(program(PACKED, given, DType.FLOAT16), (OnePlace(), PlacedParts(products=True), *REWRITES))
    made = schedule(to_stripe(before, target), target, verify=True).program
    assert len(tuple(kernels_of(made))) == 2
    want, got = evaluate(program(PACKED, wide), wide), run(made, dict(given))
    np.testing.assert_allclose(got["DA"].astype(float), want["DA"].astype(float), 2e-2, 2e-2)


def gradient(given: dict[str, Array], *, rounded: bool) -> Array:
    """Of queries, by its definition; `rounded`, differences are, before they are multiplied with keys."""
    q, k, v, c = (given[n].astype(np.float64) for n in "QKVC")
    weights = np.exp(q @ k.T * 0.25)
    weights /= weights.sum(-1, keepdims=True)
    products = c @ v.T
    scores = weights * (products - (weights * products).sum(-1, keepdims=True))
    short = given["Q"].dtype
    return ((scores.astype(short) if rounded else scores).astype(np.float64) @ k * 0.25).astype(
        short if rounded else np.float64
    )


def offset(given: dict[str, Array]) -> dict[str, Array]:
    return given | {"V": (given["V"].astype(np.float32) * 2 + 10).astype(given["V"].dtype)}


def ones(given: dict[str, Array]) -> dict[str, Array]:
    positive = np.random.default_rng(1).random(given["V"].shape).astype(given["V"].dtype)
    return given | {"V": positive, "C": np.ones_like(given["C"])}


def outlier(given: dict[str, Array]) -> dict[str, Array]:
    """Of the first few keys one has values that are larger than all others, and weighs nothing."""
    q, k, v = (given[n].copy() for n in "QKV")
    q[..., 0], k[3], k[3, 0], v[3] = 8, 0, -8, v[3] * 300
    return given | {"Q": q, "K": k, "V": v}


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("values", [dict[str, Array], offset, ones, outlier])
def test_what_all_elements_of_a_row_have_in_common_is_not_rounded(
    values: Callable[[dict[str, Array]], dict[str, Array]],
) -> None:
    given = values(inputs(DType.BFLOAT16, h=1, s=16, t=48))
    text = source("scaled").replace("(DQ, DK, DV)", "(DQ)").replace("0.3", "0.25")
    before = rewrite(program(text, given, DType.BFLOAT16), REWRITES)
    assert "DQ_moved" in names(before)
    made = schedule(to_stripe(before, MATRIX), MATRIX).program
    got = execute(lower_kernels(made, MATRIX), given)["DQ"].astype(np.float64)
    exact, usual = gradient(given, rounded=False), gradient(given, rounded=True).astype(np.float64)
    assert abs(got - exact).max() <= 2 * abs(usual - exact).max()


@pytest.mark.usefixtures("small_tiles")
def test_what_is_taken_from_all_elements_of_a_row_is_not_rounded() -> None:
    """Nor is it divided by another number than these are: the sum of the weights, as it is stored."""
    given = offset(inputs(DType.BFLOAT16, h=1, s=16, t=48))
    before = rewrite(program(source("scaled").replace("0.3", "0.25"), given, DType.BFLOAT16), REWRITES)
    assert (
        next(op.type.dtype for op in before.ops if isinstance(op, Contraction) and op.name == "R_wide") is DType.FLOAT32
    )
    made = schedule(to_stripe(before, MATRIX), MATRIX).program
    got = run(made, dict(given))["DK"].astype(np.float64)
    q, k, v, c = (given[n].astype(np.float64) for n in "QKVC")
    weights, products = np.exp(q @ k.T * 0.25), c @ v.T
    weights /= weights.sum(-1, keepdims=True)
    want = np.einsum("hst,hsd->td", weights * (products - (weights * products).sum(-1, keepdims=True)), q) * 0.25
    assert abs(got - want).max() <= 8e-3 * abs(want).max()


WIDE = """function (Q[S, D], K[T, D], V[T, D]) -> (O) { P[s, t : S, T] = +(Q[s, d] * K[t, d]); X = as_float(P, 32) * 0.25;
    M[s, z : S, 1] = >(X[s, t]), z < 1; E = exp(X - M); Z[s, z : S, 1] = +(E[s, t]), z < 1; Y = E / Z; O[s, d : S, D] = +(Y[s, t] * V[t, d]); }"""
"""Scores become float32, as a bias of float32 makes them."""


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(("dtype", "short"), [(DType.BFLOAT16, True), (DType.FLOAT16, True), (DType.BFLOAT16, False)])
def test_weights_of_wider_floats_are_rounded_as_values_are_where_they_may(dtype: DType, short: bool) -> None:
    random = np.random.default_rng(0)
    given = {n: random.normal(0, 1, (size, 16)).astype(dtype.numpy) for n, size in {"Q": 17, "K": 43, "V": 43}.items()}
    before = program(WIDE, given, dtype)
    small = rewrite(before, (ShareCommon(), DropDead(), NormaliseLast(kept=4, short=short), DropDead()))
    made = schedule(to_stripe(small, MATRIX), MATRIX, verify=True).program
    assert (len(tuple(kernels_of(made))) == 1) is short
    want, got = evaluate(before, dict(given)), execute(lower_kernels(made, MATRIX), given)
    np.testing.assert_allclose(got["O"].astype(float), want["O"].astype(float), 2e-2, 2e-2)
