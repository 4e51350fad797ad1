"""The first few of long lines are found in blocks, and are what they were."""

from __future__ import annotations

import numpy as np
import pytest
import tile_lang
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.dtype import DType
from tile_ir.program.nodes import Argsort, Program, TensorType
from tile_lang.evaluate import evaluate
from tile_opt.program import CLEAN, DropDead, LongOrders, PartsRead, rewrite

EVERY = LongOrders(least=1, share=32)
CLEANED = (PartsRead(share=1.0, least=0), DropDead())
LARGEST = "T = top_k(X, {k}, {axis}); P = element(T, 1);"
SMALLEST = "S = argsort(X, {axis}); P[{cell} : {sizes}] = =(S[{cell}]);"
DTYPES = [DType.FLOAT32, DType.FLOAT64, DType.BFLOAT16, DType.INT16, DType.UINT8]


def bound(body: str, shape: tuple[int, ...], axis: int, k: int, dtype: DType = DType.FLOAT32) -> Program:
    cell, sizes = ", ".join(f"i{d}" for d in range(len(shape))), [k if d == axis else n for d, n in enumerate(shape)]
    text = body.format(k=k, axis=axis, cell=cell, sizes=", ".join(map(str, sizes)))
    return tile_lang.bind(tile_lang.parse(f"function (X) -> (P) {{ {text} }}"), {"X": TensorType(dtype, shape)})


@settings(max_examples=24, deadline=None)
@given(
    st.sampled_from([LARGEST, SMALLEST]),
    st.lists(st.integers(1, 3), max_size=1),
    st.integers(1, 7),
    st.integers(0, 99),
    st.lists(st.integers(1, 3), max_size=1),
    st.sampled_from(DTYPES),
    st.integers(0, 1 << 16),
)
def test_places_stay_the_same(
    body: str, head: list[int], k: int, more: int, tail: list[int], dtype: DType, seed: int
) -> None:
    """Of few values, so that many are equal; zeros have both signs, and some are no numbers."""
    rng, shape = np.random.default_rng(seed), (*head, EVERY.share * k + more, *tail)
    x = rng.integers(0, rng.choice([1, 4, 200]), shape).astype(dtype.numpy)
    if dtype.is_float:
        chosen = rng.choice([np.nan, np.inf, -np.inf, -0.0, -1.0], shape)
        x = np.where(rng.random(shape) < rng.choice([0.0, 0.3, 0.95]), chosen.astype(dtype.numpy), x)
    program = rewrite(bound(body, shape, len(head), k, dtype), CLEANED)
    made = EVERY.apply(program)
    assert made is not program
    np.testing.assert_array_equal(evaluate(made, {"X": x})["P"], evaluate(program, {"X": x})["P"])


@pytest.mark.parametrize("body", [LARGEST, SMALLEST])
@pytest.mark.parametrize(("shape", "axis"), [((3, 100_000), 1), ((100_000, 3), 0)])
def test_no_sort_has_many_elements(body: str, shape: tuple[int, ...], axis: int) -> None:
    """Of the smallest, too, of which a program reads the first few of all in order."""
    made = LongOrders().apply(rewrite(bound(body, shape, axis, 20), CLEAN))
    sorts = [made.types()[op.arg].shape[axis] for op in made.ops if isinstance(op, Argsort)]
    assert len(sorts) == 3 and max(sorts) < 2000


@pytest.mark.parametrize(("length", "k"), [(1000, 1), (10_000, 1000), (10_000, 0)], ids=["short", "many", "none"])
def test_others_stay(length: int, k: int) -> None:
    program = bound(LARGEST, (4, length), 1, k)
    assert LongOrders().apply(program) is program
