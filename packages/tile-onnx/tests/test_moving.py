"""Operators that move elements, beside ONNX Runtime: any rank, axes, steps and pads, of every kind of dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from peer import SEEDS, check, numbers, random

SHAPES = arrays_of.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=5)
DTYPES = st.sampled_from(["float32", "float16", "int64", "uint8", "bool"])


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


@given(SHAPES, DTYPES, st.randoms(use_true_random=False), SEEDS)
@settings(max_examples=15)
def test_transpose(shape: tuple[int, ...], dtype: str, shuffler: Any, seed: int) -> None:
    order = list(range(len(shape)))
    shuffler.shuffle(order)
    check("Transpose", [numbers(dtype, shape, seed)], {"perm": order})


@st.composite
def slices(draw: Any) -> tuple[tuple[int, ...], list[list[int]]]:
    """A shape; starts, ends, axes and steps, in and out of range."""
    shape = draw(SHAPES)
    axes = draw(st.lists(st.integers(-len(shape), len(shape) - 1), min_size=1, unique_by=lambda a: a % len(shape)))
    numbers_ = st.lists(st.integers(-8, 8), min_size=len(axes), max_size=len(axes))
    far = st.lists(st.sampled_from([-(2**62), -7, -2, 0, 1, 3, 6, 2**62]), min_size=len(axes), max_size=len(axes))
    steps = st.lists(st.sampled_from([-3, -2, -1, 1, 2, 3]), min_size=len(axes), max_size=len(axes))
    return shape, [draw(numbers_), draw(far), axes, draw(steps)]


@given(slices(), DTYPES, SEEDS)
@settings(max_examples=15)
def test_slice(what: Any, dtype: str, seed: int) -> None:
    shape, bounds = what
    check("Slice", [numbers(dtype, shape, seed), *(ints(*b) for b in bounds)], constant=(1, 2, 3, 4))


@st.composite
def pads(draw: Any) -> tuple[tuple[int, ...], list[int], str, list[int] | None]:
    mode = draw(st.sampled_from(["constant", "reflect", "edge", "wrap"]))
    shape = draw(arrays_of.array_shapes(min_dims=1, max_dims=3, min_side=3, max_side=6))
    axes = draw(st.one_of(st.none(), st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True)))
    count = 2 * len(shape if axes is None else axes)
    low = -1 if mode == "constant" else 0
    return shape, draw(st.lists(st.integers(low, 2), min_size=count, max_size=count)), mode, axes


@given(pads(), st.sampled_from(["float32", "int64", "uint8"]), st.booleans(), SEEDS)
@settings(max_examples=15)
def test_pad(what: Any, dtype: str, filled: bool, seed: int) -> None:
    shape, amounts, mode, axes = what
    value = np.asarray(3, dtype) if filled and mode == "constant" else None
    inputs = [numbers(dtype, shape, seed), ints(*amounts), value, *([] if axes is None else [ints(*axes)])]
    check("Pad", inputs if value is not None or axes is not None else inputs[:2], {"mode": mode}, constant=(1, 3))


@given(SHAPES, st.lists(st.integers(0, 4), min_size=1, max_size=20), DTYPES, st.data(), SEEDS)
@settings(max_examples=15)
def test_concat_and_split(shape: tuple[int, ...], sizes: list[int], dtype: str, data: Any, seed: int) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    k = axis % len(shape)
    parts = [numbers(dtype, (*shape[:k], n, *shape[k + 1 :]), seed + n) for n in sizes]
    check("Concat", parts, {"axis": axis})
    whole = np.concatenate(parts, k)
    check("Split", [whole, ints(*sizes)], {"axis": axis}, opset=13, outputs=len(sizes), constant=(1,))
    if whole.shape[k] >= 2:
        check("Split", [whole], {"axis": axis, "num_outputs": 2}, opset=18, outputs=2)


@given(SHAPES, DTYPES, st.data(), SEEDS)
@settings(max_examples=15)
def test_expand_and_tile(shape: tuple[int, ...], dtype: str, data: Any, seed: int) -> None:
    values = numbers(dtype, shape, seed)
    repeats = data.draw(st.lists(st.integers(0, 3), min_size=len(shape), max_size=len(shape)))
    check("Tile", [values, ints(*repeats)], constant=(1,))
    thin = values[tuple(slice(0, 1) if r % 2 else slice(None) for r in repeats)]
    wide = [r + 1 if n == 1 else data.draw(st.sampled_from([1, n])) for r, n in zip(repeats, thin.shape, strict=True)]
    front = data.draw(st.lists(st.integers(1, 2), max_size=2))
    check("Expand", [thin, ints(*front, *wide)], constant=(1,))


@pytest.mark.parametrize(
    ("shape", "wanted"), [((2, 3, 4), (4, -1)), ((2, 3, 4), (0, 2, -1)), ((0, 3), (3, -1)), ((6,), (1, 6, 1))]
)
def test_reshape(shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    check("Reshape", [numbers("float32", shape, 0), ints(*wanted)], constant=(1,))


def test_reshape_to_nothing() -> None:
    check("Reshape", [numbers("float32", (0, 3), 0), ints(3, 0)], {"allowzero": 1}, constant=(1,))


@pytest.mark.parametrize("op", ["SpaceToDepth", "DepthToSpace"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_blocks(op: str, dtype: str) -> None:
    check(op, [numbers(dtype, (2, 8, 4, 6), 0)], {"blocksize": 2}, opset=13)


@given(st.lists(st.integers(1, 7), min_size=3, max_size=3), st.lists(st.integers(1, 7), min_size=2, max_size=2), SEEDS)
@settings(max_examples=10)
def test_center_crop_pad(shape: list[int], wanted: list[int], seed: int) -> None:
    inputs = [numbers("float32", tuple(shape), seed), ints(*wanted)]
    check("CenterCropPad", inputs, {"axes": [-1, 0]}, opset=18, constant=(1,))


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 1), SEEDS)
@settings(max_examples=10)
def test_reverse_sequence(moments: int, batch: int, time: int, seed: int) -> None:
    shape = (moments, batch, 2) if time == 0 else (batch, moments, 2)
    lengths = random(seed).integers(1, moments + 1, batch)
    inputs = [numbers("float32", shape, seed), lengths.astype(np.int64)]
    check("ReverseSequence", inputs, {"time_axis": time, "batch_axis": 1 - time}, opset=10)
