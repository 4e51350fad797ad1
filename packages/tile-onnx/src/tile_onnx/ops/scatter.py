"""Operators that put elements where data says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tile_onnx.node import Node, Value, apply
from tile_onnx.ops.gather import wrapped, wrapped_places
from tile_onnx.ops.moving import demand, reshaped
from tile_onnx.ops.text import at, contraction, expression, function, names
from tile_onnx.registry import operator

_REDUCTIONS: dict[str, tuple[str, str, str]] = {
    "none": ("=", "X", "S"),
    "add": ("+", "0", "X + S"),
    "mul": ("*", "1", "X * S"),
    "max": (">", "X", "max(X, S)"),
    "min": ("<", "X", "min(X, S)"),
}
"""How updates of one cell are combined, what cells without any hold, and what the result is of X and both."""


@operator("Scatter", since=9)
@operator("ScatterElements", since=11)
def scatter_elements(node: Node) -> Value:
    shape, sizes = node.shape(0), node.shape(1)
    axis = node.axis(node.attribute("axis", 0))
    index = names(len(sizes))
    fits = len(sizes) == len(shape) and node.shape(2) == sizes
    demand(node, fits, f"updates of shape {list(node.shape(2))} for indices of shape {list(sizes)}")
    subscripts = (*index[:axis], at("I", index), *index[axis + 1 :])
    return _scatter(node, subscripts, wrapped(node.value(1), shape[axis]))


@operator("ScatterND", since=11)
def scatter_nd(node: Node) -> Value:
    shape, places = node.shape(0), node.shape(1)
    own, depth = len(places) - 1, places[-1]
    index, wanted = names(len(node.shape(2))), (*places[:-1], *shape[depth:])
    demand(node, node.shape(2) == wanted, f"updates of shape {list(node.shape(2))} instead of {list(wanted)}")
    subscripts = (*(at("I", (*index[:own], k)) for k in range(depth)), *index[own:])
    return _scatter(node, subscripts, wrapped_places(node.value(1), shape[:depth]))


def _scatter(node: Node, subscripts: Sequence[str], indices: Value) -> Value:
    aggregation, default, result = _REDUCTIONS[node.attribute("reduction", "none")]
    update = at("U", names(node.rank(2)))
    statement = contraction("S", node.shape(0), subscripts, aggregation, update, "default D")
    text = function("XIU", "Y", f"D = {default};", statement, f"Y = {result};")
    return apply(text, node.value(0), indices, node.value(2))


@operator("TensorScatter", since=24)
def tensor_scatter(node: Node) -> Value:
    """A cache of `size` cells along an axis, into which each batch's update goes from its own place on."""
    shape, update = node.shape(0), node.shape(1)
    axis, size = node.axis(node.attribute("axis", -2)), node.shape(0)[node.axis(node.attribute("axis", -2))]
    starts = node.value(2) if node.has(2) else np.zeros(shape[0], np.int64)
    places = apply(expression("S, T", "S + T"), reshaped(starts, (shape[0], 1)), np.arange(update[axis]))
    if node.attribute("mode", "linear") == "circular":
        places = apply(expression("P", f"P - P / {size} * {size}"), places)
    index = names(len(shape))
    subscripts = tuple(f"I[{index[0]}, {i}]" if k == axis else i for k, i in enumerate(index))
    text = contraction("Y", shape, subscripts, "=", at("U", index), "default X")
    return apply(function("XIU", "Y", text), node.value(0), places, node.value(1))
