"""Operators that give the same elements another shape or order, and those that speak of shapes."""

from __future__ import annotations

from math import prod

import numpy as np
from tile_runtime.ops.moving import expanded, permuted, rearranged, repeated, reshaped, window
from tile_runtime.ops.values import Value

from tile_onnx.node import Node
from tile_onnx.ops.moving import attribute_or_input, demand
from tile_onnx.registry import operator
from tile_onnx.values import frozen


@operator("Reshape", since=5)
def reshape(node: Node) -> Value:
    shape, wanted = node.shape(0), list(node.ints(1))
    if not node.attribute("allowzero", 0):
        wanted = [shape[k] if size == 0 else size for k, size in enumerate(wanted)]
    if -1 in wanted:
        rest = prod(size for size in wanted if size != -1)
        wanted[wanted.index(-1)] = prod(shape) // rest if rest else 0
    return reshaped(node.value(0), wanted)


@operator("Flatten")
def flatten(node: Node) -> Value:
    shape = node.shape(0)
    axis: int = node.attribute("axis", 1)
    axis += len(shape) if axis < 0 else 0
    return reshaped(node.value(0), (prod(shape[:axis]), prod(shape[axis:])))


@operator("Squeeze")
def squeeze(node: Node) -> Value:
    shape, given = node.shape(0), attribute_or_input(node, "axes", 1)
    axes = [k for k, n in enumerate(shape) if n == 1] if given is None else node.axes(given)
    return reshaped(node.value(0), [n for k, n in enumerate(shape) if k not in axes])


@operator("Unsqueeze")
def unsqueeze(node: Node) -> Value:
    shape, given = list(node.shape(0)), attribute_or_input(node, "axes", 1) or ()
    for axis in sorted(node.axes(given, len(shape) + len(given))):
        shape.insert(axis, 1)
    return reshaped(node.value(0), shape)


@operator("Transpose")
def transpose(node: Node) -> Value:
    every = range(node.rank(0))
    order = node.attribute("perm", tuple(reversed(every)))
    demand(node, sorted(order) == list(every), f"perm {list(order)} does not name each of {len(every)} axes once")
    return permuted(node.value(0), order)


@operator("Expand", since=8)
def expand(node: Node) -> Value:
    return expanded(node.value(0), np.broadcast_shapes(node.shape(0), node.ints(1)))


@operator("Tile", since=6)
def tile(node: Node) -> Value:
    return repeated(node.value(0), node.ints(1))


@operator("Shape")
def shape(node: Node) -> Value:
    start, end = node.attribute("start", 0), node.attribute("end")
    return np.asarray(node.shape(0)[start:end], np.int64)


@operator("Size")
def size(node: Node) -> Value:
    return np.asarray(prod(node.shape(0)), np.int64)


@operator("ConstantOfShape", since=9)
def constant_of_shape(node: Node) -> Value:
    value = node.attribute("value", np.zeros(1, np.float32))
    return frozen(np.full(node.ints(0), value.reshape(()), value.dtype))


@operator("SpaceToDepth")
def space_to_depth(node: Node) -> Value:
    b = node.attribute("blocksize")
    n, c, h, w = node.shape(0)
    split, merged = (n, c, h // b, b, w // b, b), (n, c * b * b, h // b, w // b)
    order = {"DCR": (0, 3, 5, 1, 2, 4), "CRD": (0, 1, 3, 5, 2, 4)}[node.attribute("mode", "DCR")]
    return rearranged(node.value(0), split, order, merged)


@operator("DepthToSpace")
def depth_to_space(node: Node) -> Value:
    b = node.attribute("blocksize")
    n, c, h, w = node.shape(0)
    rest = c // (b * b)
    split, order = {
        "DCR": ((n, b, b, rest, h, w), (0, 3, 4, 1, 5, 2)),
        "CRD": ((n, rest, b, b, h, w), (0, 1, 4, 2, 5, 3)),
    }[node.attribute("mode", "DCR")]
    return rearranged(node.value(0), split, order, (n, rest, h * b, w * b))


@operator("CenterCropPad", since=18)
def center_crop_pad(node: Node) -> Value:
    shape = node.shape(0)
    axes = node.attribute("axes", tuple(range(len(shape))))
    sizes = list(shape)
    for axis, size in zip(axes, node.ints(1), strict=True):
        sizes[axis] = size
    # A crop starts at half of what is too much, a pad has the smaller half of what is missing in front.
    starts = [(own - size) // 2 if own > size else -((size - own) // 2) for own, size in zip(shape, sizes, strict=True)]
    return window(node.value(0), starts, sizes)
