"""Short lines are sorted by networks, in the order of the reference: equal elements keep theirs, whatever keys there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tile_lang
from hypothesis import given, settings
from hypothesis import strategies as st
from test_widen import CPU
from tile_ir.dtype import DType
from tile_ir.program.nodes import Program, TensorType
from tile_ir.stripe.interpret import run
from tile_ir.stripe.nodes import Block
from tile_ir.target import Target
from tile_lang.evaluate import evaluate
from tile_opt.blocks.tree import kernels_of
from tile_opt.pipeline import optimize
from tile_opt.translate import to_stripe

Array = npt.NDArray[Any]
TARGET = Target("made", nodes=frozenset({"Bitcast"}))
DTYPES = [DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.INT64, DType.INT16, DType.UINT32, DType.UINT8]
SORTS = {"ascending": "argsort(X, {})", "descending": "argsort(X, {}, 1)"}
ELEMENTS = {"ascending": "sort(X, {})", "descending": "sort(X, {}, 1)", "largest": "element(top_k(X, 2, {}), 0)"}


def bound(text: str, dtype: DType, shape: tuple[int, ...], axis: int) -> Program:
    source = f"function (X) -> (O) {{ O = {text.format(axis)}; }}"
    return tile_lang.bind(tile_lang.parse(source), {"X": TensorType(dtype, shape)})


def keys(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    if dtype.is_float:
        small = float(np.finfo(dtype.numpy).smallest_subnormal)
        values: list[float] = [0.0, -0.0, small, -small, 1, -2, np.nan, np.inf, -np.inf]
        return rng.choice(np.array(values, dtype.numpy), shape)
    return rng.choice(np.array([dtype.min_value, dtype.min_value + 1, 3, dtype.max_value], dtype.numpy), shape)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(SORTS)),
    st.sampled_from(DTYPES),
    st.lists(st.integers(1, 3), max_size=1),
    st.integers(2, 37),
    st.lists(st.integers(1, 4), max_size=1),
    st.integers(0, 1 << 16),
)
def test_places_are_those_of_the_reference(
    name: str, dtype: DType, head: list[int], length: int, tail: list[int], seed: int
) -> None:
    """Also of the largest keys, behind which lines are filled up."""
    program = bound(SORTS[name], dtype, (*head, length, *tail), len(head))
    rng, shape = np.random.default_rng(seed), (*head, length, *tail)
    x = keys(dtype, shape, rng)
    found = run(to_stripe(program, TARGET), {"X": x})["O"]
    np.testing.assert_array_equal(found, evaluate(program, {"X": x})["O"])


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(ELEMENTS)),
    st.sampled_from(DTYPES),
    st.lists(st.integers(1, 3), max_size=1),
    st.integers(2, 37),
    st.lists(st.integers(1, 4), max_size=1),
    st.integers(0, 1 << 16),
)
def test_elements_are_those_of_the_reference(
    name: str, dtype: DType, head: list[int], length: int, tail: list[int], seed: int
) -> None:
    """In all bits: zeros of either sign keep their order."""
    program = bound(ELEMENTS[name], dtype, (*head, length, *tail), len(head))
    rng, shape = np.random.default_rng(seed), (*head, length, *tail)
    x = keys(dtype, shape, rng)
    found, wanted = run(to_stripe(program, TARGET), {"X": x})["O"], evaluate(program, {"X": x})["O"]
    np.testing.assert_array_equal(found, wanted)
    if dtype.is_float:
        np.testing.assert_array_equal(np.signbit(found)[found == 0], np.signbit(wanted)[wanted == 0])


@pytest.mark.parametrize(
    ("text", "dtype", "word"),
    [
        ("sort(X, 0)", DType.FLOAT32, DType.INT32),
        ("sort(X, 0)", DType.UINT64, DType.INT64),
        ("sort(X, 0)", DType.UINT16, DType.INT16),
        ("sort(X, 0)", DType.FLOAT16, DType.INT32),  # too few NaNs for the places of zeros
        ("as_float(argsort(X, 0), 32)", DType.FLOAT32, DType.INT64),
    ],
)
def test_words_of_elements_alone_are_no_wider_than_keys(text: str, dtype: DType, word: DType) -> None:
    stripe = to_stripe(bound(text, dtype, (300, 7), 0), TARGET)
    words = [r for k in kernels_of(stripe) if isinstance(k, Block) for r in k.refs if r.into.startswith("words")]
    assert {r.type.dtype for r in words} == {word}


def test_rows_of_a_network_are_copied_as_columns_by_kernels_of_their_own() -> None:
    """What turns them would leave it no rows that lie side by side, though a forecast has lanes along each."""
    text = "T[j, i : N, M] = =(X[i, j]); S = sort(T, 0); O[i, j : M, N] = =(S[j, i]);"
    source = f"function (X[M, N]) -> (O) {{ {text} }}"
    program = tile_lang.bind(tile_lang.parse(source), {"X": TensorType(DType.FLOAT32, (60, 40))})
    made = optimize(to_stripe(program, TARGET), CPU, passes=CPU.passes[:2])
    assert len(kernels_of(made)) == 3


@pytest.mark.parametrize(
    ("dtype", "shape", "axis", "network"),
    [
        (DType.FLOAT32, (300, 7), 0, True),
        (DType.FLOAT32, (7, 300), 1, True),
        (DType.UINT16, (300, 7), 0, True),
        (DType.UINT16, (7, 300), 1, False),  # few digits
        (DType.UINT8, (300, 8), 0, True),
        (DType.UINT8, (300, 7), 0, False),  # few of them side by side
        (DType.UINT8, (30, 2), 0, True),
        (DType.FLOAT32, (3000, 7), 0, False),  # long
    ],
)
def test_lines_are_sorted_by_networks_where_digits_take_longer(
    dtype: DType, shape: tuple[int, ...], axis: int, network: bool
) -> None:
    stripe = to_stripe(bound(SORTS["ascending"], dtype, shape, axis), TARGET)
    stages = {s.name for k in kernels_of(stripe) if isinstance(k, Block) for s in k.body if isinstance(s, Block)}
    assert ("pairs" in stages) == network
