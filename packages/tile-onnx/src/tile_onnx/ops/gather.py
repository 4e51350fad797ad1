"""Operators that take elements from where data says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tile_onnx.node import Node, Value, apply
from tile_onnx.ops.moving import demand, window
from tile_onnx.ops.text import at, contraction, expression, function, names
from tile_onnx.registry import operator
from tile_onnx.values import is_known


def wrapped(indices: Value, size: int) -> Value:
    """Integers in which negative ones count from the end of `size` cells."""
    if is_known(indices):
        return indices + size * (indices < 0)
    if not indices.dtype.is_signed:
        return indices
    return apply(expression("I", f"I < 0 ? I + {size} : I"), indices)


def taking(sizes: Sequence[int], subscripts: Sequence[str]) -> str:
    """The function ``Y[i0, i1… : sizes] = X[subscripts]``, in which integers I may be among the subscripts."""
    return function("XI", "Y", contraction("Y", sizes, names(len(sizes)), "=", at("X", subscripts)))


def chosen(value: Value, indices: Value, axis: int) -> Value:
    """As `np.take(value, indices, axis)`; indices count from 0 and are clamped into the axis."""
    if is_known(value) and is_known(indices):
        return np.take(value, indices, axis)
    shape, rank = value.shape, len(indices.shape)
    sizes = (*shape[:axis], *indices.shape, *shape[axis + 1 :])
    index = names(len(sizes))
    subscripts = (*index[:axis], at("I", index[axis : axis + rank]), *index[axis + rank :])
    return apply(taking(sizes, subscripts), value, indices)


@operator("Gather")
def gather(node: Node) -> Value:
    shape = node.shape(0)
    axis = node.axis(node.attribute("axis", 0))
    return chosen(node.value(0), wrapped(node.value(1), shape[axis]), axis)


@operator("GatherElements", since=11)
def gather_elements(node: Node) -> Value:
    shape, sizes = node.shape(0), node.shape(1)
    axis = node.axis(node.attribute("axis", 0))
    index = names(len(sizes))
    subscripts = (*index[:axis], at("I", index), *index[axis + 1 :])
    fits = len(sizes) == len(shape) and all(
        n <= m for k, (n, m) in enumerate(zip(sizes, shape, strict=True)) if k != axis
    )
    demand(node, fits, f"indices of shape {list(sizes)} into {list(shape)} along axis {axis}")
    return apply(taking(sizes, subscripts), node.value(0), wrapped(node.value(1), shape[axis]))


@operator("GatherND", since=11)
def gather_nd(node: Node) -> Value:
    shape, places = node.shape(0), node.shape(1)
    depth, batch = places[-1], node.attribute("batch_dims", 0)
    demand(node, batch + depth <= len(shape), f"{depth} indices and {batch} batch axes for {len(shape)} dimensions")
    demand(
        node, places[:batch] == shape[:batch], f"batches {list(places[:batch])} of indices for {list(shape[:batch])}"
    )
    sizes = (*places[:-1], *shape[batch + depth :])
    index = names(len(sizes))
    own = len(places) - 1
    looked = [at("I", (*index[:own], k)) for k in range(depth)]
    text = taking(sizes, (*index[:batch], *looked, *index[own:]))
    return apply(text, node.value(0), wrapped_places(node.value(1), shape[batch : batch + depth]))


def wrapped_places(places: Value, sizes: Sequence[int]) -> Value:
    """Index tuples, the last dimension of `places`, in which negative numbers count from the ends of `sizes`."""
    limits = np.asarray(sizes, places.dtype if is_known(places) else places.dtype.numpy)
    if is_known(places):
        return places + limits * (places < 0)
    return apply(expression("I, S", "I < 0 ? I + S : I"), places, limits)


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
    time, batch = node.attribute("time_axis", 0), node.attribute("batch_axis", 1)
    return reversed_sequences(node.value(0), node.value(1), *node.axes((time, batch)))


def reversed_sequences(value: Value, lengths: Value, time: int, batch: int) -> Value:
    """`value` with the first cells along axis `time` reversed: `lengths[b]` of them for each b of axis `batch`, or all."""
    shape, index = tuple(value.shape), names(len(value.shape))
    if lengths is None:
        return window(
            value,
            [n - 1 if k == time else 0 for k, n in enumerate(shape)],
            shape,
            [-1 if k == time else 1 for k in range(len(shape))],
        )
    moments = np.arange(shape[time], dtype=np.int64).reshape(-1, 1)
    places = apply(expression("T, L", "T < L ? L - 1 - T : T"), moments, lengths)
    subscripts = tuple(f"I[{index[time]}, {index[batch]}]" if k == time else i for k, i in enumerate(index))
    return apply(taking(shape, subscripts), value, places)
