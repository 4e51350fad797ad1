"""Operators whose results have as many elements as the data says: they run on the host, between device programs."""

from __future__ import annotations

import numpy as np
from tile_runtime.ops.values import Array

from tile_onnx.node import Node
from tile_onnx.registry import host_operator


@host_operator("NonZero", since=9)
def nonzero(node: Node, value: Array) -> Array:
    return np.asarray(np.nonzero(np.atleast_1d(value)), np.int64)


@host_operator("Compress", since=9)
def compress(node: Node, value: Array, condition: Array) -> Array:
    return np.compress(condition, value, node.attribute("axis"))


@host_operator("Unique", since=11)
def unique(node: Node, value: Array) -> tuple[Array, ...]:
    axis = node.attribute("axis")
    if axis is None:
        value = value.reshape(-1)
    found, first, inverse, counts = np.unique(value, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not node.attribute("sorted", 1):
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        found, first, inverse, counts = np.take(found, order, axis or 0), first[order], place[inverse], counts[order]
    return found, *(part.astype(np.int64) for part in (first, inverse, counts))
