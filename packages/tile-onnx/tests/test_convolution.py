"""Convolutions beside ONNX Runtime: any rank, pads, strides, dilations and groups; some by PyTorch where that has no kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from peer import SEEDS, check, numbers

RANKS = st.integers(1, 3)
GROUPS = st.sampled_from([(1, 1, 1), (1, 3, 2), (2, 1, 1), (2, 2, 3), (3, 1, 2), (4, 1, 1)])
"""Groups, and input and output channels in each."""


def each(draw: Any, rank: int, low: int, high: int) -> list[int]:
    return draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))


@st.composite
def convolutions(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """The shapes of image and weights, and attributes."""
    rank = draw(RANKS)
    groups, inside, outside = draw(GROUPS)
    kernel, strides, dilations = each(draw, rank, 1, 3), each(draw, rank, 1, 3), each(draw, rank, 1, 2)
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    spatial = [span + extra for span, extra in zip(spans, each(draw, rank, 0, 6), strict=True)]
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations, "group": groups}
    automatic = draw(st.sampled_from(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if automatic == "NOTSET":
        attributes["pads"] = each(draw, 2 * rank, 0, 2)
    else:
        # ONNX Runtime forgets dilations where it chooses the pads.
        attributes |= {"auto_pad": automatic, "dilations": [1] * rank}
    batch = draw(st.integers(1, 2))
    return (batch, groups * inside, *spatial), (groups * outside, inside, *kernel), attributes


@given(convolutions(), st.sampled_from(["float32", "float64"]), st.booleans(), st.booleans(), SEEDS)
@settings(max_examples=15)
def test_conv(what: Any, dtype: str, biased: bool, constant: bool, seed: int) -> None:
    image, weights, attributes = what
    inputs = [numbers(dtype, image, seed), numbers(dtype, weights, seed + 1)]
    inputs += [numbers(dtype, weights[:1], seed + 2)] if biased else []
    check("Conv", inputs, attributes, constant=(1, 2) if constant else (), rtol=1e-4, atol=1e-4)


@given(convolutions(), st.booleans(), SEEDS)
@settings(max_examples=5)
def test_conv_integer(what: Any, shifted: bool, seed: int) -> None:
    image, weights, attributes = what
    inputs = [numbers("uint8", image, seed), numbers("uint8", weights, seed + 1)]
    check("ConvInteger", [*inputs, np.array(3, np.uint8)] if shifted else inputs, attributes)


@st.composite
def transposed(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    rank = draw(st.integers(1, 3))
    groups, inside, outside = draw(GROUPS)
    kernel, strides, dilations = each(draw, rank, 1, 3), each(draw, rank, 1, 3), each(draw, rank, 1, 2)
    spatial, pads = each(draw, rank, 1, 4), each(draw, 2 * rank, 0, 1)
    extra = [draw(st.integers(0, s - 1)) for s in strides]
    attributes: dict[str, Any] = {
        "strides": strides, "dilations": dilations, "group": groups, "pads": pads, "output_padding": extra
    }  # fmt: skip
    every = zip(spatial, strides, kernel, dilations, extra, pads[:rank], pads[rank:], strict=True)
    assume(all(s * (n - 1) + e + d * (k - 1) + 1 - a - b > 0 for n, s, k, d, e, a, b in every))
    return (draw(st.integers(1, 2)), groups * inside, *spatial), (groups * inside, outside, *kernel), attributes


@given(transposed(), st.booleans(), SEEDS)
@settings(max_examples=15)
def test_conv_transpose(what: Any, biased: bool, seed: int) -> None:
    image, weights, attributes = what
    inputs = [numbers("float32", image, seed), numbers("float32", weights, seed + 1)]
    channels = weights[1] * attributes["group"]
    inputs += [numbers("float32", (channels,), seed + 2)] if biased else []
    check("ConvTranspose", inputs, attributes, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("automatic", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("wanted", [(7, 8), (9, 9)])
def test_conv_transpose_to_a_shape(automatic: str, wanted: tuple[int, int]) -> None:
    inputs = [numbers("float32", (1, 2, 4, 4), 0), numbers("float32", (2, 3, 3, 4), 1)]
    check(
        "ConvTranspose",
        inputs,
        {"strides": [2, 2], "output_shape": wanted, "auto_pad": automatic},
        rtol=1e-4,
        atol=1e-4,
    )


@given(st.integers(1, 2), st.integers(1, 3), st.lists(st.integers(1, 2), min_size=6, max_size=6), SEEDS)
@settings(max_examples=6)
def test_col2im(batch: int, channels: int, numbers_: list[int], seed: int) -> None:
    kernel, strides, dilations = numbers_[:2], numbers_[2:4], numbers_[4:]
    image, pads = (6, 7), (1, 0, 0, 1)
    counts = [(n + 1 - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(image, kernel, strides, dilations, strict=True)]
    columns = numbers("float32", (batch, channels * int(np.prod(kernel)), int(np.prod(counts))), seed)
    inputs = [columns, np.array(image, np.int64), np.array(kernel, np.int64)]
    attributes = {"strides": strides, "dilations": dilations, "pads": pads}
    check("Col2Im", inputs, attributes, opset=18, constant=(1, 2), rtol=1e-5, atol=1e-5)
