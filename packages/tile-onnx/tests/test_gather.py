"""Gathers and scatters beside ONNX Runtime: any axis, negative indices, every reduction."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from peer import SEEDS, check, numbers, random

SHAPES = arrays_of.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=5)
DTYPES = st.sampled_from(["float32", "float16", "int64", "uint8", "bool"])
INDICES = st.sampled_from(["int32", "int64"])
REDUCTIONS = ["none", "add", "mul", "max", "min"]


def places(size: int, shape: Any, seed: int, dtype: str = "int64") -> Any:
    """Numbers of `size` cells, some counted from the end."""
    return random(seed).integers(-size, size, shape).astype(dtype)


@given(SHAPES, arrays_of.array_shapes(min_dims=0, max_dims=2, max_side=4), DTYPES, INDICES, st.data(), SEEDS)
@settings(max_examples=12)
def test_gather(shape: Any, wanted: Any, dtype: str, kind: str, data: Any, seed: int) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    indices = np.asarray(places(shape[axis], wanted, seed, kind))
    constant = data.draw(st.sampled_from([(), (0,), (1,)]))
    check("Gather", [numbers(dtype, shape, seed), indices], {"axis": axis}, constant=constant)


@st.composite
def along(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """A shape, that of indices into it, no larger except along the axis, and the axis."""
    shape = draw(SHAPES)
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    sizes = [draw(st.integers(1, n)) for n in shape]
    sizes[axis] = draw(st.integers(1, 5))
    return shape, tuple(sizes), axis


@given(along(), DTYPES, INDICES, SEEDS)
@settings(max_examples=12)
def test_gather_elements(what: Any, dtype: str, kind: str, seed: int) -> None:
    shape, sizes, axis = what
    check("GatherElements", [numbers(dtype, shape, seed), places(shape[axis], sizes, seed, kind)], {"axis": axis})


@st.composite
def tuples(draw: Any) -> tuple[tuple[int, ...], int, tuple[int, ...], int]:
    """A shape, how many of its dimensions are batches, the shape of the index tuples, their length."""
    shape = draw(SHAPES)
    batch = draw(st.integers(0, min(2, len(shape) - 1)))
    depth = draw(st.integers(1, len(shape) - batch))
    free = draw(st.lists(st.integers(1, 3), min_size=0 if batch else 1, max_size=2))
    return shape, batch, (*shape[:batch], *free, depth), depth


@given(tuples(), DTYPES, SEEDS)
@settings(max_examples=12)
def test_gather_nd(what: Any, dtype: str, seed: int) -> None:
    shape, batch, sizes, depth = what
    indices = np.stack([places(shape[batch + k], sizes[:-1], seed + k) for k in range(depth)], -1)
    check("GatherND", [numbers(dtype, shape, seed), indices], {"batch_dims": batch})


@given(along(), st.sampled_from(REDUCTIONS), st.sampled_from(["float32", "int64"]), INDICES, SEEDS)
@settings(max_examples=15)
def test_scatter_elements(what: Any, reduction: str, dtype: str, kind: str, seed: int) -> None:
    shape, sizes, axis = what
    if reduction == "none":
        # Several updates of one cell are only defined where they are combined.
        sizes = tuple(min(n, m) for n, m in zip(sizes, shape, strict=True))
        order = np.argsort(random(seed).random(shape), axis)
        indices = np.take(order, range(sizes[axis]), axis)[tuple(map(slice, sizes))].astype(kind)
    else:
        indices = places(shape[axis], sizes, seed, kind)
    inputs = [numbers(dtype, shape, seed), indices, numbers(dtype, sizes, seed + 1)]
    check("ScatterElements", inputs, {"axis": axis, "reduction": reduction}, opset=18, rtol=1e-4, atol=1e-4)


@given(tuples(), st.sampled_from(REDUCTIONS), st.sampled_from(["float32", "int64"]), SEEDS)
@settings(max_examples=15)
def test_scatter_nd(what: Any, reduction: str, dtype: str, seed: int) -> None:
    shape, _, sizes, depth = what
    if reduction == "none":
        cells: Any = random(seed).permutation(prod(shape[:depth]))[:3]
        indices: Any = np.stack([np.asarray(c) for c in np.unravel_index(cells, shape[:depth])], -1)  # pyright: ignore
    else:
        indices = np.stack([places(shape[k], sizes[:-1], seed + k) for k in range(depth)], -1)
    updates = numbers(dtype, (*indices.shape[:-1], *shape[depth:]), seed + 1)
    inputs = [numbers(dtype, shape, seed), indices.astype(np.int64), updates]
    check("ScatterND", inputs, {"reduction": reduction}, opset=18, rtol=1e-4, atol=1e-4)


@given(SHAPES, st.integers(-3, 2), st.sampled_from(["int64", "int32", "float32"]), SEEDS)
@settings(max_examples=12)
def test_one_hot(shape: Any, axis: int, dtype: str, seed: int) -> None:
    axis = max(-len(shape) - 1, min(axis, len(shape)))
    inputs = [places(6, shape, seed, dtype), np.array(5, np.int64), np.array([2, 7], np.float32)]
    check("OneHot", inputs, {"axis": axis}, constant=(1,))


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [-2, 1])
def test_tensor_scatter(mode: str, axis: int) -> None:
    starts = np.array([2, 0] if mode == "linear" else [4, 3], np.int64)
    cache, update = numbers("float32", (2, 5, 3), 0), numbers("float32", (2, 3, 3), 1)
    check("TensorScatter", [cache, update, starts], {"mode": mode, "axis": axis}, opset=24)
