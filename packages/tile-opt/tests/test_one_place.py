"""Products at one place of a dimension: what a part of a packed tensor gets of a gradient."""

from __future__ import annotations

import numpy as np
import pytest
from tile_ir.dtype import DType
from tile_ir.program.nodes import Contraction, TensorType
from tile_lang import bind, parse
from tile_lang.evaluate import evaluate
from tile_opt.program import OnePlace

SHAPES = {"W": (5, 7), "K": (7, 4)}


def rewritten(statement: str) -> tuple[Contraction, ...]:
    """The contractions that `OnePlace` makes of one; they give what it gives."""
    source = f"function (W[S, T], K[T, D]) -> (G) {{ {statement} }}"
    program = bind(parse(source), {n: TensorType(DType.FLOAT32, s) for n, s in SHAPES.items()})
    made, random = OnePlace().apply(program), np.random.default_rng(0)
    inputs = {n: random.normal(0, 1, s).astype(np.float32) for n, s in SHAPES.items()}
    assert np.array_equal(evaluate(made, inputs)["G"], evaluate(program, inputs)["G"])
    return tuple(op for op in made.ops if isinstance(op, Contraction))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_product_is_computed_without_the_dimension_and_put_there(place: int) -> None:
    product, placed = rewritten(f"G[s, {place}, d : S, 3, D] = +(W[s, t] * K[t, d]);")
    assert product.type.shape == (5, 1, 4) and placed.type.shape == (5, 3, 4)
    assert [load.tensor for load in placed.loads] == [product.name]


@pytest.mark.parametrize(
    "statement",
    [
        "G[s, d : S, D] = +(W[s, t] * K[t, d]);",
        "G[s, 0, d : S, 1, D] = +(W[s, t] * K[t, d]);",
        "G[s, 1 : S, 3] = +(W[s, t]);",
        "G[s, 1, d : S, 3, D] = >(W[s, t] * K[t, d]);",
    ],
    ids=["everywhere", "the only place", "a sum of elements", "a maximum"],
)
def test_others_stay(statement: str) -> None:
    assert len(rewritten(statement)) == 1
