"""Quantisation beside ONNX Runtime: by tensor, axis and block; ties round to even, and everything saturates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from peer import SEEDS, check, numbers

SHAPES = arrays_of.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=5)
DTYPES = st.sampled_from(["uint8", "int8", "uint16", "int16"])


def scales(shape: tuple[int, ...], seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.exp2(np.random.default_rng(seed).integers(-6, 2, shape)).astype(np.float32)


@given(DTYPES, SHAPES, SEEDS, st.booleans(), st.booleans())
@settings(max_examples=20)
def test_to_integers(dtype: str, shape: tuple[int, ...], seed: int, by_axis: bool, constant: bool) -> None:
    axis = seed % len(shape)
    granularity = (shape[axis],) if by_axis else ()
    values = np.round(numbers("float32", shape, seed) * 8) / 8  # many ties
    inputs = [values, scales(granularity, seed), numbers(dtype, granularity, seed)]
    check("QuantizeLinear", inputs, {"axis": axis}, constant=(1, 2) if constant else ())


@given(DTYPES, SHAPES, SEEDS, st.booleans(), st.booleans())
@settings(max_examples=20)
def test_from_integers(dtype: str, shape: tuple[int, ...], seed: int, by_axis: bool, constant: bool) -> None:
    axis = seed % len(shape)
    granularity = (shape[axis],) if by_axis else ()
    inputs = [numbers(dtype, shape, seed), scales(granularity, seed), numbers(dtype, granularity, seed)]
    check("DequantizeLinear", inputs[: 2 + seed % 2], {"axis": axis}, constant=[1] if constant else ())


@pytest.mark.parametrize(("axis", "block"), [(0, 2), (1, 3), (1, 4), (2, 5)])
def test_by_blocks(axis: int, block: int) -> None:
    shape = (4, 6, 5)
    granularity = tuple(-(-size // block) if k == axis else size for k, size in enumerate(shape))
    if shape[axis] % block:
        return
    attributes = {"axis": axis, "block_size": block}
    points = numbers("int8", granularity, 1)
    check("QuantizeLinear", [numbers("float32", shape, 0), scales(granularity, 2), points], attributes)
    check("DequantizeLinear", [numbers("int8", shape, 0), scales(granularity, 2), points], attributes)


def test_what_does_not_fit_saturates() -> None:
    values = np.array([-1e30, -np.inf, 1e30, np.inf, 300.5, -300.5, 127.5], np.float32)
    for dtype in ("uint8", "int8", "int16"):
        check("QuantizeLinear", [values, np.array(1, np.float32), np.array(5, dtype)])


@pytest.mark.parametrize("values", [[0.0, 2.0, -3.0, -2.5, 1.34, 0.5], [1.0, 2.1, 1.3], [-4.0, -1.0], [0.0, 0.0]])
def test_dynamically(values: list[float]) -> None:
    check("DynamicQuantizeLinear", [np.array(values, np.float32)], outputs=3)


@given(st.tuples(*[st.integers(1, 5)] * 3), st.sampled_from(["uint8", "int8"]), st.booleans(), SEEDS)
@settings(max_examples=12)
def test_quantised_products(sizes: tuple[int, int, int], dtype: str, by_column: bool, seed: int) -> None:
    m, k, n = sizes
    granularity = (n,) if by_column else ()
    a = [numbers(dtype, (m, k), seed), scales((), seed), numbers(dtype, (), seed)]
    b = [numbers(dtype, (k, n), seed + 1), scales(granularity, seed), numbers(dtype, granularity, seed)]
    check("QLinearMatMul", [*a, *b, scales((), seed + 2), numbers(dtype, (), seed + 2)], constant=range(3, 8))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_convolutions(groups: int, by_channel: bool, dtype: str) -> None:
    channels = 4
    granularity = (channels,) if by_channel else ()
    image = [numbers(dtype, (2, 4, 5, 6), 0), scales((), 0), numbers(dtype, (), 1)]
    points = np.zeros(granularity, "int8")  # the only ones that ONNX Runtime takes for channels
    weights = [numbers("int8", (channels, 4 // groups, 3, 3), 2), scales(granularity, 3), points]
    result = [np.array(8, np.float32), numbers(dtype, (), 4), numbers("int32", (channels,), 5)]
    attributes = {"group": groups, "pads": [1, 1, 1, 1], "strides": [1, 2]}
    check("QLinearConv", [*image, *weights, *result], attributes, constant=(1, 2, 4, 5, 6, 7, 8))
    if dtype == "uint8":
        check("ConvInteger", [image[0], weights[0], image[2]], attributes, constant=(2,))
