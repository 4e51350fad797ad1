"""Sequences and optionals: lists of values, and values that may be absent."""

from __future__ import annotations

import numpy as np
from tile_runtime.ops.moving import joined, parts
from tile_runtime.ops.values import Array, Value

from tile_onnx.node import Node
from tile_onnx.ops.steps import stack, take
from tile_onnx.registry import operator


@operator("SequenceEmpty")
def empty(node: Node) -> Value:
    return []


@operator("SequenceConstruct")
def construct(node: Node) -> Value:
    return list(node.values)


@operator("SequenceInsert")
def insert(node: Node) -> Value:
    found = _sequence(node)
    place = _place(node, 2, len(found), len(found) + 1) if node.has(2) else len(found)
    return [*found[:place], node.value(1), *found[place:]]


@operator("SequenceErase")
def erase(node: Node) -> Value:
    found = _sequence(node)
    place = _place(node, 1, len(found), len(found)) if node.has(1) else len(found) - 1
    return [*found[:place], *found[place + 1 :]]


@operator("SequenceAt")
def at(node: Node) -> Value:
    found = _sequence(node)
    return found[_place(node, 1, len(found), len(found))]


@operator("SequenceLength")
def length(node: Node) -> Array:
    return np.array(len(_sequence(node)), np.int64)


@operator("SplitToSequence")
def split(node: Node) -> Value:
    axis = node.axis(node.attribute("axis", 0))
    whole = node.shape(0)[axis]
    if not node.has(1) and not node.attribute("keepdims", 1):
        return [take(node.value(0), axis, k) for k in range(whole)]
    return list(parts(node.value(0), axis, _sizes(node, whole)))


def _sizes(node: Node, whole: int) -> list[int]:
    if not node.has(1):
        return [1] * whole
    given = node.ints(1)
    sizes = (
        list(given)
        if node.rank(1)
        else [*[given[0]] * (whole // given[0]), *([whole % given[0]] if whole % given[0] else [])]
    )
    if sum(sizes) != whole or min(sizes, default=0) < 0:
        raise node.unsupported(f"parts of {sizes} do not make up the {whole} cells of the axis")
    return sizes


@operator("ConcatFromSequence")
def concatenate(node: Node) -> Value:
    found = _sequence(node)
    if not found:
        raise node.unsupported("an empty sequence has no shape")
    new = bool(node.attribute("new_axis", 0))
    axis = node.axis(node.attribute("axis"), len(found[0].shape) + new)
    return stack(found, axis) if new else joined(found, axis)


@operator("Optional")
def optional(node: Node) -> Value:
    return node.value(0)


@operator("OptionalHasElement")
def has_element(node: Node) -> Array:
    return np.array(node.has(0))


@operator("OptionalGetElement")
def get_element(node: Node) -> Value:
    if not node.has(0):
        raise node.unsupported("the optional is empty")
    return node.value(0)


def _sequence(node: Node) -> list[Value]:
    found = node.value(0)
    if not isinstance(found, list):
        raise node.unsupported("input 0 is no sequence")
    return found  # pyright: ignore[reportUnknownVariableType]


def _place(node: Node, k: int, length: int, limit: int) -> int:
    """An index, counted from the front."""
    (given,) = node.ints(k)
    place = given + length if given < 0 else given
    if not 0 <= place < limit:
        raise node.unsupported(f"index {given} of a sequence of {length}")
    return place
