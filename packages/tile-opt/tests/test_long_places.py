"""Places of extremes in long rows are searched in blocks, and are what they were."""

from __future__ import annotations

import numpy as np
import pytest
import tile_lang
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.program.nodes import Contraction, Program, TensorType
from tile_lang.evaluate import evaluate
from tile_opt.program import LongPlaces

SEARCHED = LongPlaces(least=1)


def bound(body: str, shape: tuple[int, ...], dtype: DType = DType.FLOAT32) -> Program:
    text = f"function (X) -> (P) {{ {body} }}"
    return tile_lang.bind(tile_lang.parse(Source(text, "text.tile")), {"X": TensorType(dtype, shape)})


@settings(max_examples=24, deadline=None)
@given(
    st.sampled_from(["argmax", "argmin"]),
    st.lists(st.integers(1, 4), max_size=2),
    st.integers(2, 700),
    st.sampled_from([DType.FLOAT32, DType.INT32]),
    st.integers(0, 1 << 16),
    st.sampled_from([1, 3, 1000]),
)
def test_the_first_place_stays_the_first(
    name: str, head: list[int], length: int, dtype: DType, seed: int, values: int
) -> None:
    """Of few values, so that several places have the extreme; some are no numbers."""
    rng, shape = np.random.default_rng(seed), (*head, length)
    x = rng.integers(0, values, shape).astype(dtype.value)
    if dtype.is_float:
        x[rng.random(shape) < rng.choice([0.0, 2.0 / length])] = rng.choice([np.nan, np.inf, -np.inf])
    program = bound(f"P = {name}(X, {len(head)});", shape, dtype)
    made = SEARCHED.apply(program)
    assert made is not program
    expected = getattr(np, name)(x, -1)
    np.testing.assert_array_equal(evaluate(made, {"X": x})["P"], expected)
    np.testing.assert_array_equal(evaluate(program, {"X": x})["P"], expected)


def test_rows_are_walked_once() -> None:
    made = LongPlaces().apply(bound("P = argmax(X, 1);", (3, 100_000)))
    over = [op for op in made.ops if isinstance(op, Contraction) and any(load.tensor == "X" for load in op.loads)]
    assert len(over) == 1, "the extremes of blocks"
    read = {load.tensor for op in made.ops if isinstance(op, Contraction) for load in op.loads}
    assert max(dict(made.types())[t].shape[-1] for t in read if isinstance(t, str) and t != "X") < 2_000


@pytest.mark.parametrize(
    ("body", "shape"),
    [("P = argmax(X, 1);", (3, 100)), ("P = argmax(X, 0);", (100_000, 3)), ("P = max(X, 0);", (100_000,))],
    ids=["short rows", "columns", "no place"],
)
def test_others_stay(body: str, shape: tuple[int, ...]) -> None:
    program = bound(body, shape)
    assert LongPlaces().apply(program) is program


@pytest.mark.parametrize(("dtype", "length"), [("float64", 3000), ("int8", 3000), ("float16", 12_000)])
def test_rows_are_long_sooner_where_no_walk_converts_them(dtype: str, length: int) -> None:
    program = bound("P = argmin(X, 1);", (3, length), DType(dtype))
    assert LongPlaces().apply(program) is not program
    short = bound("P = argmin(X, 1);", (3, length // 2), DType(dtype))
    assert LongPlaces().apply(short) is short
