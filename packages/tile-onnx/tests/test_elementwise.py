"""Elementwise operators beside ONNX Runtime: random dtypes, shapes, broadcasting, infinities and NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from peer import FLOATS, INTEGERS, SEEDS, SHAPES, check, numbers

PAIRS = arrays_of.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4)
TRIPLES = arrays_of.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, max_side=4)
CONSTANT = st.sampled_from([(), (0,), (1,)])

OF_FLOATS = [
    "Abs",
    "Neg",
    "Ceil",
    "Floor",
    "Round",
    "Reciprocal",
    "Sqrt",
    "Exp",
    "Log",
    "Erf",
    "Sin",
    "Cos",
    "Tan",
    "Asin",
    "Acos",
    "Atan",
    "Sinh",
    "Cosh",
    "Tanh",
    "Asinh",
    "Acosh",
    "Atanh",
    "Sign",
    "IsNaN",
    "IsInf",
    "Sigmoid",
    "Softplus",
    "Softsign",
    "Mish",
    "HardSwish",
    "LeakyRelu",
    "Elu",
    "Celu",
    "Selu",
    "HardSigmoid",
    "ThresholdedRelu",
    "Relu",
]
OF_TWO = ["Add", "Sub", "Mul", "Div", "Max", "Min", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"]


@given(st.sampled_from(OF_FLOATS), st.sampled_from(FLOATS), SHAPES, SEEDS)
@settings(max_examples=40)
def test_functions_of_floats(op: str, dtype: str, shape: tuple[int, ...], seed: int) -> None:
    special = op not in ("Tan", "Softplus", "Mish", "HardSwish", "Celu", "Softsign")  # there ONNX Runtime loses NaN
    values = numbers("float32" if op == "Celu" else dtype, shape, seed, special)
    check(op, [values], rtol=1e-2 if dtype == "float16" else 1e-4, atol=1e-2 if dtype == "float16" else 1e-6)


@given(st.sampled_from(["Abs", "Neg", "Sign"]), st.sampled_from(["int8", "int32", "int64"]), SHAPES, SEEDS)
@settings(max_examples=8)
def test_functions_of_integers(op: str, dtype: str, shape: tuple[int, ...], seed: int) -> None:
    check(op, [numbers(dtype, shape, seed)])


@given(st.sampled_from(OF_TWO), st.sampled_from((*FLOATS, *INTEGERS)), PAIRS, SEEDS, CONSTANT)
@settings(max_examples=30)
def test_two_operands(op: str, dtype: str, shapes: Any, seed: int, constant: tuple[int, ...]) -> None:
    a, b = (numbers(dtype, s, seed + k, special=op != "Div") for k, s in enumerate(shapes.input_shapes))
    b = np.where(b == 0, np.ones_like(b), b) if op == "Div" else b
    check(op, [a, b], constant=constant)


@given(st.sampled_from(["And", "Or", "Xor", "Equal"]), PAIRS, SEEDS)
@settings(max_examples=8)
def test_logic(op: str, shapes: Any, seed: int) -> None:
    check(op, [numbers("bool", s, seed + k) for k, s in enumerate(shapes.input_shapes)])


@given(st.sampled_from(["BitwiseAnd", "BitwiseOr", "BitwiseXor"]), st.sampled_from(INTEGERS), PAIRS, SEEDS)
@settings(max_examples=8)
def test_bits(op: str, dtype: str, shapes: Any, seed: int) -> None:
    check(op, [numbers(dtype, s, seed + k) for k, s in enumerate(shapes.input_shapes)])


@given(st.sampled_from(["LEFT", "RIGHT"]), st.sampled_from(["uint8", "uint32", "uint64"]), PAIRS, SEEDS)
@settings(max_examples=8)
def test_shifts(direction: str, dtype: str, shapes: Any, seed: int) -> None:
    a, b = (numbers(dtype, s, seed + k) for k, s in enumerate(shapes.input_shapes))
    check("BitShift", [a, b % 8], {"direction": direction})


@given(st.sampled_from(["Max", "Min", "Sum", "Mean"]), st.sampled_from(FLOATS[:2]), TRIPLES, SEEDS, CONSTANT)
@settings(max_examples=8)
def test_any_number_of_operands(op: str, dtype: str, shapes: Any, seed: int, constant: tuple[int, ...]) -> None:
    operands = [numbers(dtype, s, seed + k, special=True) for k, s in enumerate(shapes.input_shapes)]
    check(op, operands[: 1 + seed % 3], constant=[k for k in constant if k < 1 + seed % 3])


@given(st.sampled_from([*FLOATS[:2], "int8", "int64", "uint32", "bool"]), TRIPLES, SEEDS, CONSTANT)
@settings(max_examples=10)
def test_where(dtype: str, shapes: Any, seed: int, constant: tuple[int, ...]) -> None:
    c, a, b = shapes.input_shapes
    values = [numbers("bool", c, seed), numbers(dtype, a, seed + 1, special=True), numbers(dtype, b, seed + 2)]
    check("Where", values, constant=[k + 1 for k in constant])


@given(st.sampled_from(["float32", "float64", "int8", "int32", "uint8"]), SHAPES, SEEDS, st.booleans())
@settings(max_examples=10)
def test_clip(dtype: str, shape: tuple[int, ...], seed: int, constant: bool) -> None:
    low, high = np.array(2, dtype), np.array(7, dtype)
    bounds = [low if seed % 2 else None, high if seed % 3 else None]
    present = [k for k in (1, 2) if constant and bounds[k - 1] is not None]
    special = None not in bounds  # without a bound ONNX Runtime takes the largest float for it, and loses infinities
    check("Clip", [numbers(dtype, shape, seed, special), *bounds], constant=present, opset=13)


@pytest.mark.parametrize("bounds", [{}, {"min": -1.0}, {"max": 0.5}, {"min": -1.0, "max": 0.5}])
def test_clip_between_attributes(bounds: dict[str, float]) -> None:
    check("Clip", [numbers("float32", (4, 5), 0, special=len(bounds) == 2)], bounds, opset=10)


@given(st.booleans(), st.sampled_from(INTEGERS), PAIRS, SEEDS)
@settings(max_examples=12)
def test_remainders_of_integers(fmod: bool, dtype: str, shapes: Any, seed: int) -> None:
    a, b = (numbers(dtype, s, seed + k) for k, s in enumerate(shapes.input_shapes))
    check("Mod", [a, np.where(b == 0, np.ones_like(b), b)], {"fmod": int(fmod)}, opset=13)


@given(st.sampled_from(FLOATS[:2]), PAIRS, SEEDS)
@settings(max_examples=8)
def test_remainders_of_floats(dtype: str, shapes: Any, seed: int) -> None:
    a, b = (numbers(dtype, s, seed + k, special=True) for k, s in enumerate(shapes.input_shapes))
    check("Mod", [a, b], {"fmod": 1}, opset=13)


@given(
    st.sampled_from(["float32", "float64", "int32", "int64"]),
    st.sampled_from(["float32", "int32", "int64"]),
    PAIRS,
    SEEDS,
    CONSTANT,
)
@settings(max_examples=15)
def test_powers(base: str, exponent: str, shapes: Any, seed: int, constant: tuple[int, ...]) -> None:
    a, b = shapes.input_shapes
    bases, powers = numbers(base, a, seed), np.abs(numbers(exponent, b, seed + 1)) % 4
    bases = np.abs(bases) + 1 if exponent == "float32" else bases
    powers = np.trunc(powers) if base.startswith("int") else powers  # a fractional power is truncated
    check("Pow", [bases, powers.astype(exponent)], constant=constant, rtol=1e-4, atol=1e-5)


@given(st.sampled_from(["float32", "float64"]), PAIRS, SEEDS)
@settings(max_examples=8)
def test_prelu(dtype: str, shapes: Any, seed: int) -> None:
    slopes = numbers(dtype, shapes.input_shapes[1], seed)
    check("PRelu", [numbers(dtype, shapes.result_shape, seed), slopes])


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate: str) -> None:
    check("Gelu", [numbers("float32", (7, 9), 1)], {"approximate": approximate}, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_shrink(dtype: str) -> None:
    check("Shrink", [numbers(dtype, (5, 5), 1)], {"bias": 1.5, "lambd": 2.5})


@given(st.sampled_from([*FLOATS, *INTEGERS, "bool"]), st.sampled_from([*FLOATS, *INTEGERS, "bool"]), SHAPES, SEEDS)
@settings(max_examples=20)
def test_casts(source: str, target: str, shape: tuple[int, ...], seed: int) -> None:
    from onnx import helper

    values = numbers(source, shape, seed)
    values = np.abs(values) if source != "bool" and target.startswith("u") else values
    check("Cast", [values], {"to": helper.np_dtype_to_tensor_dtype(np.dtype(target))})
