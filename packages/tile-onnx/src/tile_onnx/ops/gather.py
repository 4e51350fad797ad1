"""Operators that take elements from where data says."""

from __future__ import annotations

from tile_runtime.ops.gather import chosen, reversed_sequences, taken_along, taken_at, wrapped, wrapped_places
from tile_runtime.ops.text import at, contraction, function, names
from tile_runtime.ops.values import Value, apply

from tile_onnx.node import Node
from tile_onnx.ops.moving import demand
from tile_onnx.registry import operator


@operator("Gather")
def gather(node: Node) -> Value:
    shape = node.shape(0)
    axis = node.axis(node.attribute("axis", 0))
    return chosen(node.value(0), wrapped(node.value(1), shape[axis]), axis)


@operator("GatherElements", since=11)
def gather_elements(node: Node) -> Value:
    shape, sizes = node.shape(0), node.shape(1)
    axis = node.axis(node.attribute("axis", 0))
    fits = len(sizes) == len(shape) and all(
        n <= m for k, (n, m) in enumerate(zip(sizes, shape, strict=True)) if k != axis
    )
    demand(node, fits, f"indices of shape {list(sizes)} into {list(shape)} along axis {axis}")
    return taken_along(node.value(0), wrapped(node.value(1), shape[axis]), axis)


@operator("GatherND", since=11)
def gather_nd(node: Node) -> Value:
    shape, places = node.shape(0), node.shape(1)
    depth, batch = places[-1], node.attribute("batch_dims", 0)
    demand(node, batch + depth <= len(shape), f"{depth} indices and {batch} batch axes for {len(shape)} dimensions")
    demand(
        node, places[:batch] == shape[:batch], f"batches {list(places[:batch])} of indices for {list(shape[:batch])}"
    )
    return taken_at(node.value(0), wrapped_places(node.value(1), shape[batch : batch + depth]), batch)


@operator("OneHot", since=9)
def one_hot(node: Node) -> Value:
    shape, depth = node.shape(0), node.ints(1)[0]
    axis = node.axis(node.attribute("axis", -1), len(shape) + 1)
    sizes = (*shape[:axis], depth, *shape[axis:])
    index = names(len(sizes))
    places = index[:axis] + index[axis + 1 :]
    statements = (
        contraction("P", sizes, index, "=", at("I", places)),
        contraction("F", (), (), "=", "V[0]"),
        contraction("T", (), (), "=", "V[1]"),
        f"C = as_int(index(P, {axis}), 64);",
        f"Y = ((P == C) | (P == C - {depth})) ? T : F;",
    )
    return apply(function("IV", "Y", *statements), node.value(0), node.value(2))


@operator("ReverseSequence", since=10)
def reverse_sequence(node: Node) -> Value:
    time, batch = node.axes((node.attribute("time_axis", 0), node.attribute("batch_axis", 1)))
    return reversed_sequences(node.value(0), node.value(1), time, batch)
