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


@pytest.mark.parametrize("flips", range(16))
def test_fused_matmul_of_stacks_whose_rows_stand_first(flips: int) -> None:
    """What ONNX Runtime's optimiser makes of attention whose heads stand behind the positions."""
    attributes = {name: flips >> k & 1 for k, name in enumerate(("transA", "transB", "transBatchA", "transBatchB"))}
    inputs = [floats(2, 3, 4, 5), floats(2, 3, 5, 6, seed=1)]
    for k, name in enumerate("AB"):
        flipped = inputs[k].swapaxes(-1, -2) if attributes[f"trans{name}"] else inputs[k]
        inputs[k] = np.ascontiguousarray(np.moveaxis(flipped, -2, 0) if attributes[f"transBatch{name}"] else flipped)
    check("FusedMatMul", inputs, attributes, **LIMITS)


@pytest.mark.parametrize("activation", ["Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid"])
def test_fused_convolutions(activation: str) -> None:
    parameters = {"LeakyRelu": [0.2], "Clip": [-0.5, 0.5], "HardSigmoid": [0.3, 0.4]}.get(activation)
    attributes = {"activation": activation, "pads": [1, 1, 1, 1]}
    attributes |= {"activation_params": parameters} if parameters else {}
    check("FusedConv", [floats(1, 3, 6, 5), floats(4, 3, 3, 3, seed=1), floats(4, seed=2)], attributes, **LIMITS)


@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu", "HardSigmoid"])
def test_fused_products(activation: str) -> None:
    """Parameters have the names of the activation's attributes, unlike those of fused convolutions."""
    parameters = {"LeakyRelu": {"alpha": 0.2}, "HardSigmoid": {"alpha": 0.3, "beta": 0.4}}.get(activation, {})
    attributes = {"activation": activation, "transB": 1} | {f"activation_{n}": v for n, v in parameters.items()}
    check("FusedGemm", [floats(5, 6), floats(4, 6, seed=1), floats(4, seed=2)], attributes, **LIMITS)


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


