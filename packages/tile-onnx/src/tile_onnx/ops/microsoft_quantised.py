"""Quantised operators of ONNX Runtime's own domain: dequantised, computed, quantised again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from tile_onnx.node import Node, Value
from tile_onnx.ops.moving import permuted
from tile_onnx.ops.standard import standard
from tile_onnx.registry import operator

DOMAIN = "com.microsoft"


def _real(node: Node, k: int) -> Value:
    """Input `k` with its scale and zero point, which follow it, as float32."""
    return standard(node, "DequantizeLinear", node.value(k), node.value(k + 1), node.value(k + 2))


def _quantised(node: Node, value: Value, k: int) -> Value:
    """A value by the scale and zero point that are inputs `k` and `k + 1`; uint8 where there is no zero point."""
    dtype = None if node.has(k + 1) else TensorProto.UINT8
    return standard(node, "QuantizeLinear", value, node.value(k), node.value(k + 1), output_dtype=dtype)


def _channels_first(value: Value) -> Value:
    rank = len(value.shape)
    return permuted(value, (0, rank - 1, *range(1, rank - 1)))


def _channels_last(value: Value) -> Value:
    rank = len(value.shape)
    return permuted(value, (0, *range(2, rank), 1))


@operator("QLinearGlobalAveragePool", "QLinearAveragePool", domain=DOMAIN)
def quantised_pool(node: Node) -> Value:
    """An average of windows, or of whole channels, which may stand last."""
    last = bool(node.attribute("channels_last", 0))
    image = _channels_first(_real(node, 0)) if last else _real(node, 0)
    settings: dict[str, Any] = {n: v for n, v in node.attributes.items() if n not in ("channels_last", "channels")}
    pooled = standard(node, node.op.removeprefix("QLinear"), image, **settings)
    return _quantised(node, _channels_last(pooled) if last else pooled, 3)


@operator("NhwcMaxPool", domain=DOMAIN)
def channels_last_max_pool(node: Node) -> Value:
    """MaxPool of an image whose channels stand last."""
    return _channels_last(standard(node, "MaxPool", _channels_first(node.value(0)), **node.attributes))


@operator("QLinearConcat", domain=DOMAIN)
def quantised_concat(node: Node) -> Value:
    """Tensors with scales of their own, one behind the other."""
    tensors = [_real(node, k) for k in range(2, node.arity, 3)]
    return _quantised(node, standard(node, "Concat", *tensors, axis=node.attribute("axis")), 0)


@operator("QLinearSoftmax", domain=DOMAIN)
def quantised_softmax(node: Node) -> Value:
    """Along an axis, or before opset 13, which `opset` states, over all dimensions from it on."""
    axis = node.axis(node.attribute("axis", -1))
    value = _real(node, 0)
    if node.attribute("opset", 13) >= 13:
        return _quantised(node, standard(node, "Softmax", value, axis=axis), 3)
    flat = standard(node, "Softmax", standard(node, "Flatten", value, axis=axis), axis=1)
    return _quantised(node, standard(node, "Reshape", flat, _shape(value.shape)), 3)


@operator("QLinearWhere", domain=DOMAIN)
def quantised_where(node: Node) -> Value:
    """One of two tensors with scales of their own, by a condition."""
    return _quantised(node, standard(node, "Where", node.value(0), _real(node, 1), _real(node, 4)), 7)


@operator("QGemm", domain=DOMAIN)
def quantised_gemm(node: Node) -> Value:
    """``alpha A B + C`` with C in int32 at the scale of both; quantised again where an output scale is given."""
    a, b = _real(node, 0), standard(node, "DequantizeLinear", *(node.value(k) for k in (3, 4, 5)), axis=_columns(node))
    flips = {n: node.attribute(n, 0) for n in ("transA", "transB")}
    found = standard(node, "Gemm", a, b, alpha=node.attribute("alpha", 1.0), **flips)
    if node.has(6):
        scale = standard(node, "Mul", node.value(1), node.value(4))
        bias = standard(node, "Cast", node.value(6), to=TensorProto.FLOAT)
        found = standard(node, "Add", found, standard(node, "Mul", bias, scale))
    return _quantised(node, found, 7) if node.has(7) else found


def _columns(node: Node) -> int:
    """The axis of B that its scales, if there are several, belong to."""
    return 0 if node.attribute("transB", 0) else 1


@operator("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_quantised_matmul(node: Node) -> Value:
    """A product of what is quantised now, by its own range, with weights that are quantised already."""
    value, scale, point = standard(node, "DynamicQuantizeLinear", node.value(0), outputs=3)
    product = standard(node, "MatMulInteger", value, node.value(1), point, node.value(3))
    scales = standard(node, "Mul", scale, node.value(2))
    found = standard(node, "Mul", standard(node, "Cast", product, to=TensorProto.FLOAT), scales)
    return standard(node, "Add", found, node.value(4)) if node.has(4) else found


def _shape(sizes: Sequence[int]) -> Value:
    return np.asarray(sizes, np.int64)
