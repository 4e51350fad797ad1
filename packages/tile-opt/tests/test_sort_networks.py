"""Short lines are sorted by networks, in the order of the reference: equal elements keep theirs, whatever keys there are."""

from __future__ import annotations

import numpy as np
import pytest
import tile_lang
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.dtype import DType
from tile_ir.program.nodes import Program, TensorType
from tile_ir.stripe.interpret import run
from tile_ir.stripe.nodes import Block
from tile_ir.target import Target
from tile_lang.evaluate import evaluate
from tile_opt.blocks.tree import kernels_of
from tile_opt.translate import to_stripe

TARGET = Target("made", nodes=frozenset({"Bitcast"}))
DTYPES = [DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.INT64, DType.INT16, DType.UINT32, DType.UINT8]
SORTS = {"ascending": "argsort(X, {})", "descending": "argsort(X, {}, 1)"}


def bound(text: str, dtype: DType, shape: tuple[int, ...], axis: int) -> Program:
    source = f"function (X) -> (O) {{ O = {text.format(axis)}; }}"
    return tile_lang.bind(tile_lang.parse(source), {"X": TensorType(dtype, shape)})


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
    if dtype.is_float:
        x = rng.choice([0.0, -0.0, 1, -2, np.nan, np.inf, -np.inf], shape).astype(dtype.value)
    else:
        x = rng.choice([dtype.min_value, dtype.min_value + 1, 3, dtype.max_value], shape).astype(dtype.value)
    found = run(to_stripe(program, TARGET), {"X": x})["O"]
    np.testing.assert_array_equal(found, evaluate(program, {"X": x})["O"])


@pytest.mark.parametrize(
    ("dtype", "shape", "axis", "network"),
    [
        (DType.FLOAT32, (300, 7), 0, True),
        (DType.FLOAT32, (7, 300), 1, True),
        (DType.UINT16, (300, 7), 0, True),
        (DType.UINT16, (7, 300), 1, False),  # few digits
        (DType.FLOAT32, (3000, 7), 0, False),  # long
    ],
)
def test_lines_are_sorted_by_networks_where_digits_take_longer(
    dtype: DType, shape: tuple[int, ...], axis: int, network: bool
) -> None:
    stripe = to_stripe(bound(SORTS["ascending"], dtype, shape, axis), TARGET)
    stages = {s.name for k in kernels_of(stripe) if isinstance(k, Block) for s in k.body if isinstance(s, Block)}
    assert ("pairs" in stages) == network
