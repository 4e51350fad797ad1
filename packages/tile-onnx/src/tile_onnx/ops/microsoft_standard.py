"""Operators of ONNX Runtime's own domain that ai.onnx has, too: under other names, or with channels last."""

from __future__ import annotations

from typing import Any

from tile_onnx.node import Node, Value, apply
from tile_onnx.ops.moving import permuted
from tile_onnx.ops.standard import standard
from tile_onnx.ops.text import contraction, function
from tile_onnx.registry import operator

DOMAIN = "com.microsoft"


def _channels_first(value: Value) -> Value:
    rank = len(value.shape)
    return permuted(value, (0, rank - 1, *range(1, rank - 1)))


def _channels_last(value: Value) -> Value:
    rank = len(value.shape)
    return permuted(value, (0, *range(2, rank), 1))


@operator("NhwcMaxPool", domain=DOMAIN)
def channels_last_max_pool(node: Node) -> Value:
    """MaxPool of an image whose channels stand last."""
    return _channels_last(standard(node, "MaxPool", _channels_first(node.value(0)), **node.attributes))


@operator("ExpandDims", domain=DOMAIN)
def expand_dims(node: Node) -> Value:
    """Another dimension of one element."""
    return standard(node, "Unsqueeze", node.value(0), node.host(1).reshape(1))


@operator("Trilu", "Pad", "Range", "GatherND", "GridSample", domain=DOMAIN)
def by_its_name(node: Node) -> Value:
    """As the operator of ai.onnx that has the name."""
    modes = {"bilinear": "linear", "bicubic": "cubic"} if node.op == "GridSample" else {}
    settings: dict[str, Any] = {n: modes.get(v, v) if isinstance(v, str) else v for n, v in node.attributes.items()}
    return standard(node, node.op, *node.values, **settings)


@operator("CDist", domain=DOMAIN)
def distances(node: Node) -> Value:
    """Between each row of one matrix and each row of another, squared or not."""
    if node.attribute("metric", "sqeuclidean") not in ("sqeuclidean", "euclidean"):
        raise node.unsupported(f"the metric {node.attribute('metric')!r} is not known")
    root = "sqrt(S)" if node.attribute("metric", "sqeuclidean") == "euclidean" else "S"
    rows, columns = node.shape(0)[0], node.shape(1)[0]
    width = node.shape(0)[1]
    apart = contraction("D", (rows, columns, width), ("i", "j", "k"), "=", "A[i, k]")
    other = contraction("E", (rows, columns, width), ("i", "j", "k"), "=", "B[j, k]")
    total = contraction("S", (rows, columns), ("i", "j"), "+", "Q[i, j, k]")
    text = function(("A", "B"), ("Y",), apart, other, "F = D - E;", "Q = F * F;", total, f"Y = {root};")
    return apply(text, node.value(0), node.value(1))
