"""Operators of ONNX Runtime's own domain beside ONNX Runtime."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from peer import check as check_any
from peer import numbers

check = functools.partial(check_any, domain="com.microsoft")
LIMITS = {"rtol": 1e-4, "atol": 1e-5}


def floats(*shape: int, seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return numbers("float32", shape, seed, scale=1)


@pytest.mark.parametrize("op", ["Gelu", "BiasGelu", "FastGelu", "QuickGelu"])
def test_gelu(op: str) -> None:
    check(op, [floats(3, 4, 5), *([floats(5, seed=1)] if op in ("BiasGelu", "FastGelu") else [])], **LIMITS)


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_what_skips_and_normalises(op: str) -> None:
    parameters = [floats(8, seed=k) for k in range(3 if op == "SkipLayerNormalization" else 2)]
    inputs = [floats(2, 3, 8), floats(2, 3, 8, seed=9), *parameters]
    check(op, inputs, {"epsilon": 1e-5}, **LIMITS)


@pytest.mark.parametrize("flips", range(4))
def test_fused_matmul(flips: int) -> None:
    a, b = floats(2, 3, 4), floats(2, 4, 5, seed=1)
    inputs = [a.swapaxes(1, 2).copy() if flips & 1 else a, b.swapaxes(1, 2).copy() if flips & 2 else b]
    check("FusedMatMul", inputs, {"transA": flips & 1, "transB": flips >> 1, "alpha": 0.25}, **LIMITS)


@pytest.mark.parametrize("activation", ["Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid"])
def test_fused_convolutions(activation: str) -> None:
    parameters = {"LeakyRelu": [0.2], "Clip": [-0.5, 0.5], "HardSigmoid": [0.3, 0.4]}.get(activation)
    attributes = {"activation": activation, "pads": [1, 1, 1, 1]}
    attributes |= {"activation_params": parameters} if parameters else {}
    check("FusedConv", [floats(1, 3, 6, 5), floats(4, 3, 3, 3, seed=1), floats(4, seed=2)], attributes, **LIMITS)


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantised_arithmetic(op: str, dtype: str) -> None:
    operands = [
        value
        for k, shape in enumerate([(3, 4), (4,)])
        for value in (numbers(dtype, shape, k), np.array(0.125 * (k + 1), np.float32), np.array(k + 2, dtype))
    ]
    check(op, [*operands, np.array(0.25, np.float32), np.array(3, dtype)], constant=(1, 2, 4, 5, 6, 7))


@pytest.mark.parametrize("op", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_quantised_activations(op: str) -> None:
    scales = [np.array(0.125, np.float32), np.array(1, np.int8)], [np.array(1 / 128, np.float32), np.array(-5, np.int8)]
    check(op, [numbers("int8", (5, 6), 0), *scales[0], *scales[1]], constant=(1, 2, 3, 4))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("points", [False, True])
def test_products_with_narrow_weights(bits: int, points: bool) -> None:
    n, k, block = 6, 40, 16
    blocks, rng = -(-k // block), np.random.default_rng(0)
    weights = rng.integers(0, 256, (n, blocks, block * bits // 8), np.uint8)
    zeros = [rng.integers(0, 256, (n * -(-blocks * bits // 8),), np.uint8)] if points else []
    scales = (rng.random(n * blocks) / 8).astype(np.float32)
    attributes = {"N": n, "K": k, "block_size": block, "bits": bits}
    inputs = [floats(2, 3, k), weights, scales, *zeros]
    check("MatMulNBits", inputs, attributes, constant=range(1, len(inputs)), rtol=1e-3, atol=1e-3)


def test_integer_products_with_scales() -> None:
    a, b = numbers("uint8", (3, 4), 0), numbers("int8", (4, 5), 1)
    inputs = [a, b, np.array(0.5, np.float32), floats(5), np.array(3, np.uint8), numbers("int8", (5,), 2), floats(5)]
    check("MatMulIntegerToFloat", inputs, constant=range(1, 7), **LIMITS)


ONE_TENSOR = {
    "QLinearAveragePool": ((1, 2, 5, 6), {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "ceil_mode": 1}),
    "QLinearGlobalAveragePool": ((2, 3, 4, 5), {}),
    "QLinearSoftmax": ((3, 7), {"axis": -1, "opset": 13}),
}


def scale(value: float) -> np.ndarray[tuple[()], np.dtype[np.float32]]:
    return np.array(value, np.float32)


@pytest.mark.parametrize("op", ONE_TENSOR)
def test_quantised_operators_of_one_tensor(op: str) -> None:
    """Half-way cases may be rounded either way: sums are made in another order."""
    shape, attributes = ONE_TENSOR[op]
    into = (1 / 256, 0) if op == "QLinearSoftmax" else (0.25, 120)
    inputs = [numbers("uint8", shape, 0), scale(0.125), np.array(3, np.uint8), scale(into[0]), np.array(into[1], np.uint8)]  # fmt: skip
    check(op, inputs, attributes, constant=(1, 2, 3, 4), atol=1)


def test_quantised_parts_and_choices() -> None:
    parts = [v for k in range(3) for v in (numbers("int8", (2, 3), k), scale(0.125 * (k + 1)), np.array(k, np.int8))]
    check("QLinearConcat", [scale(0.5), np.array(2, np.int8), *parts], {"axis": 1}, constant=(0, 1, 3, 4, 6, 7, 9, 10), atol=1)  # fmt: skip
    choice = np.random.default_rng(0).integers(0, 2, (2, 3)).astype(bool)
    check("QLinearWhere", [choice, *parts[:6], scale(0.5), np.array(2, np.int8)], constant=(2, 3, 5, 6, 7, 8), atol=1)


@pytest.mark.parametrize("quantised", [True, False])
def test_quantised_gemm(quantised: bool) -> None:
    operands = [numbers("uint8", (3, 4), 0), scale(0.5), np.array(3, np.uint8), numbers("int8", (5, 4), 1), scale(0.25), np.array(0, np.int8)]  # fmt: skip
    result = [scale(0.75), np.array(9, np.uint8)] if quantised else []
    check("QGemm", [*operands, numbers("int32", (5,), 2), *result], {"transB": 1}, constant=range(1, 7 + len(result)), **LIMITS)  # fmt: skip


def test_products_quantised_by_their_range() -> None:
    inputs = [floats(2, 3, 4), numbers("int8", (4, 5), 1), floats(5), numbers("int8", (5,), 2), floats(5, seed=3)]
    check("DynamicQuantizeMatMul", inputs, constant=(1, 2, 3, 4), **LIMITS)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("by_rows", [False, True])
def test_quantised_lstm(direction: str, by_rows: bool) -> None:
    """Rounding a state to 8 bits is a step: last digits of it may become some thousandths later."""
    count, size = (2 if direction == "bidirectional" else 1), 6
    weights = [numbers("int8", (count, n, 4 * size), n) for n in (4, size)]
    scales = [np.full((count, 4 * size) if by_rows else (count,), 1 / 32, np.float32), np.zeros((count, 4 * size) if by_rows else (count,), np.int8)]  # fmt: skip
    inputs = [floats(7, 3, 4), *weights, floats(count, 8 * size), None, None, None, None, *scales, *scales]
    check("DynamicQuantizeLSTM", inputs, {"hidden_size": size, "direction": direction}, outputs=3, constant=(1, 2, 3, 8, 9, 10, 11), rtol=1e-2, atol=1e-2)  # fmt: skip
