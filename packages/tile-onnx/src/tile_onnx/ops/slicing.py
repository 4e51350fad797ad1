"""Operators that cut tensors apart and put them together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tile_runtime.ops.moving import equal_sizes, joined, padded, parts, sliced
from tile_runtime.ops.values import Value

from tile_onnx.node import Node
from tile_onnx.ops.moving import attribute_or_input, demand
from tile_onnx.registry import operator


def _sliced_at(
    node: Node, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
) -> Value:
    slices = [slice(None)] * len(node.shape(0))
    for axis, start, end, step in zip(node.axes(axes), starts, ends, steps, strict=True):
        slices[axis] = slice(start, end, step)
    return sliced(node.value(0), slices)


@operator("Slice")
def slice_by_attributes(node: Node) -> Value:
    starts = node.attribute("starts")
    axes = node.attribute("axes", range(len(starts)))
    return _sliced_at(node, starts, node.attribute("ends"), axes, [1] * len(starts))


@operator("Slice", since=10)
def slice_by_inputs(node: Node) -> Value:
    starts = node.ints(1)
    axes, steps = node.ints(3, tuple(range(len(starts)))), node.ints(4, (1,) * len(starts))
    return _sliced_at(node, starts, node.ints(2), axes, steps)


@operator("Split", since=2)
def split(node: Node) -> tuple[Value, ...]:
    shape = node.shape(0)
    axis, given = node.axis(node.attribute("axis", 0)), attribute_or_input(node, "split", 1)
    sizes = given or equal_sizes(shape[axis], node.count)
    fits = sum(sizes) == shape[axis] and len(sizes) == node.count and min(sizes) >= 0
    demand(node, fits, f"{shape[axis]} cells in {node.count} parts of {list(sizes)}")
    return tuple(parts(node.value(0), axis, sizes))


@operator("Concat", since=4)
def concat(node: Node) -> Value:
    axis = node.axis(node.attribute("axis"))
    shapes = [node.shape(k) for k in range(node.arity)]
    others = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    demand(node, len(others) == 1, f"shapes that differ beside axis {axis}: {', '.join(str(list(s)) for s in shapes)}")
    return joined([node.value(k) for k in range(node.arity)], axis)


@operator("Pad", since=2)
def pad_by_attributes(node: Node) -> Value:
    rank, pads = len(node.shape(0)), node.attribute("pads")
    value = np.asarray(node.attribute("value", 0.0), node.dtype(0).numpy)
    return _padded(node, pads[:rank], pads[rank:], value)


@operator("Pad", since=11)
def pad_by_inputs(node: Node) -> Value:
    rank, pads = len(node.shape(0)), node.ints(1)
    axes = node.axes(node.ints(3, tuple(range(rank))))
    before, after = [0] * rank, [0] * rank
    for k, axis in enumerate(axes):
        before[axis], after[axis] = pads[k], pads[k + len(axes)]
    return _padded(node, before, after, node.value(2))


def _padded(node: Node, before: Sequence[int], after: Sequence[int], fill: Value) -> Value:
    return padded(node.value(0), before, after, node.attribute("mode", "constant"), fill)
