"""What the gradients of attention ask of rows: products summed over the row first, heads one after the other, copies read through."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Program, TensorType
from tile_lang import bind, parse
from tile_lang.evaluate import evaluate
from tile_opt.program import DropDead, ExchangeSums, HeadsApart, NormaliseLast, ShareCommon, SingleTerms, rewrite

Array = npt.NDArray[Any]
ROWS = """P[h, s, t : H, S, T] = +(Q[h, s, d] * K[t, d]); M[h, s, z : H, S, 1] = >(P[h, s, t]), z < 1; E = exp(P - M);
    Z[h, s, z : H, S, 1] = +(E[h, s, t]), z < 1; Y = E / Z; G[h, s, t : H, S, T] = +(C[h, s, d] * V[t, d]);"""
BACK = f"""function (Q[H, S, D], K[T, D], V[T, D], C[H, S, D]) -> (DQ, DK, DV) {{ {ROWS}
    N = -(G / Z * Y); R[h, s, z : H, S, 1] = +(N[h, s, t]), z < 1; RB[h, s, t : H, S, T] = +(R[h, s, z]), z < 1;
    X = (G / Z + RB) * E; DQ[h, s, d : H, S, D] = +(X[h, s, t] * K[t, d]);
    DK[t, d : T, D] = +(X[h, s, t] * Q[h, s, d]); DV[t, d : T, D] = +(Y[h, s, t] * C[h, s, d]); }}"""
REWRITES = (
    ShareCommon(), SingleTerms(), ExchangeSums(kept=4), HeadsApart(kept=4), NormaliseLast(kept=4), ShareCommon(), DropDead(),
)  # fmt: skip


def inputs(h: int = 2, s: int = 17, t: int = 19, d: int = 5) -> dict[str, Array]:
    random = np.random.default_rng(0)
    shapes = {"Q": (h, s, d), "K": (t, d), "V": (t, d), "C": (h, s, d)}
    return {n: random.normal(0, 1, shape).astype(np.float32) for n, shape in shapes.items()}


def rewritten(text: str, given: dict[str, Array], error: float = 2e-4) -> tuple[Program, Program]:
    """Before and after, with the same results."""
    dtypes = {n: DType.FLOAT16 if a.dtype == np.float16 else DType.FLOAT32 for n, a in given.items()}
    before = bind(parse(text), {n: TensorType(dtypes[n], a.shape) for n, a in given.items()})
    after = rewrite(before, REWRITES)
    want, got = evaluate(before, dict(given)), evaluate(after, dict(given))
    for name in want:
        np.testing.assert_allclose(got[name].astype(float), want[name].astype(float), error, error)
    return before, after


def contraction(program: Program, name: str) -> Contraction:
    return next(op for op in program.ops if isinstance(op, Contraction) and op.name == name)


def test_rows_of_a_gradient_need_no_scores_but_their_own() -> None:
    _, after = rewritten(BACK, inputs())
    assert {load.tensor for load in contraction(after, "R").loads} == {"C", "R_sums", "Z"}
    assert {load.tensor for load in contraction(after, "R_sums").loads} == {"M_weights", "V"}


def test_weights_of_a_wider_float_are_rounded_as_the_products_were_that_they_weigh() -> None:
    """Scores of float16 whose exponentials, and what follows these, are float32."""
    wide = BACK.replace("exp(P - M)", "exp(as_float(P, 32) - M)").replace("Y = E / Z", "Y = as_float(E / Z, 16)")
    wide = wide.replace("-(G / Z * Y)", "-(as_float(G, 32) / Z * E / Z)").replace(
        "X = (G / Z + RB) * E", "X = as_float((as_float(G, 32) / Z + RB) * E, 16)"
    )
    _, after = rewritten(wide, {n: a.astype(np.float16) for n, a in inputs().items()}, 2e-2)
    assert contraction(after, "M_weights").type.dtype is DType.FLOAT16
    assert {load.tensor for load in contraction(after, "R_sums").loads} == {"M_weights", "V"}


def test_values_that_are_products_are_summed_as_they_are() -> None:
    text = """function (Q[H, S, D], K[T, D], X[T, A], W[A, D]) -> (O) {
        V[t, d : T, D] = +(X[t, a] * W[a, d]); P[h, s, t : H, S, T] = +(Q[h, s, d] * K[t, d]); M[h, s, z : H, S, 1] = >(P[h, s, t]), z < 1;
        E = exp(P - M); Z[h, s, z : H, S, 1] = +(E[h, s, t]), z < 1; Y = E / Z; O[h, s, d : H, S, D] = +(Y[h, s, t] * V[t, d]); }"""
    random, given = np.random.default_rng(0), inputs()
    more = {"X": random.normal(0, 1, (19, 7)).astype(np.float32), "W": random.normal(0, 1, (7, 5)).astype(np.float32)}
    _, after = rewritten(text, {n: given[n] for n in "QK"} | more)
    assert {load.tensor for load in contraction(after, "O_sum").loads} == {"M_weights", "V"}


def test_heads_that_share_keys_have_gradients_of_their_own() -> None:
    _, after = rewritten(BACK, inputs())
    assert contraction(after, "DK_heads").type.shape == (2, 19, 5)
    assert [len(contraction(after, n).loads) for n in ("DK", "DV")] == [1, 1]


def test_what_is_summed_once_is_a_copy() -> None:
    _, after = rewritten(BACK, inputs())
    assert contraction(after, "RB").agg is Aggregation.ASSIGN


SEVERAL = {
    "constrained": BACK.replace("+(R[h, s, z]), z < 1", "+(R[h, s, z]), z < 1, t - s < 3"),
    "twice": BACK.replace("+(R[h, s, z]), z < 1", "+(R[h, s, z]), z < 1, w < 2"),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_what_may_have_no_term_or_several_stays_a_sum(name: str) -> None:
    _, after = rewritten(SEVERAL[name], inputs())
    assert contraction(after, "RB").agg is Aggregation.SUM


def test_the_same_sums_by_other_names_are_computed_once() -> None:
    text = f"""function (Q[H, S, D], K[T, D], V[T, D], C[H, S, D]) -> (O, R) {{ {ROWS}
        O[h, s, d : H, S, D] = +(Y[h, s, t] * V[t, d]); N = G * Y; R[i, j, z : H, S, 1] = +(N[i, j, k]), z < 1; }}"""
    _, after = rewritten(text, inputs())
    products = [
        op for op in after.ops if isinstance(op, Contraction) and {x.tensor for x in op.loads} == {"M_weights", "V"}
    ]
    assert len(products) == 1
