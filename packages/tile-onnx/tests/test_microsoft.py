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
