"""Operands whose rows lie across the vectors are read from copies with lanes innermost."""

from __future__ import annotations

import numpy as np
import pytest
from explain_support import compiled
from model_support import processor
from tile_ir.stripe.interpret import run
from tile_opt.plan.plan import Staging

ACROSS = "O[b, c : B, C] = {0}(X[c, b, a] {1} Y[a, b, c]);"


def function(statement: str) -> str:
    return f"function (X[C, B, A], Y[A, B, C]) -> (O) {{ {statement} }}"


def copies(source: str, x: tuple[int, ...], y: tuple[int, ...]) -> list[Staging]:
    made = compiled(source, processor("zen4"), X=x, Y=y)
    return [s for plan in made.plans.values() for s in plan.stagings if s.unit == "L2"]


@pytest.mark.parametrize(("agg", "op"), [("+", "*"), (">", "+")])
def test_rows_that_lie_across_are_copied(agg: str, op: str) -> None:
    (copy,) = copies(function(ACROSS.format(agg, op)), (40, 16, 128), (128, 16, 40))
    assert copy.operand == "X" and copy.order[-1] == "c"


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((40, 16, 8), (8, 16, 40)),  # rows shorter than vectors
        ((4, 16, 128), (128, 16, 4)),  # fewer neighbours than lanes
    ],
)
def test_others_are_read_where_they_lie(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    assert not copies(function(ACROSS.format("+", "*")), x, y)


@pytest.mark.parametrize(("columns", "rows", "tile"), [(6, 2, 16), (40, 2, 48), (1100, 2, 224), (40, 1, 16)])
def test_copies_keep_the_meaning(columns: int, rows: int, tile: int) -> None:
    """Of all neighbours at once (also those that do not fill a vector), of those of a group, or of a vector of them where nothing is around."""
    shapes = (columns, rows, 128), (128, rows, columns)
    made = compiled(function(ACROSS.format("+", "*")), processor("zen4"), X=shapes[0], Y=shapes[1])
    (plan,) = made.plans.values()
    assert any(c.loop == "c" and c.size == tile for level in plan.levels for c in level.covers)
    rng = np.random.default_rng(0)
    x, y = (rng.random(s).astype(np.float32) for s in shapes)
    got = run(made.stripe, {"X": x, "Y": y})["O"]
    np.testing.assert_allclose(got, np.einsum("cba,abc->bc", x, y), rtol=1e-4)
