"""Normalisations and losses beside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from peer import SEEDS, check, numbers

IMAGES = arrays_of.array_shapes(min_dims=3, max_dims=5, min_side=1, max_side=4)
LIMITS = {"rtol": 1e-3, "atol": 1e-4}


def of_channels(count: int, seed: int, how_many: int = 2) -> list[np.ndarray[Any, Any]]:
    return [numbers("float32", (count,), seed + k) for k in range(how_many)]


@given(IMAGES, SEEDS, st.booleans())
@settings(max_examples=10)
def test_batch(shape: tuple[int, ...], seed: int, constant: bool) -> None:
    scale, bias, mean, variance = of_channels(shape[1], seed, 4)
    inputs = [numbers("float32", shape, seed), scale, bias, mean, np.abs(variance)]
    check("BatchNormalization", inputs, {"epsilon": 1e-3}, opset=15, constant=range(1, 5) if constant else (), **LIMITS)


def test_batch_in_training() -> None:
    inputs = [numbers("float32", (4, 3, 5), 0), *of_channels(3, 1, 4)]
    inputs[4] = np.abs(inputs[4])
    check("BatchNormalization", inputs, {"training_mode": 1, "momentum": 0.7}, opset=15, outputs=3, **LIMITS)


@given(IMAGES, SEEDS)
@settings(max_examples=8)
def test_instance(shape: tuple[int, ...], seed: int) -> None:
    check("InstanceNormalization", [numbers("float32", shape, seed), *of_channels(shape[1], seed)], **LIMITS)


def test_group() -> None:
    inputs = [numbers("float32", (2, 6, 4, 3), 0), *of_channels(6, 1)]
    check("GroupNormalization", inputs, {"num_groups": 3}, **LIMITS)


@given(arrays_of.array_shapes(min_dims=1, max_dims=4, min_side=2, max_side=5), SEEDS, st.booleans())
@settings(max_examples=12)
def test_layer(shape: tuple[int, ...], seed: int, bias: bool) -> None:
    axis = seed % len(shape)
    parameters = [numbers("float32", shape[axis:], seed + k) for k in range(1 + bias)]
    outputs = 1 + 2 * (seed % 2)
    check(
        "LayerNormalization", [numbers("float32", shape, seed), *parameters], {"axis": axis}, outputs=outputs, **LIMITS
    )


@pytest.mark.parametrize("axis", [-1, 1])
def test_root_mean_square(axis: int) -> None:
    shape = (2, 3, 8)
    inputs = [numbers("float32", shape, 0), numbers("float32", shape[axis:], 1)]
    check("RMSNormalization", inputs, {"axis": axis}, opset=23, **LIMITS)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, -1])
def test_by_norms(p: int, axis: int) -> None:
    values = numbers("float32", (3, 4, 5), 0)
    values[0, 0], values[:, 0, 0] = 0, 0
    check("LpNormalization", [values], {"p": p, "axis": axis}, **LIMITS)


@pytest.mark.parametrize("size", [1, 3, 5, 9])
def test_local_response(size: int) -> None:
    check("LRN", [numbers("float32", (2, 6, 3, 3), size)], {"size": size, "alpha": 0.3, "bias": 2.0}, **LIMITS)


@pytest.mark.parametrize("axes", [(0, 2, 3), (1,), (0, 1, 2, 3)])
def test_mean_variance(axes: tuple[int, ...]) -> None:
    check("MeanVarianceNormalization", [numbers("float32", (2, 3, 4, 5), 0)], {"axes": axes}, **LIMITS)
