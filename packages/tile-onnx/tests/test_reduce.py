"""Reductions, softmax and scans beside ONNX Runtime: any axes, empty tensors, every form of opset."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from peer import SEEDS, check, numbers

SHAPES = arrays_of.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=5)
REDUCTIONS = ["Sum", "Mean", "Prod", "Max", "Min", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"]
DTYPES = st.sampled_from(["float32", "float64", "int32"])


@st.composite
def reductions(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    shape = draw(SHAPES)
    axes = draw(st.lists(st.integers(-len(shape), len(shape) - 1), max_size=3, unique_by=lambda a: a % len(shape)))
    return shape, tuple(axes), draw(st.integers(0, 1))


@given(st.sampled_from(REDUCTIONS), DTYPES, reductions(), st.sampled_from([11, 13, 18]), SEEDS)
@settings(max_examples=40)
def test_reductions(kind: str, dtype: str, what: Any, opset: int, seed: int) -> None:
    shape, axes, keep = what
    values = numbers(dtype, shape, seed)
    dtype = "float32" if kind in ("L2", "LogSum", "LogSumExp") else dtype
    values = np.abs(values).astype(dtype) + 1 if "Log" in kind else values.astype(dtype)
    attributes: dict[str, Any] = {"keepdims": keep}
    as_input = opset >= 18 or (kind == "Sum" and opset >= 13)
    if axes and not as_input:
        attributes["axes"] = axes
    inputs = [values, np.array(axes, np.int64)] if as_input else [values]
    check(f"Reduce{kind}", inputs, attributes, opset=opset, constant=(1,), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_no_axes_and_no_reduction(kind: str) -> None:
    values = np.abs(numbers("float32", (2, 3), 0))
    inputs = [values, np.array([], np.int64)]
    check(f"Reduce{kind}", inputs, {"noop_with_empty_axes": 1}, opset=18, constant=(1,))


@pytest.mark.parametrize("kind", ["Sum", "Prod", "L1", "L2", "SumSquare", "Max", "Min"])
@pytest.mark.parametrize("keep", [0, 1])
def test_of_nothing(kind: str, keep: int) -> None:
    inputs = [np.zeros((2, 0, 4), np.float32), np.array([1], np.int64)]
    check(f"Reduce{kind}", inputs, {"keepdims": keep}, opset=20, constant=(1,))


def test_infinities_in_a_sum_of_exponentials() -> None:
    values = np.array([[-np.inf, -np.inf], [np.inf, 1], [-np.inf, 2], [1000, 1000]], np.float32)
    inputs = [values, np.array([1], np.int64)]
    check("ReduceLogSumExp", inputs, {"keepdims": 0}, opset=18, constant=(1,))


@given(st.sampled_from(["ArgMax", "ArgMin"]), DTYPES, SHAPES, st.integers(0, 7), SEEDS)
@settings(max_examples=15)
def test_where_the_largest_stands(op: str, dtype: str, shape: tuple[int, ...], choice: int, seed: int) -> None:
    values = numbers(dtype, shape, seed)
    values = np.round(values) if dtype != "int32" else values % 3
    attributes = {"axis": seed % len(shape), "keepdims": choice & 1, "select_last_index": choice >> 1 & 1}
    check(op, [values], attributes, opset=13)


@given(st.sampled_from(["Softmax", "LogSoftmax", "Hardmax"]), SHAPES, st.sampled_from([11, 13]), SEEDS)
@settings(max_examples=20)
def test_softmax(op: str, shape: tuple[int, ...], opset: int, seed: int) -> None:
    values = numbers(["float32", "float64"][seed % 2], shape, seed, scale=30)
    check(op, [values], {"axis": seed % len(shape) - (seed % 3 == 0) * len(shape)}, opset=opset)


@given(st.sampled_from(["float32", "float64", "int32", "int64"]), SHAPES, st.integers(0, 3), SEEDS)
@settings(max_examples=12)
def test_cumulative_sums(dtype: str, shape: tuple[int, ...], choice: int, seed: int) -> None:
    axis = np.array(seed % len(shape), np.int64)
    attributes = {"exclusive": choice & 1, "reverse": choice >> 1}
    check("CumSum", [numbers(dtype, shape, seed), axis], attributes, opset=14, constant=(1,), atol=1e-5)


@pytest.mark.parametrize("choice", range(4))
def test_cumulative_products(choice: int) -> None:
    values, attributes = numbers("float32", (3, 6, 2), 0), {"exclusive": choice & 1, "reverse": choice >> 1}
    check("CumProd", [values, np.array(1, np.int64)], attributes, opset=26, constant=(1,))


@given(SHAPES, st.integers(1, 4), st.booleans(), SEEDS)
@settings(max_examples=12)
def test_top_k(shape: tuple[int, ...], k: int, largest: bool, seed: int) -> None:
    axis = seed % len(shape)
    count = np.array([min(k, shape[axis])], np.int64)
    values = np.round(numbers("float32", shape, seed))
    check("TopK", [values, count], {"axis": axis, "largest": int(largest)}, outputs=2, constant=(1,))


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_of_many(dtype: str, largest: int) -> None:
    values = (np.random.default_rng(0).integers(0, 200, (2, 2000, 2))).astype(dtype)
    check("TopK", [values, np.array([7], np.int64)], {"axis": 1, "largest": largest}, outputs=2, constant=(1,))
