"""Operators with results as large as the data says, beside ONNX Runtime."""

from __future__ import annotations

import warnings
from math import prod
from typing import Any

import numpy as np
import pytest
import tile_onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from peer import SEEDS, a_model, check, numbers, outputs_of, random

SHAPES = arrays_of.array_shapes(min_dims=1, max_dims=3, max_side=5)


@given(SHAPES, st.sampled_from(["float32", "int64", "bool"]), SEEDS)
@settings(max_examples=8)
def test_nonzero(shape: Any, dtype: str, seed: int) -> None:
    values = numbers(dtype, shape, seed) * random(seed).integers(0, 2, shape).astype(dtype)
    check("NonZero", [values.astype(dtype)], opset=13)


@given(SHAPES, st.data(), SEEDS)
@settings(max_examples=8)
def test_compress(shape: Any, data: Any, seed: int) -> None:
    axis = data.draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1)))
    size = prod(shape) if axis is None else shape[axis]
    condition = random(seed).integers(0, 2, data.draw(st.integers(1, size))).astype(bool)
    check("Compress", [numbers("float32", shape, seed), condition], {} if axis is None else {"axis": axis}, opset=11)


@given(SHAPES, st.data(), st.integers(0, 1), SEEDS)
@settings(max_examples=12)
def test_unique(shape: Any, data: Any, ordered: int, seed: int) -> None:
    axis = data.draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1)))
    values = random(seed).integers(0, 3, shape).astype(np.int64)
    attributes = {"sorted": ordered} | ({} if axis is None else {"axis": axis})
    check("Unique", [values], attributes, opset=11, outputs=4)


@given(st.integers(1, 2), st.integers(1, 2), st.integers(1, 12), st.integers(0, 1), SEEDS)
@settings(max_examples=12)
def test_non_max_suppression(batch: int, classes: int, count: int, centred: int, seed: int) -> None:
    rng = random(seed)
    boxes, scores = rng.uniform(0.1, 1, (batch, count, 4)), rng.uniform(0, 1, (batch, classes, count))
    limits = [np.array([k], dtype) for k, dtype in ((4, np.int64), (0.4, np.float32), (0.2, np.float32))]
    inputs = [boxes.astype(np.float32), scores.astype(np.float32), *limits]
    check("NonMaxSuppression", inputs, {"center_point_box": centred}, opset=11)


def test_areas_that_overflow_are_no_warning() -> None:
    rng = np.random.default_rng(0)
    low = rng.random((1, 40, 2), dtype=np.float32)
    boxes = np.concatenate([low, low + rng.random((1, 40, 2), dtype=np.float32)], 2) * np.float32(1e25)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inputs = [
            boxes,
            rng.random((1, 2, 40), dtype=np.float32),
            np.array([10], np.int64),
            np.array([0.3], np.float32),
        ]
        check("NonMaxSuppression", inputs, opset=11)


@pytest.mark.parametrize("kept", [0, 2])
def test_without_limits(kept: int) -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3]]], np.float32)
    scores = np.array([[[0.5, 0.6, 0.7]]], np.float32)
    check("NonMaxSuppression", [boxes, scores, np.array([kept], np.int64)], opset=11)


@pytest.mark.parametrize("side", [0.02, 0.3])
def test_many_boxes_of_which_few_or_most_are_kept(side: float) -> None:
    rng = random(3)
    boxes, scores = rng.uniform(0, 1, (1, 400, 4)), rng.uniform(0, 1, (1, 2, 400))
    boxes[..., 2:] *= side
    limits = [np.array([300], np.int64), np.array([0.3], np.float32), np.array([0.05], np.float32)]
    inputs = [boxes.astype(np.float32), scores.astype(np.float32), *limits]
    check("NonMaxSuppression", inputs, {"center_point_box": 1}, opset=11)


@pytest.mark.parametrize("most", [3, 12])
def test_first_boxes_of_many_classes_are_enough_for_some(most: int) -> None:
    """Six classes of 60 boxes, three of which crowd round one place: few of their best ones stay."""
    rng = random(7)
    boxes, scores = rng.uniform(0, 9, (2, 60, 4)), rng.uniform(0, 1, (2, 3, 60))
    boxes[0, :, :2] = rng.uniform(4, 5, (60, 2))
    boxes[..., 2:] = 2
    limits = [np.array([most], np.int64), np.array([0.3], np.float32), np.array([0.05], np.float32)]
    inputs = [boxes.astype(np.float32), scores.astype(np.float32), *limits]
    check("NonMaxSuppression", inputs, {"center_point_box": 1}, opset=11)


@pytest.mark.parametrize("device", [None, "interp"])
def test_classes_of_few_and_of_many_boxes_beside_one_another_with_scores_that_tie(device: str | None) -> None:
    rng = random(5)
    boxes: Any = rng.uniform(0, 9, (2, 150, 4)).astype(np.float32)
    scores: Any = rng.integers(0, 11, (2, 3, 150)).astype(np.float32) / 10
    scores[:, 1] *= rng.uniform(0, 1, (2, 150)) < 0.05  # a few are in question, and most are in the other classes
    scores[0, 2] = 0
    limits: list[Any] = [np.array([90], np.int64), np.array([0.6], np.float32), np.array([0.05], np.float32)]
    model = a_model("NonMaxSuppression", [boxes, scores, *limits], opset=11)
    feeds: dict[str, Any] = {f"x{k}": v for k, v in enumerate([boxes, scores, *limits])}
    (found,) = tile_onnx.load(model, device=device).run(feeds).values()
    np.testing.assert_array_equal(found, outputs_of(model, feeds, False)[0])
