"""Sums weighted below a row's largest element, chunk by chunk: found by what they compute, with the results of whole rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from attention_samples import BODIES, source
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.dtype import DType
from tile_ir.program.nodes import Program, TensorType
from tile_ir.stripe.interpret import run
from tile_lang import bind, parse
from tile_lang.evaluate import evaluate
from tile_opt.program import Cascade, DropDead, ShareCommon, rewrite
from tile_opt.translate import to_stripe

Array = npt.NDArray[Any]


def program(text: str, arrays: Mapping[str, Array]) -> Program:
    return bind(parse(text), {n: TensorType(DType.FLOAT32, a.shape) for n, a in arrays.items()})


def arrays(h: int, s: int, t: int, d: int, seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    shapes = {"Q": (h, s, d), "K": (h, t, d), "V": (h, t, d), "B": (s, t)}
    return {n: random.normal(0, 1, shape).astype(np.float32) for n, shape in shapes.items()}


def cut(text: str, inputs: Mapping[str, Array], kept: int) -> Program:
    """The program in chunks, which has the results of the whole rows."""
    given = program(text, inputs)
    after = rewrite(given, (ShareCommon(), Cascade(kept=kept), DropDead()))
    want = evaluate(given, dict(inputs))["O"]
    for got in (evaluate(after, dict(inputs))["O"], run(to_stripe(after), dict(inputs))["O"]):
        np.testing.assert_allclose(got, want, 2e-5, 2e-5, equal_nan=True)
    return after


def names(of: Program) -> set[str]:
    return {getattr(op, "name", "") for op in of.ops}


@pytest.mark.parametrize("name", BODIES)
@given(st.integers(1, 2), st.integers(16, 20), st.integers(7, 23), st.integers(1, 3), st.integers(0, 99))
@settings(max_examples=4)
def test_results_are_those_of_whole_rows(name: str, h: int, s: int, t: int, d: int, seed: int) -> None:
    after = cut(source(BODIES[name]), arrays(h, s, t, d, seed), kept=6)
    assert {"M_partial", "M_weights"} <= names(after)
    assert "E" not in names(after), "the whole matrix of weights"


@pytest.mark.parametrize("pivot", ["M", "(M == -inf ? 0 : M)", "(M == -inf ? -3e38 : M)"])
def test_rows_of_which_nothing_is_left_and_infinities_give_what_whole_rows_give(pivot: str) -> None:
    inputs = arrays(1, 16, 12, 2)
    inputs["B"][0], inputs["B"][1, 3], inputs["B"][2, :6] = -np.inf, np.inf, -np.inf
    inputs["V"][0, 5, 0] = np.inf
    with np.errstate(all="ignore"):
        after = cut(source(BODIES["biased"].replace("X - M", f"X - {pivot}")), inputs, kept=4)
    assert "M_partial" in names(after)


LEFT = {
    "short rows": (BODIES["scaled"], 64),
    "scores that somebody wants": (BODIES["scaled"], 0),
    "a maximum of something else": (BODIES["scaled"].replace(">(X", ">(P"), 6),
    "a weight that is no exponential": (BODIES["scaled"].replace("exp(X - M)", "X - M"), 6),
    "a number in the place of another": (BODIES["scaled"].replace("X - M", "X - (M == 1 ? 0 : M)"), 6),
    "an infinity in the place of another": (BODIES["scaled"].replace("X - M", "X - (M == -inf ? inf : M)"), 6),
    "squares of weights": (BODIES["scaled"].replace("Y = E / Z", "Y = E * E / Z"), 6),
    "a divisor that moves with the sum": (BODIES["scaled"].replace("Y = E / Z", "Y = E / P"), 6),
    "the largest element outside the exponential": (BODIES["scaled"].replace("Y = E / Z", "Y = E * M"), 6),
}


SOME_ROWS = {
    "the next row": "U[h, s, d : H, S - 1, D] = +(E[h, s + 1, t] * V[h, t, d]);",
    "every second row": "U[h, s, d : H, S / 2, D] = +(E[h, 2*s, t] * V[h, t, d]);",
    "the first rows": "U[h, s, d : H, 5, D] = +(E[h, s, t] * V[h, t, d]);",
    "one row": "U[h, d : H, D] = +(E[h, 3, t] * V[h, t, d]);",
}


@pytest.mark.parametrize("name", SOME_ROWS)
def test_sums_of_other_rows_beside_those_of_all_are_right(name: str) -> None:
    text = source(BODIES["scaled"] + SOME_ROWS[name]).replace("-> (O)", "-> (U, O)")
    inputs = arrays(2, 18, 12, 3)
    given = program(text, inputs)
    after = rewrite(given, (ShareCommon(), Cascade(kept=5), DropDead()))
    want, got = evaluate(given, dict(inputs)), evaluate(after, dict(inputs))
    assert "M_partial" in names(after)
    for out in ("O", "U"):
        np.testing.assert_allclose(got[out], want[out], 2e-5, 2e-5)


@pytest.mark.parametrize("name", LEFT)
def test_what_is_no_cascade_is_left_alone(name: str) -> None:
    body, kept = LEFT[name]
    text = source(body) if kept else source(body).replace("-> (O)", "-> (O, P)")
    after = rewrite(program(text, arrays(1, 16, 12, 2)), (ShareCommon(), Cascade(kept=kept or 6)))
    assert "O_partial" not in names(after)


def test_few_rows_are_not_worth_chunks() -> None:
    after = rewrite(program(source(BODIES["scaled"]), arrays(4, 3, 40, 2)), (Cascade(kept=6),))
    assert "M_partial" not in names(after)
