"""The executable definition of the scalar operations, checked against exact Python arithmetic."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir import numerics
from tile_ir.dots import DOTS
from tile_ir.dtype import DType
from tile_ir.ops import OPS, Aggregation, Signature

INTEGERS = [d for d in DType if d.is_integer]
FLOATS = [d for d in DType if d.is_float]
pytest.importorskip("ml_dtypes")


def array(values: Any, dtype: DType) -> Any:
    return np.asarray(values).astype(dtype.numpy)


def wrap(value: int, dtype: DType) -> int:
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.is_signed and value >> (dtype.bits - 1) else value


def truncated(a: int, b: int) -> int:
    if b == 0:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


EXACT = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": truncated,
    "max": max,
    "min": min,
}


@st.composite
def integer_pairs(draw: st.DrawFn) -> tuple[DType, int, int]:
    dtype = draw(st.sampled_from(INTEGERS))
    low, high = int(dtype.min_value), int(dtype.max_value)
    edges = st.sampled_from([low, high, 0, 1, max(low, -1), high - 1])
    value = st.one_of(edges, st.integers(low, high))
    return dtype, draw(value), draw(value)


@settings(max_examples=150)
@given(integer_pairs())
def test_integer_arithmetic_is_exact_modulo_width(case: tuple[DType, int, int]) -> None:
    dtype, a, b = case
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, exact in EXACT.items():
            got = numerics.apply(name, (array(a, dtype), array(b, dtype)), dtype)
            assert got.dtype == dtype.numpy
            assert int(got) == wrap(exact(a, b), dtype), name
        assert int(numerics.apply("neg", (array(a, dtype),), dtype)) == wrap(-a, dtype)
        assert int(numerics.apply("abs", (array(a, dtype),), dtype)) == wrap(abs(a), dtype)


@settings(max_examples=150)
@given(integer_pairs(), st.one_of(st.integers(-70, 70), st.sampled_from([-(2**63), 2**63 - 1])))
def test_shifts_are_total(case: tuple[DType, int, int], count: int) -> None:
    dtype, a, _ = case
    inside = 0 <= count < dtype.bits
    left = wrap(a << count, dtype) if inside else 0
    right = a >> count if inside else (-1 if a < 0 else 0)
    counts = np.asarray(count, np.int64)
    assert int(numerics.apply("bit_left", (array(a, dtype), counts), dtype)) == left
    assert int(numerics.apply("bit_right", (array(a, dtype), counts), dtype)) == right


def test_shift_counts_of_any_integer_dtype() -> None:
    value = np.asarray([1, -8], np.int32)
    counts = np.asarray([2**64 - 1, 2**63], np.uint64)
    assert numerics.apply("bit_left", (value, counts), DType.INT32).tolist() == [0, 0]
    assert numerics.apply("bit_right", (value, counts), DType.INT32).tolist() == [0, -1]


@settings(max_examples=150)
@given(st.sampled_from(INTEGERS), st.floats(width=64))
def test_float_to_integer_saturates(dtype: DType, value: float) -> None:
    low, high = int(dtype.min_value), int(dtype.max_value)
    expected = 0 if math.isnan(value) else high if value >= high else low if value <= low else int(value)
    assert int(numerics.apply("cast", (np.asarray(value),), dtype)) == expected


def test_casts_between_integers_wrap_and_to_bool_compare_with_zero() -> None:
    assert numerics.apply("cast", (np.asarray([300, -1]),), DType.UINT8).tolist() == [44, 255]
    assert numerics.apply("cast", (np.asarray([0.0, -0.0, 0.5, np.nan]),), DType.BOOL).tolist() == [
        False, False, True, True,
    ]  # fmt: skip
    assert numerics.apply("cast", (np.asarray([True, False]),), DType.BFLOAT16).astype(float).tolist() == [1.0, 0.0]


def test_half_types_compute_in_float32_and_round_once() -> None:
    for dtype in (DType.FLOAT16, DType.BFLOAT16):
        a, b = array([1.0, 3.0, 1e-3], dtype), array([3.0, 7.0, 5.0], dtype)
        expected = (a.astype(np.float32) / b.astype(np.float32)).astype(dtype.numpy)
        got = numerics.apply("div", (a, b), dtype)
        assert got.dtype == dtype.numpy and got.tobytes() == expected.tobytes()
        exp = np.exp(a.astype(np.float64)).astype(np.float32).astype(dtype.numpy)
        assert numerics.apply("exp", (a,), dtype).tobytes() == exp.tobytes()


def test_round_is_half_away_from_zero() -> None:
    values = np.asarray([0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, -0.2, 8388609.0, np.inf], np.float32)
    got = numerics.apply("round", (values,), DType.FLOAT32)
    assert got.tolist() == [1.0, -1.0, 2.0, 3.0, -3.0, 0.0, 0.0, 8388609.0, np.inf]
    assert np.signbit(got[6])


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_propagates_through_max_and_min(dtype: DType) -> None:
    a, b = array([np.nan, 1.0, 2.0], dtype), array([1.0, np.nan, 3.0], dtype)
    for name, last in (("max", 3.0), ("min", 2.0)):
        got = numerics.apply(name, (a, b), dtype).astype(np.float64)
        assert np.isnan(got[:2]).all() and got[2] == last
    for agg in (Aggregation.MAX, Aggregation.MIN):
        assert np.isnan(numerics.aggregate(agg, a, None, dtype).astype(np.float64))


def test_bool_arithmetic_is_integer_arithmetic_not_equal_zero() -> None:
    a, b = np.asarray([False, False, True, True]), np.asarray([False, True, False, True])
    table = {"add": [0, 1, 1, 1], "sub": [0, 1, 1, 0], "mul": [0, 0, 0, 1], "div": [0, 0, 0, 1], "max": [0, 1, 1, 1]}
    for name, expected in table.items():
        assert numerics.apply(name, (a, b), DType.BOOL).tolist() == [bool(v) for v in expected], name
    assert numerics.apply("bit_not", (a,), DType.BOOL).tolist() == [True, True, False, False]


def takes(name: str, dtype: DType) -> bool:
    signature = OPS[name].signature
    if signature is Signature.MATH:
        return dtype.is_float
    if signature is Signature.DOT:
        return dtype is DOTS[name].c
    return not (signature in (Signature.BITS, Signature.SHIFT) and dtype.is_float)


@pytest.mark.parametrize(("name", "dtype"), [(n, d) for n in OPS for d in DType if takes(n, d)])
def test_every_operation_has_a_definition_for_its_dtypes(name: str, dtype: DType) -> None:
    op = OPS[name]
    values = [array([[0, 1, 1]], dtype), array([[1], [0]], dtype), array([1, 0, 1], dtype)][: op.arity]
    if op.signature is Signature.SELECT:
        values[0] = values[0].astype(bool)
    if op.signature is Signature.SHIFT:
        values[1] = values[1].astype(np.int32)
    result = DType.BOOL if op.signature is Signature.COMPARE else dtype
    got = numerics.apply(name, values, result)
    assert got.dtype == result.numpy
    assert got.shape == np.broadcast_shapes(*(v.shape for v in values))


@pytest.mark.parametrize("agg", list(Aggregation))
@pytest.mark.parametrize("dtype", list(DType))
def test_aggregate_equals_folding_merge_from_the_identity(agg: Aggregation, dtype: DType) -> None:
    values = array([[1, 0, 1], [1, 1, 1]], dtype)
    folded = np.broadcast_to(numerics.identity(agg, dtype), (3,))
    for row in values:
        folded = numerics.merge(agg, folded, row, dtype)
    got = numerics.aggregate(agg, values, 0, dtype)
    assert got.dtype == dtype.numpy and got.tolist() == folded.tolist()
    empty = numerics.aggregate(agg, values[:0], 0, dtype)
    assert empty.tolist() == [numerics.identity(agg, dtype).item()] * 3


def test_sums_wrap_and_half_sums_accumulate_in_float32() -> None:
    assert int(numerics.aggregate(Aggregation.SUM, np.full(3, 100, np.int8), None, DType.INT8)) == 44
    many = np.full(5000, 1.0, np.float16)
    assert float(numerics.aggregate(Aggregation.SUM, many)) == 5000.0


def test_wrong_arity_is_an_error() -> None:
    with pytest.raises(ValueError, match="add takes 2 operands"):
        numerics.apply("add", (np.zeros(1),), DType.FLOAT64)
