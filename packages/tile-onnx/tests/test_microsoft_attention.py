<<<<<<< HEAD
"""Attention of ONNX Runtime's own domain beside ONNX Runtime: masks of every form, caches, grouped heads."""
=======
"""Fused attention, rotations, embeddings and quantised operators of ONNX Runtime's domain beside ONNX Runtime."""
>>>>>>> 8a9a954

from __future__ import annotations

import functools
<<<<<<< HEAD

import numpy as np
import pytest
import tile_onnx
from peer import a_model, outputs_of
from peer import check as check_any

check = functools.partial(check_any, domain="com.microsoft", rtol=1e-4, atol=1e-5)
BATCH, LENGTH, HEADS, GROUPS, CELLS = 2, 5, 4, 2, 16
WIDE = HEADS * CELLS


def floats(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def integers(*values: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    return np.array(values, np.int32)


KEYS = (np.arange(LENGTH) < np.array([[3], [5]])).astype(np.int32)
MASKS = {
    "none": None,
    "counts": integers(3, 5),
    "counts_and_firsts": integers(3, 5, 1, 0),
    "keys": KEYS,
    "pairs": np.tril(np.ones((BATCH, LENGTH, LENGTH), np.int32)) * KEYS[:, None, :] | np.eye(LENGTH, dtype=np.int32),
=======
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
>>>>>>> 8a9a954
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
<<<<<<< HEAD
def test_masks(mask: str, causal: int) -> None:
    inputs = [floats(BATCH, LENGTH, 12), floats(12, 3 * WIDE) / 4, floats(3 * WIDE), MASKS[mask]]
    check("Attention", inputs, {"num_heads": HEADS, "unidirectional": causal}, constant=(1, 2))


def test_a_cache_and_a_bias() -> None:
    weights = [floats(12, 3 * WIDE) / 4, floats(3 * WIDE)]
    settings = {"num_heads": HEADS, "unidirectional": 1}
    check("Attention", [floats(BATCH, 1, 12), *weights, None, floats(2, BATCH, HEADS, 3, CELLS)], settings, outputs=2, constant=(1, 2))  # fmt: skip
    check("Attention", [floats(BATCH, LENGTH, 12), *weights, None, None, floats(1, HEADS, LENGTH, LENGTH)], {"num_heads": HEADS}, constant=(1, 2))  # fmt: skip
    sizes = [floats(12, 2 * WIDE + 12) / 4, floats(2 * WIDE + 12)]
    check("Attention", [floats(BATCH, LENGTH, 12), *sizes], {"num_heads": HEADS, "qkv_hidden_sizes": [WIDE, WIDE, 12]}, constant=(1, 2))  # fmt: skip


HEADS_APART = {
    "plain": [],
    "bias": [floats(3 * WIDE)],
    "mask": [None, (np.arange(7) < np.array([[3], [7]])).astype(np.int32), floats(BATCH, HEADS, LENGTH, 7)],
}


@pytest.mark.parametrize("more", HEADS_APART)
def test_heads_apart(more: str) -> None:
    inputs = [floats(BATCH, LENGTH, WIDE), floats(BATCH, 7, WIDE), floats(BATCH, 7, WIDE) + 1, *HEADS_APART[more]]
    check("MultiHeadAttention", inputs, {"num_heads": HEADS, "scale": 0.3})


def test_keys_by_heads_and_a_cache() -> None:
    cross = [floats(BATCH, LENGTH, WIDE), *[floats(BATCH, HEADS, 7, CELLS)] * 2]
    check("MultiHeadAttention", cross, {"num_heads": HEADS})
    cached = [*[floats(BATCH, 1, WIDE)] * 3, None, None, None, *[floats(BATCH, HEADS, 3, CELLS)] * 2]
    check("MultiHeadAttention", cached, {"num_heads": HEADS, "unidirectional": 1}, outputs=3)


def test_packed_heads() -> None:
    """ONNX Runtime has these on GPUs only: the same as apart."""
    packed = floats(BATCH, LENGTH, HEADS, 3, CELLS)
    apart = [packed[:, :, :, k].reshape(BATCH, LENGTH, WIDE) for k in range(3)]
    model = functools.partial(a_model, "MultiHeadAttention", attributes={"num_heads": HEADS}, domain="com.microsoft")
    (wanted,) = tile_onnx.load(model(apart), "llvm")(*apart).values()
    beside = [apart[0], packed[:, :, :, 1:]]
    for inputs in ([packed], beside):
        (found,) = tile_onnx.load(model(inputs), "llvm")(*inputs).values()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


STAGES = {
    "prompt": (BATCH, 5, 0, (4, 4)),
    "decode": (BATCH, 1, 6, (6, 4)),
    "chunk": (1, 3, 6, (8,)),
    "buffer": (1, 5, 8, (4,)),
}
"""Batch, new places, places of the cache, and the last key of each sequence."""


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("settings", [{}, {"do_rotary": 1}, {"local_window_size": 3}, {"softcap": 5.0, "packed": 1}])
def test_groups(stage: str, settings: dict[str, float]) -> None:
    """What lies behind the keys of a sequence means nothing: the caches are compared as far as they are filled."""
    batch, length, past, last = STAGES[stage]
    settings = {"num_heads": HEADS, "kv_num_heads": GROUPS} | settings
    apart = [floats(batch, length, WIDE), floats(batch, length, GROUPS * CELLS), -floats(batch, length, GROUPS * CELLS)]
    new = [np.concatenate(apart, 2), None, None] if settings.pop("packed", 0) else apart
    cache, turns = floats(batch, GROUPS, past, CELLS), [floats(16, CELLS // 2), floats(16, CELLS // 2) + 1]
    inputs = [*new, cache, cache + 1, integers(*last), integers(max(last) + 1), *(turns if settings.get("do_rotary") else [])]  # fmt: skip
    model = a_model("GroupQueryAttention", inputs, settings, domain="com.microsoft", outputs=3, constant=(6,))
    feeds = {f"x{k}": v for k, v in enumerate(inputs) if v is not None and k != 6}
    found, wanted = list(tile_onnx.load(model, "llvm").run(feeds).values()), outputs_of(model, feeds)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(found[1:], wanted[1:], strict=True):
        assert ours.shape == theirs.shape
        for b, end in enumerate(last):
            np.testing.assert_allclose(ours[b, :, : end + 1], theirs[b, :, : end + 1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(BATCH, LENGTH, WIDE), (BATCH, HEADS, LENGTH, CELLS)])
@pytest.mark.parametrize("places", ["first", "each"])
def test_rotations(shape: tuple[int, ...], places: str) -> None:
    where = np.array([2]) if places == "first" else np.random.default_rng(0).integers(0, 16, (BATCH, LENGTH))
    for turned in (0, 1):
        check("RotaryEmbedding", [floats(*shape), where, floats(16, 8), floats(16, 8) + 1], {"interleaved": turned})
    if len(shape) == 3:
        part = {"num_heads": HEADS, "rotary_embedding_dim": 4}
        check("RotaryEmbedding", [floats(*shape), where, floats(16, 2), floats(16, 2) + 1], part)


@pytest.mark.parametrize("more", [True, False])
def test_embeddings(more: bool) -> None:
    words = np.random.default_rng(0).integers(0, 20, (BATCH, LENGTH)).astype(np.int32)
    segments = (words % 2, floats(2, 8)) if more else (None, None)
    inputs = [words, segments[0], floats(20, 8), floats(9, 8), segments[1], floats(8), floats(8) + 1, *([KEYS] if more else [])]  # fmt: skip
    check("EmbedLayerNormalization", inputs, {"epsilon": 1e-5}, outputs=2)
=======
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
>>>>>>> 8a9a954
