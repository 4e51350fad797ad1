"""Attention of ONNX Runtime's own domain beside ONNX Runtime: masks of every form, caches, grouped heads."""

from __future__ import annotations

import functools

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
}


@pytest.mark.diagonal(2)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [0, 1])
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


@pytest.mark.diagonal(2)
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
