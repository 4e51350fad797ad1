"""Attention beside ONNX's reference: layouts, groups of heads, masks, windows, caches, and what its outputs show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peer import SEEDS, check, numbers

COUNTS = st.integers(1, 3)


@st.composite
def attentions(draw: Any) -> tuple[list[np.ndarray[Any, Any] | None], dict[str, Any], int]:
    """Inputs, attributes, and how many outputs."""
    flat, cached = draw(st.booleans()), draw(st.booleans())
    batch, groups, each, queries, new, cells, values = (draw(COUNTS) for _ in range(7))
    heads, seed = groups * each, draw(SEEDS)
    past = draw(COUNTS) if cached else 0

    def tensor(count: int, length: int, size: int, k: int) -> np.ndarray[Any, Any]:
        shape = (batch, length, count * size) if flat else (batch, count, length, size)
        return numbers("float32", shape, seed + k, scale=1)

    inputs = [tensor(heads, queries, cells, 0), tensor(groups, new, cells, 1), tensor(groups, new, values, 2)]
    mask = draw(st.sampled_from([None, "bool", "float32"]))
    shape = draw(
        st.sampled_from([(queries, past + new), (batch, 1, queries, past + new), (heads, queries, past + new)])
    )
    inputs.append(None if mask is None else numbers(mask, shape, seed + 3))
    if cached:
        inputs += [numbers("float32", (batch, groups, past, size), seed + size) for size in (cells, values)]
    attributes = {"is_causal": draw(st.integers(0, 1)), "softcap": draw(st.sampled_from([0.0, 2.0]))}
    if flat:
        attributes |= {"q_num_heads": heads, "kv_num_heads": groups}
    return inputs, attributes, 3 if cached else 1


@given(attentions())
@settings(max_examples=25)
def test_attention(what: Any) -> None:
    inputs, attributes, outputs = what
    check("Attention", inputs, attributes, opset=23, outputs=outputs, reference=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", range(4))
def test_what_the_scores_show(mode: int) -> None:
    inputs = [numbers("float32", (1, 2, 3, 4), k) for k in range(3)]
    inputs.append(np.array([[True, False, True], [False, False, False], [True, True, True]]))
    check("Attention", inputs, {"qk_matmul_output_mode": mode}, opset=23, outputs=4, reference=True, rtol=1e-4)


@pytest.mark.parametrize(("left", "right", "causal"), [(1, -1, 1), (0, 0, 0), (2, 1, 0), (-1, 1, 0)])
def test_windows(left: int, right: int, causal: int) -> None:
    inputs = [numbers("float32", (2, 2, 5, 4), k) for k in range(3)]
    attributes = {"left_window_size": left, "right_window_size": right, "is_causal": causal}
    check("Attention", inputs, attributes, opset=25, reference=True, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("causal", [0, 1])
def test_keys_that_are_padding(causal: int) -> None:
    inputs = [numbers("float32", (2, 2, 3, 4), 0), *(numbers("float32", (2, 2, 6, 4), k) for k in (1, 2))]
    inputs += [None, None, None, np.array([2, 5], np.int64)]
    check("Attention", inputs, {"is_causal": causal}, opset=24, reference=True, rtol=1e-4, atol=1e-6)
