"""Weights over the sum of their row, as one exponential: what gradients of keys and values read of a row."""

import numpy as np
import pytest
from test_distribute import FORMS, REWRITES, inputs, names, program, source
from tile_ir.program.nodes import Contraction, Program
from tile_lang.evaluate import evaluate
from tile_opt.program import rewrite


def reads(of: Program, name: str) -> set[str]:
    """The tensors that an operation reads."""
    return {str(x.tensor) for op in of.ops if isinstance(op, Contraction) and op.name == name for x in op.loads}


@pytest.mark.parametrize("name", FORMS)
def test_what_gradients_of_keys_are_made_of_reads_two_numbers_of_a_row(name: str) -> None:
    after = rewrite(program(source(name), inputs()), REWRITES)
    assert {"M_shares", "R_wide"} <= reads(after, "W_share") and reads(after, "Y_share") == {"M_shares"}
    assert reads(after, "M_shares") == {"P" if name == "subtracted" else "X", "Z_log"}, (
        "scores have the readers that they had"
    )
    rows = reads(after, "W_share") | reads(after, "M_shares")
    assert rows.isdisjoint({"M", "Z", "Z_wide"})
    assert "W_share" in reads(after, "DK_heads") and "Y_share" in reads(after, "DV_heads")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(G / Z + RB) * E", "(G + RB) * E"),
        ("(G / Z + RB) * E", "(G / Z + RB) * E * Z"),
        ("(G / Z + RB) * E", "as_float(as_int(E, 32) + as_int(G, 32), 32) * (G / Z + RB)"),
        ("Y = E / Z", "Y = E"),
    ],
    ids=["undivided", "multiplied", "integer", "weights"],
)
def test_nothing_changes_where_the_sum_of_weights_is_left(old: str, new: str) -> None:
    given = inputs()
    before = program(source("scaled").replace(old, new), given)
    after = rewrite(before, REWRITES)
    assert not any(name.startswith("M_shares") for name in names(after))
    want, got = evaluate(before, dict(given)), evaluate(after, dict(given))
    for n in want:
        np.testing.assert_allclose(got[n], want[n], 2e-4, 2e-4)


@pytest.mark.parametrize(("name", "value", "where"), [
    ("masked", 0.0, slice(None)), ("biased", -np.inf, slice(None)), ("biased", -np.inf, 5), ("biased", np.inf, 5), ("biased", 1e4, 5),
])  # fmt: skip
def test_rows_of_infinities_give_what_they_gave(name: str, value: float, where: slice | int) -> None:
    """Also a row without any element, of which gradients of keys take nothing where a mask says so."""
    given = inputs()
    given["B"][3, where] = value
    before = program(source(name), given)
    with np.errstate(all="ignore"):
        want, got = (evaluate(p, dict(given)) for p in (before, rewrite(before, REWRITES)))
    for n in ("DK", "DV"):
        np.testing.assert_allclose(got[n], want[n], 2e-3, 2e-3)
    assert name != "masked" or np.isfinite(got["DK"]).all()
