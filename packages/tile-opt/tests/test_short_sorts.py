"""Many short rows are sorted as columns, and come out as they were."""

from __future__ import annotations

import numpy as np
import pytest
import tile_lang
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.diagnostics import Source
from tile_ir.dtype import DType
from tile_ir.program.nodes import Argsort, Gather, Program, TensorType
from tile_lang.evaluate import evaluate
from tile_opt.program import DropDead, ShortSorts

TEXTS = {
    "sort": "S = sort(X, {axis});",
    "descending": "S = sort(X, {axis}, 1);",
    "places": "S = argsort(X, {axis});",
    "largest": "V, P = top_k(X, {count}, {axis}); S = V + P;",
    "both": "P = argsort(X, {axis}); S = sort(X, {axis}) + P;",
}


def bound(text: str, shape: tuple[int, ...], dtype: DType = DType.FLOAT32) -> Program:
    body = text.format(axis=len(shape) - 1, count=(shape[-1] + 1) // 2)
    parsed = tile_lang.parse(Source(f"function (X) -> (S) {{ {body} }}", "text.tile"))
    return tile_lang.bind(parsed, {"X": TensorType(dtype, shape)})


@settings(max_examples=24, deadline=None)
@given(
    st.sampled_from(sorted(TEXTS)),
    st.lists(st.integers(1, 4), min_size=1, max_size=2),
    st.integers(2, 9),
    st.integers(),
)
def test_results_stay_the_same(name: str, head: list[int], length: int, seed: int) -> None:
    """With elements that are equal, whose order counts, and some that are no numbers."""
    program = bound(TEXTS[name], (*head, length))
    made = ShortSorts(rows=1).apply(program)
    assert made is not program
    x = np.random.default_rng(abs(seed)).choice([0, 1, 2, 3, np.nan, np.inf], (*head, length)).astype(np.float32)
    np.testing.assert_array_equal(evaluate(made, {"X": x})["S"], evaluate(program, {"X": x})["S"])


def test_elements_are_fetched_from_columns() -> None:
    made = DropDead().apply(ShortSorts().apply(bound(TEXTS["sort"], (10, 20, 5))))
    (sort,) = (op for op in made.ops if isinstance(op, Argsort))
    (taken,) = (op for op in made.ops if isinstance(op, Gather))
    assert (sort.axis, sort.type.shape) == (0, (5, 10, 20))
    assert taken.data == sort.arg, "what was copied for the sort"


@pytest.mark.parametrize("shape", [(200, 16), (200, 100), (7, 5), (5,)], ids=["vectors", "long", "few", "one"])
def test_others_stay(shape: tuple[int, ...]) -> None:
    program = bound(TEXTS["sort"], shape)
    assert ShortSorts().apply(program) is program


@pytest.mark.parametrize(
    ("text", "rows", "copied"),
    [("sort", 200, True), ("sort", 8, True), ("sort", 7, False), ("largest", 200, True), ("few", 200, False)],
)
def test_rows_that_a_network_sorts_are_columns_unless_few_of_their_elements_are_wanted(
    text: str, rows: int, copied: bool
) -> None:
    program = bound(TEXTS.get(text, "V, P = top_k(X, 3, {axis}); S = V + P;"), (rows, 100))
    made = ShortSorts(length=100).apply(program)
    assert any(isinstance(op, Argsort) and op.axis == 0 for op in made.ops) == copied


def test_long_rows_of_bytes_stay() -> None:
    """One pass counts all values that bytes have."""
    sorts = ShortSorts(length=1000)
    stay = {n: sorts.apply(p) is p for n in (100, 300) for p in [bound(TEXTS["sort"], (9, n), DType.UINT8)]}
    wide = bound(TEXTS["sort"], (9, 300), DType.UINT16)
    assert stay == {100: False, 300: True}
    assert sorts.apply(wide) is not wide
