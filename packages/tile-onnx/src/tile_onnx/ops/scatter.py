"""Operators that put elements where data says."""

from __future__ import annotations

import numpy as np
from tile_runtime.ops.gather import wrapped, wrapped_places
from tile_runtime.ops.moving import reshaped
from tile_runtime.ops.scatter import scattered_along, scattered_at
from tile_runtime.ops.text import at, contraction, expression, function, names
from tile_runtime.ops.values import Value, apply

from tile_onnx.node import Node
from tile_onnx.ops.moving import demand
from tile_onnx.registry import operator


@operator("Scatter", since=9)
@operator("ScatterElements", since=11)
def scatter_elements(node: Node) -> Value:
    shape, sizes = node.shape(0), node.shape(1)
    axis = node.axis(node.attribute("axis", 0))
    fits = len(sizes) == len(shape) and node.shape(2) == sizes
    demand(node, fits, f"updates of shape {list(node.shape(2))} for indices of shape {list(sizes)}")
    places = wrapped(node.value(1), shape[axis])
    return scattered_along(node.value(0), places, node.value(2), axis, node.attribute("reduction", "none"))


@operator("ScatterND", since=11)
def scatter_nd(node: Node) -> Value:
    shape, places = node.shape(0), node.shape(1)
    depth = places[-1]
    wanted = (*places[:-1], *shape[depth:])
    demand(node, node.shape(2) == wanted, f"updates of shape {list(node.shape(2))} instead of {list(wanted)}")
    found = wrapped_places(node.value(1), shape[:depth])
    return scattered_at(node.value(0), found, node.value(2), node.attribute("reduction", "none"))


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
