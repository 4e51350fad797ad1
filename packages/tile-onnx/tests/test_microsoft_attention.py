"""Fused attention, rotations, embeddings and quantised operators of ONNX Runtime's domain beside ONNX Runtime."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from peer import check as check_any
from peer import numbers

check = functools.partial(check_any, domain="com.microsoft")
LIMITS = {"rtol": 1e-4, "atol": 1e-5}
Array = np.ndarray[Any, Any]


def floats(*shape: int, seed: int = 0) -> Array:
    return numbers("float32", shape, seed, scale=1)


B, S, N, H = 2, 5, 3, 4
MASKS: dict[str, Array | None] = {
    "none": None,
    "keys": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
    "ends": np.array([3, 5], np.int32),
    "pairs": (np.arange(B * S * S).reshape(B, S, S) % 3 > 0).astype(np.int32),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask: str, causal: int) -> None:
    inputs = [floats(B, S, 6), floats(6, 3 * N * H, seed=1), floats(3 * N * H, seed=2), MASKS[mask]]
    check("Attention", inputs, {"num_heads": N, "unidirectional": causal}, **LIMITS)


def test_attention_with_a_past() -> None:
    inputs = [
        floats(B, S, 6),
        floats(6, 3 * N * H, seed=1),
        floats(3 * N * H, seed=2),
        None,
        floats(2, B, N, 7, H, seed=3),
    ]
    check("Attention", inputs, {"num_heads": N, "unidirectional": 1}, outputs=2, **LIMITS)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mask", [None, np.array([[1, 1, 0, 0, 1, 1], [1, 1, 1, 1, 1, 1]], np.int32)])
def test_multi_head_attention(bias: bool, mask: Array | None) -> None:
    inputs = [floats(B, S, N * H), floats(B, 6, N * H, seed=1), floats(B, 6, N * H, seed=2)]
    check(
        "MultiHeadAttention", [*inputs, floats(3 * N * H, seed=3) if bias else None, mask], {"num_heads": N}, **LIMITS
    )


def test_multi_head_attention_with_a_past() -> None:
    inputs = [floats(B, 1, N * H), *(floats(B, 1, N * H, seed=k) for k in (1, 2)), None, None, floats(B, N, 1, 7, seed=4),
              *(floats(B, N, 6, H, seed=k) for k in (5, 6))]  # fmt: skip
    check("MultiHeadAttention", inputs, {"num_heads": N, "scale": 0.3}, outputs=3, **LIMITS)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("positions", [np.array([[0, 1, 2, 3, 4], [5, 4, 3, 2, 1]]), np.array([2])])
def test_rotary_embedding(interleaved: int, positions: Array) -> None:
    caches = [np.cos(floats(8, H // 2)), np.sin(floats(8, H // 2))]
    check("RotaryEmbedding", [floats(B, S, N * H), positions, *caches], {"interleaved": interleaved}, **LIMITS)
    check("RotaryEmbedding", [floats(B, N, S, H), positions, *caches], {"interleaved": interleaved}, **LIMITS)


@pytest.mark.parametrize("segments", [False, True])
def test_embed_layer_normalization(segments: bool) -> None:
    words = numbers("int32", (B, S), 0) % 9
    inputs = [words, words % 2 if segments else None, floats(9, 8), floats(7, 8, seed=1),
              floats(2, 8, seed=2) if segments else None, floats(8, seed=3), floats(8, seed=4), MASKS["keys"]]  # fmt: skip
    check("EmbedLayerNormalization", inputs, {"epsilon": 1e-5}, outputs=2, **LIMITS)


def quantity(dtype: str, scale: float, point: int) -> list[Array]:
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


@pytest.mark.parametrize("quantised", [False, True])
def test_quantised_gemm(quantised: bool) -> None:
    a, b = numbers("uint8", (3, 4), 0), numbers("int8", (5, 4), 1)
    inputs = [a, *quantity("uint8", 0.25, 3), b, *quantity("int8", 0.5, 0), numbers("int32", (5,), 2)]
    inputs += quantity("uint8", 2.0, 100) if quantised else []
    check(
        "QGemm",
        inputs,
        {"transB": 1},
        constant=[k for k in range(1, len(inputs)) if k != 3],
        rtol=1e-5,
        atol=1 if quantised else 1e-4,
    )


def test_dynamic_quantised_product() -> None:
    weights = numbers("int8", (8, 5), 1)
    inputs = [floats(3, 8), weights, np.array([0.25], np.float32), np.array([2], np.int8), floats(5)]
    check("DynamicQuantizeMatMul", inputs, constant=(1, 2, 3, 4), rtol=1e-4, atol=2e-2)


def test_distances() -> None:
    for metric in ("sqeuclidean", "euclidean"):
        check("CDist", [floats(4, 3), floats(5, 3, seed=1)], {"metric": metric}, **LIMITS)


def test_other_names() -> None:
    check("Trilu", [floats(4, 4)], {"upper": 0}, **LIMITS)
    check("ExpandDims", [floats(3, 2), np.array(1, np.int32)], constant=(1,))
