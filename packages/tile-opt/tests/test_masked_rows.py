"""Constraints on sums over rows become masks of what weighs, where that adds nothing."""

from __future__ import annotations

import numpy as np
import pytest
from tile_ir.dtype import DType
from tile_ir.program.nodes import Contraction, IndexOf, Program, TensorType
from tile_ir.target import Options
from tile_lang import bind, parse
from tile_lang.evaluate import evaluate
from tile_opt.program import MaskedRows, rewrite

H, S, T, D = 2, 9, 9, 3
ROUNDED = Options(reduced_precision=True)
FORWARD = """P[h, s, t : H, S, T] = +(Q[h, s, d] * K[h, t, d]); X = P * 0.5;
    M[h, s, z : H, S, 1] = >(X[h, s, t]), z < 1, {seen}; E = exp(X - M);
    Z[h, s, z : H, S, 1] = +(E[h, s, t]), z < 1, {seen}; Y = E / Z; O[h, s, d : H, S, D] = +(Y[h, s, t] * V[h, t, d]), {seen};"""
BACKWARD = """G[h, s, t : H, S, T] = +(R[h, s, d] * V[h, t, d]), {seen}; F[h, t, d : H, T, D] = +(Y[h, s, t] * R[h, s, d]), {seen};
    A = G / Z; B = -(A * Y); C[h, s, z : H, S, 1] = +(B[h, s, t]), z < 1; U[h, s, t : H, S, T] = +(C[h, s, z]), {seen};
    W = (A + U) * E * 0.5; O1[h, s, d : H, S, D] = +(W[h, s, t] * K[h, t, d]); O2[h, t, d : H, T, D] = +(W[h, s, t] * Q[h, s, d]);"""
CAUSAL, WINDOW = "s - t < S", "s - t < 4"


def program(body: str, outputs: str, s: int = S, t: int = T) -> Program:
    text = f"function (Q[H, S, D], K[H, T, D], V[H, T, D], R[H, S, D]) -> ({outputs}) {{ {body} }}"
    shapes = {"Q": (H, s, D), "K": (H, t, D), "V": (H, t, D), "R": (H, s, D)}
    return bind(parse(text), {n: TensorType(DType.FLOAT32, shape) for n, shape in shapes.items()})


def masked(given: Program, options: Options = ROUNDED) -> Program:
    return rewrite(given, (MaskedRows(kept=4, options=options),))


def tied(given: Program) -> int:
    """Contractions whose constraints tie indexes."""
    ops = (op for op in given.ops if isinstance(op, Contraction))
    return sum(any(len(c.formula.terms) > 1 for c in op.constraints) for op in ops)


@pytest.mark.parametrize("seen", [CAUSAL, WINDOW, "s - t + 2 < 6", f"{CAUSAL}, t - s + 3 < 99"])
@pytest.mark.parametrize(("body", "outputs"), [(FORWARD, "O"), (FORWARD + BACKWARD, "O, F, O1, O2")])
def test_sums_below_the_largest_element_of_a_part_are_masked(seen: str, body: str, outputs: str) -> None:
    given = program(body.format(seen=seen), outputs)
    made = masked(given)
    assert tied(given) > tied(made) == 0
    random = np.random.default_rng(0)
    inputs = {p.name: random.normal(0, 1, p.type.shape).astype(np.float32) for p in given.inputs}
    for a, b in zip(evaluate(made, inputs).values(), evaluate(given, inputs).values(), strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-6)


def test_a_constrained_product_is_whole_where_its_elements_are_masked() -> None:
    body = FORWARD.replace("K[h, t, d]); X", "K[h, t, d]), {seen}; X").format(seen=CAUSAL)
    assert tied(masked(program(body, "O"))) == 0


@pytest.mark.parametrize(
    ("body", "outputs", "s"),
    [
        (FORWARD.format(seen="s - t - 1 < S"), "O", S),
        (FORWARD.format(seen=WINDOW), "O", 14),
        (FORWARD.format(seen=f"{CAUSAL}, t - 3 < 6"), "O", S),
        ("X[h, s, t : H, S, T] = +(Q[h, s, d] * K[h, t, d]); O[h, s, t : H, S, T] = >(X[h, s, t]), s - t < S;", "O", S),
        (
            FORWARD.format(seen=CAUSAL) + "F[h, t, d : H, T, D] = +(Y[h, s, t] * R[h, s, d]), s - t < 5 default K;",
            "F",
            5,
        ),
        (FORWARD.format(seen=CAUSAL), "O, E", S),
        (FORWARD.format(seen=CAUSAL) + "N[h, t : H, T] = +(E[h, s, t]);", "O, N", S),
        (FORWARD.format(seen=CAUSAL).replace("exp(X - M)", "relu(X - M + 2)"), "O", S),
        (FORWARD.format(seen=CAUSAL).replace("V[h, t, d]), s - t < S", "V[h, t, d]), s - t < 5"), "O", S),
    ],
    ids=[
        "empty rows",
        "rows beyond the last",
        "rows before the first seen",
        "triangles",
        "a default",
        "shown",
        "summed elsewhere",
        "no exponentials",
        "another part",
    ],
)
def test_others_keep_their_constraints(body: str, outputs: str, s: int) -> None:
    given = program(body, outputs, s)
    assert masked(given) is given


def test_exact_products_keep_theirs() -> None:
    """Zero times what is no number would be added."""
    given = program(FORWARD.format(seen=CAUSAL), "O")
    assert masked(given, Options()) is given
    assert any(isinstance(op, IndexOf) for op in masked(given).ops)


def test_long_chains_below_a_maximum_are_looked_at_once() -> None:
    """Each step reads the one before twice."""
    chain = " ".join(f"C{n + 1} = C{n} + C{n};" for n in range(40))
    body = (
        FORWARD.format(seen=CAUSAL).replace("Y[h, s, t] * V", "C40[h, s, t] * V").replace("O[h", f"C0 = Y; {chain} O[h")
    )
    assert tied(masked(program(body, "O"))) == 0
