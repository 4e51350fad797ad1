"""Pools beside ONNX Runtime: any rank, pads, strides, dilations, rounding up, indices."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from peer import SEEDS, check, numbers, random


@st.composite
def pools(draw: Any) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The shape of an image, and attributes: pads are smaller than the kernel, as ONNX Runtime demands."""
    rank = draw(st.integers(1, 3))

    def each(low: int, high: int, count: int = rank) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    kernel, dilations = each(1, 3), each(1, 2)
    spatial = [d * (k - 1) + 1 + n for k, d, n in zip(kernel, dilations, each(0, 5), strict=True)]
    pads = [min(p, k - 1) for p, k in zip(each(0, 2, 2 * rank), kernel * 2, strict=True)]
    attributes = {
        "kernel_shape": kernel, "dilations": dilations, "strides": each(1, 3), "pads": pads,
        "ceil_mode": draw(st.integers(0, 1)),
    }  # fmt: skip
    return (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *spatial), attributes


@given(pools(), st.sampled_from(["float32", "float64", "int8", "uint8"]), st.booleans(), st.integers(0, 1), SEEDS)
@settings(max_examples=15)
def test_max_pool(what: Any, dtype: str, indices: bool, order: int, seed: int) -> None:
    shape, attributes = what
    # Distinct numbers: which of several equal ones is named is not stated.
    count = prod(shape)
    assume(count < 128)
    values = random(seed).permutation(count).reshape(shape).astype(dtype)
    attributes |= {"storage_order": order} if indices else {}
    check("MaxPool", [values], attributes, outputs=2 if indices else 1)


@given(pools(), st.integers(0, 1), SEEDS)
@settings(max_examples=15)
def test_average_pool(what: Any, padded: int, seed: int) -> None:
    shape, attributes = what
    values = numbers("float32", shape, seed)
    check("AveragePool", [values], attributes | {"count_include_pad": padded}, rtol=1e-4, atol=1e-5)


@given(pools(), st.integers(1, 3), SEEDS)
@settings(max_examples=8)
def test_lp_pool(what: Any, order: int, seed: int) -> None:
    shape, attributes = what
    del attributes["dilations"]
    check("LpPool", [numbers("float32", shape, seed)], attributes | {"p": order}, opset=18, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("automatic", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_automatic_pads(op: str, automatic: str) -> None:
    attributes = {"kernel_shape": [3, 2], "strides": [2, 1], "auto_pad": automatic}
    check(op, [numbers("float32", (1, 2, 8, 9), 0)], attributes, opset=18, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"])
@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 2, 4, 3), (1, 2, 2, 3, 2)])
def test_global_pools(op: str, shape: tuple[int, ...]) -> None:
    check(op, [numbers("float32", shape, 1)], rtol=1e-4, atol=1e-5)


def test_max_unpool() -> None:
    rng = random(3)
    places = np.sort(rng.permutation(2 * 6 * 8)[: 2 * 3 * 4], None).reshape(1, 2, 3, 4)
    inputs = [numbers("float32", places.shape, 4), places.astype(np.int64)]
    check("MaxUnpool", inputs, {"kernel_shape": [2, 2], "strides": [2, 2]}, opset=11)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_max_roi_pool(scale: float) -> None:
    regions = np.array([[0, 1, 1, 6, 5], [1, 0, 2, 3, 3], [0, 5, 5, 20, 20]], np.float32)
    attributes = {"pooled_shape": [2, 3], "spatial_scale": scale}
    check("MaxRoiPool", [numbers("float32", (2, 3, 7, 8), 5), regions], attributes)


@given(st.sampled_from(["avg", "max"]), st.sampled_from(["half_pixel", "output_half_pixel"]), st.integers(0, 2), SEEDS)
@settings(max_examples=5)
def test_roi_align(mode: str, place: str, samples: int, seed: int) -> None:
    corners = np.sort(random(seed).uniform(-3, 24, (4, 2, 2)), 1).reshape(4, 4).astype(np.float32)
    attributes = {
        "mode": mode, "coordinate_transformation_mode": place, "sampling_ratio": samples, "spatial_scale": 0.5,
        "output_height": 2, "output_width": 3,
    }  # fmt: skip
    inputs = [numbers("float32", (2, 3, 9, 10), seed), corners, np.array([0, 1, 1, 0], np.int64)]
    check("RoiAlign", inputs, attributes, opset=16, rtol=1e-3, atol=1e-4)
