"""Attention as ONNX Runtime's optimiser fuses it: with projections, biases and masks, embeddings and rotations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tile_onnx.node import Node, Value, apply
from tile_onnx.ops.gather import chosen
from tile_onnx.ops.moving import reshaped
from tile_onnx.ops.slicing import parts
from tile_onnx.ops.standard import standard
from tile_onnx.ops.text import expression, literal
from tile_onnx.registry import operator

DOMAIN = "com.microsoft"


@operator("Attention", domain=DOMAIN)
def attention(node: Node) -> tuple[Value, ...]:
    """Projects an input [batch, sequence, cells] to queries, keys and values, and attends; the past is one tensor."""
    batch, sequence, _ = node.shape(0)
    heads = node.attribute("num_heads")
    width = node.shape(1)[1]
    sizes = node.attribute("qkv_hidden_sizes", (width // 3,) * 3)
    projected = standard(node, "MatMul", node.value(0), node.value(1))
    if node.has(2):
        projected = standard(node, "Add", projected, node.value(2))
    query, key, value = parts(projected, 2, sizes)
    past_key = past_value = None
    past = 0
    if node.has(4):
        past = node.shape(4)[3]
        past_key, past_value = (standard(node, "Squeeze", v, np.array([0])) for v in parts(node.value(4), 0, (1, 1)))
    keys = past + sequence
    mask = _sum(node, _mask(node, 3, batch, keys), node.value(5))
    found = _attended(node, heads, (query, key, value), mask, (past_key, past_value))
    if not node.wants(1):
        return (found[0],)
    shape = (1, batch, heads, keys)
    stacked = [reshaped(v, (*shape, v.shape[-1])) for v in found[1:]]
    return found[0], standard(node, "Concat", *stacked, axis=0)


@operator("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(node: Node) -> tuple[Value, ...]:
    """Queries, keys and values that are projected already: apart, or keys and values of a past [batch, heads, …]."""
    if not node.has(1) or not node.has(2):
        raise node.unsupported("queries, keys and values are packed into one tensor", "unpack them in the export")
    heads = node.attribute("num_heads")
    given = [_beside(node, node.value(k)) for k in range(3)]
    if node.has(3):
        biases = parts(node.value(3), 0, [v.shape[2] for v in given])
        given = [standard(node, "Add", v, b) for v, b in zip(given, biases, strict=True)]
    past = node.shape(6)[2] if node.has(6) else 0
    mask = _sum(node, _mask(node, 4, given[0].shape[0], past + given[1].shape[1]), node.value(5))
    return _attended(node, heads, given, mask, (node.value(6), node.value(7)))[: max(node.count, 1)]


def _beside(node: Node, value: Value) -> Value:
    """Heads beside one another: [batch, heads, sequence, cells] becomes [batch, sequence, heads * cells]."""
    if len(value.shape) == 3:
        return value
    batch, heads, sequence, cells = value.shape
    return reshaped(standard(node, "Transpose", value, perm=(0, 2, 1, 3)), (batch, sequence, heads * cells))


def _attended(node: Node, heads: int, given: Sequence[Value], mask: Value, past: Sequence[Value]) -> tuple[Value, ...]:
    """The result, and keys and values with those of the past."""
    return standard(
        node, "Attention", *given, mask, *past, outputs=3,
        q_num_heads=heads, kv_num_heads=heads, is_causal=node.attribute("unidirectional", 0), scale=node.attribute("scale"),
    )  # fmt: skip


def _mask(node: Node, k: int, batch: int, keys: int) -> Value:
    """What a mask of keys adds to scores: `mask_filter_value` where input `k` is 0; or behind so many keys per batch."""
    if not node.has(k):
        return None
    low = literal(float(node.attribute("mask_filter_value", -10000.0)))
    shape = node.shape(k)
    if shape == (batch,) and len(shape) == 1:
        ends = reshaped(node.value(k), (batch, 1, 1, 1))
        places = np.arange(keys, dtype=np.int32).reshape(1, 1, 1, keys)
        return apply(expression("P, E", f"P < as_int(E, 32) ? as_float(0, 32) : {low}"), places, ends)
    rows = shape[1:-1]
    if (shape[0], shape[-1]) != (batch, keys) or len(rows) > 1:
        raise node.unsupported(f"a mask of shape {list(shape)}", "masks of keys, [batch, keys], or how many there are")
    whole = reshaped(node.value(k), (batch, 1, *(rows or (1,)), keys))
    return apply(expression("M", f"M == 0 ? {low} : as_float(0, 32)"), whole)


def _sum(node: Node, left: Value, right: Value) -> Value:
    """Both, as far as they are there."""
    if left is None or right is None:
        return right if left is None else left
    return standard(node, "Add", left, right)


@operator("RotaryEmbedding", domain=DOMAIN)
def rotary_embedding(node: Node) -> Value:
    """As of ai.onnx; positions may be one offset for all."""
    positions = node.value(1)
    rows, shape = node.shape(0), node.shape(1)
    sequence = rows[1] if len(rows) == 3 else rows[2]
    if shape == (1,):
        steps = np.arange(sequence, dtype=np.int64)[None].repeat(rows[0], 0)
        positions = standard(node, "Add", steps, positions)
    heads = node.attribute("num_heads", 0)
    if len(rows) == 3 and not heads:
        size = node.attribute("rotary_embedding_dim", 0) or 2 * node.shape(2)[1]
        heads = rows[2] // size
    return standard(
        node, "RotaryEmbedding", node.value(0), node.value(2), node.value(3), positions,
        interleaved=node.attribute("interleaved", 0), num_heads=heads, rotary_embedding_dim=node.attribute("rotary_embedding_dim", 0),
    )  # fmt: skip


@operator("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_normalization(node: Node) -> tuple[Value, ...]:
    """The normalised sum of embeddings of words, places and segments; how many words a mask leaves; the sum itself."""
    batch, sequence = node.shape(0)
    places = node.value(8) if node.has(8) else np.arange(sequence, dtype=np.int64)[None]
    total = standard(node, "Add", chosen(node.value(2), node.value(0), 0), chosen(node.value(3), places, 0))
    if node.has(1):
        total = standard(node, "Add", total, chosen(node.value(4), node.value(1), 0))
    epsilon = node.attribute("epsilon", 1e-12)
    found = standard(node, "LayerNormalization", total, node.value(5), node.value(6), axis=-1, epsilon=epsilon)
    count: Value = np.zeros(batch, np.int32)
    if node.has(7):
        count = standard(node, "ReduceSum", node.value(7), np.array([1]), keepdims=0)
    return (found, count, total)[: max(node.count, 1)]
