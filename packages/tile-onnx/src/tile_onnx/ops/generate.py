"""Triangles, identity matrices and ranges."""

from __future__ import annotations

from math import ceil

import numpy as np
from tile_ir.dtype import DType
from tile_runtime.ops.text import function, literal
from tile_runtime.ops.values import Value, apply

from tile_onnx.dtypes import numpy_dtype
from tile_onnx.node import Node
from tile_onnx.registry import operator


@operator("Trilu", since=14)
def trilu(node: Node) -> Value:
    """The upper or lower triangle of every matrix, from diagonal `k` on; 0 elsewhere."""
    row = node.rank(0) - 2
    holds = ">=" if node.attribute("upper", 1) else "<="
    inside = f"C = index(X, {row + 1}) - index(X, {row}) {holds} {literal(node.ints(1, (0,))[0])};"
    kept = "Y = X & C;" if node.dtype(0) is DType.BOOL else "Y = C ? X : 0;"
    return apply(function(("X",), ("Y",), inside, kept), node.value(0))


@operator("EyeLike", since=9)
def eye_like(node: Node) -> Value:
    """Ones on diagonal `k` of a matrix as large as the input."""
    element = node.attribute("dtype", 0)
    dtype = numpy_dtype(element) if element else node.dtype(0).numpy
    return np.eye(*node.shape(0), k=node.attribute("k", 0)).astype(dtype)


@operator("Range", since=11)
def arange(node: Node) -> Value:
    """``start, start + delta, …`` below `limit`; computed on the host."""
    start, limit, delta = (node.host(k).reshape(()) for k in range(3))
    count = max(ceil((limit.item() - start.item()) / delta.item()), 0)
    wide = node.dtype(0).accumulator.numpy
    return (wide.type(start) + np.arange(count, dtype=wide) * wide.type(delta)).astype(start.dtype)