@pytest.mark.parametrize(("bits", "points"), [(2, False), (4, True), (8, True)])
@pytest.mark.parametrize(("width", "axis"), [(64, 1), (40, -1)])
def test_rows_of_narrow_tables(bits: int, points: bool, width: int, axis: int) -> None:
    rng, blocks, per = np.random.default_rng(bits), -(-width // 16), 8 // bits
    table = rng.integers(0, 256, (10, width // per), np.uint8)
    zeros = [rng.integers(0, 256, (10, -(-blocks // per)), np.uint8)] if points else []
    inputs = [table, np.array([[0, 3, -1], [9, 3, 2]], np.int64), rng.random((10, blocks)).astype(np.float32), *zeros]
    attributes = {"bits": bits, "block_size": 16, "quantize_axis": axis}
    check("GatherBlockQuantized", inputs, attributes, constant=(0, *range(2, len(inputs))), **LIMITS)


def test_integer_products_with_scales() -> None:
    a, b = numbers("uint8", (3, 4), 0), numbers("int8", (4, 5), 1)
    inputs = [a, b, np.array(0.5, np.float32), floats(5), np.array(3, np.uint8), numbers("int8", (5,), 2), floats(5)]
    check("MatMulIntegerToFloat", inputs, constant=range(1, 7), **LIMITS)


def scalar(value: float, dtype: str = "float32") -> np.ndarray[tuple[()], np.dtype[np.generic]]:
    return np.array(value, dtype)


@pytest.mark.parametrize("flips", range(4))
@pytest.mark.parametrize("form", ["quantised", "bare", "float"])
def test_quantised_gemm(flips: int, form: str) -> None:
    a, b = numbers("uint8", (3, 8), 0), numbers("int8", (8, 5), 1)
    left = [a.T.copy() if flips & 1 else a, scalar(0.5), scalar(3, "uint8")]
    right = [b.T.copy() if flips & 2 else b, scalar(0.25), scalar(-2, "int8")]
    bias = [None] if form == "bare" else [numbers("int32", (5,), 2)]
    after = [] if form == "float" else [scalar(2.0), scalar(100, "uint8")]
    inputs = [*left, *right, *bias, *after]
    constant = [k for k in range(1, len(inputs)) if inputs[k] is not None]
    check("QGemm", inputs, {"transA": flips & 1, "transB": flips >> 1, "alpha": 0.5}, constant=constant)


@pytest.mark.parametrize("transposed", [0, 1])
def test_quantised_gemm_by_columns(transposed: int) -> None:
    b = numbers("int8", (5, 8) if transposed else (8, 5), 1)
    right = [b, np.abs(floats(5)) + 0.1, numbers("int8", (5,), 2)]
    inputs = [numbers("uint8", (3, 8), 0), scalar(0.5), scalar(3, "uint8"), *right, numbers("int32", (5,), 3)]
    constant = [k for k in range(1, len(inputs)) if k != 3]
    check("QGemm", inputs, {"transB": transposed}, constant=constant, **LIMITS)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_quantised_means_of_channels(last: int, dtype: str) -> None:
    shape = (2, 5, 7, 3) if last else (2, 3, 5, 7)
    inputs = [numbers(dtype, shape, 0), scalar(0.5), scalar(2, dtype), scalar(0.125), scalar(4, dtype)]
    check("QLinearGlobalAveragePool", inputs, {"channels_last": last}, constant=range(1, 5))


def test_quantised_parts_are_joined() -> None:
    parts = [(numbers("uint8", (2, n, 3), n), scalar(0.25 * n), scalar(n, "uint8")) for n in (1, 2, 4)]
    inputs = [scalar(0.5), scalar(7, "uint8"), *(value for part in parts for value in part)]
    check("QLinearConcat", inputs, {"axis": 1}, constant=[k for k in range(len(inputs)) if k < 2 or k % 3 != 2])


@pytest.mark.parametrize("columns", [False, True])
def test_products_of_what_is_quantised_by_its_range(columns: bool) -> None:
    scale, zero = (floats(6, seed=3) ** 2, numbers("int8", (6,), 4)) if columns else (scalar(0.5), scalar(3, "int8"))
    inputs = [floats(4, 9), numbers("int8", (9, 6), 1), scale, zero, floats(6, seed=2)]
    check("DynamicQuantizeMatMul", inputs, constant=range(1, 5), **LIMITS)


def quantity(dtype: str, scale: float, point: int) -> list[np.ndarray[tuple[()], np.dtype[np.generic]]]:
    return [np.array(scale, np.float32), np.array(point, dtype)]


@pytest.mark.parametrize("last", [0, 1])
def test_quantised_pools(last: int) -> None:
    image, scales = numbers("uint8", (2, 4, 6, 5), 0), [*quantity("uint8", 0.25, 3), *quantity("uint8", 0.125, 9)]
    check("QLinearGlobalAveragePool", [image, *scales], {"channels_last": last}, constant=range(1, 5), atol=1)
    window = {"kernel_shape": [3, 2], "channels_last": last, "strides": [2, 1]}
    check("QLinearAveragePool", [image, *scales], window, constant=range(1, 5), atol=1)


def test_channels_last_max_pool() -> None:
    check("NhwcMaxPool", [numbers("uint8", (1, 7, 6, 3), 0)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]})


def test_quantised_concat_and_where() -> None:
    one, two = (
        [numbers("uint8", (2, 3), 0), *quantity("uint8", 0.25, 3)],
        [numbers("uint8", (2, 3), 1), *quantity("uint8", 0.5, 7)],
    )
    out = quantity("uint8", 0.25, 5)
    check("QLinearConcat", [*out, *one, *two], {"axis": 1}, constant=(0, 1, 3, 4, 6, 7), atol=1)
    condition = numbers("bool", (2, 3), 2)
    check("QLinearWhere", [condition, *one, *two, *out], constant=(2, 3, 5, 6, 7, 8), atol=1)


@pytest.mark.parametrize(("opset", "axis"), [(13, 1), (12, 1)])
def test_quantised_softmax(opset: int, axis: int) -> None:
    scales = [*quantity("uint8", 0.125, 3), *quantity("uint8", 1 / 256, 0)]
    check(
        "QLinearSoftmax",
        [numbers("uint8", (2, 4, 3), 0), *scales],
        {"opset": opset, "axis": axis},
        constant=range(1, 5),
        atol=1,
    )


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("by_rows", [False, True])
def test_quantised_lstm(direction: str, by_rows: bool) -> None:
    """Rounding a state to 8 bits is a step: last digits of it may become some thousandths later."""
    count, size = (2 if direction == "bidirectional" else 1), 6
    weights = [numbers("int8", (count, n, 4 * size), n) for n in (4, size)]
    rows = (count, 4 * size) if by_rows else (count,)
    scales = [np.full(rows, 1 / 32, np.float32), np.zeros(rows, np.int8)]
    inputs = [floats(7, 3, 4), *weights, floats(count, 8 * size), None, None, None, None, *scales, *scales]
    settings = {"hidden_size": size, "direction": direction}
    check("DynamicQuantizeLSTM", inputs, settings, outputs=3, constant=(1, 2, 3, 8, 9, 10, 11), rtol=1e-2, atol=1e-2)


def test_distances() -> None:
    for metric in ("sqeuclidean", "euclidean"):
        check("CDist", [floats(4, 3), floats(5, 3, seed=1)], {"metric": metric}, **LIMITS)


def test_other_names() -> None:
    check("Trilu", [floats(4, 4)], {"upper": 0}, **LIMITS)
    check("ExpandDims", [floats(3, 2), np.array(1, np.int32)], constant=(1,))
