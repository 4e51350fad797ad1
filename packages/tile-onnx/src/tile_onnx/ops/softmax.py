"""Softmax and its kin: along an axis, or before opset 13 over all dimensions from it on."""

from __future__ import annotations

from math import prod

from tile_runtime.ops.reducing import reduced
from tile_runtime.ops.softmax import softmax
from tile_runtime.ops.text import Shape, cast, function, reshaped
from tile_runtime.ops.values import Value, apply

from tile_onnx.node import Node
from tile_onnx.registry import operator


@operator("Softmax", "LogSoftmax")
def flat_softmax(node: Node) -> Value:
    """Over all dimensions from `axis` (1) on."""
    axis = node.axis(node.attribute("axis", 1))
    return _softmax(node, tuple(range(axis, node.rank(0))))


@operator("Softmax", "LogSoftmax", since=13)
def axis_softmax(node: Node) -> Value:
    """Along `axis` (-1)."""
    return _softmax(node, node.axes((node.attribute("axis", -1),)))


def _softmax(node: Node, axes: Shape) -> Value:
    node.dtype(0)
    return softmax(node.value(0), axes, logarithm=node.op == "LogSoftmax")


@operator("Hardmax")
def flat_hardmax(node: Node) -> Value:
    """1 at the first of the largest, counted over all dimensions from `axis` (1) on."""
    axis, shape = node.axis(node.attribute("axis", 1)), node.shape(0)
    rows = prod(shape[:axis])
    return _hardmax(node, (rows, prod(shape[axis:])), 1)


@operator("Hardmax", since=13)
def axis_hardmax(node: Node) -> Value:
    """1 at the first of the largest along `axis` (-1)."""
    return _hardmax(node, node.shape(0), node.axis(node.attribute("axis", -1)))


def _hardmax(node: Node, shape: Shape, axis: int) -> Value:
    statements = [
        f"X = {reshaped('In', shape)};",
        reduced("M", "X", shape, (axis,), ">"),
        f"I = X == M ? index(X, {axis}) : {shape[axis]};",
        reduced("P", "I", shape, (axis,), "<"),
        f"H = {cast(f'(index(X, {axis}) == P)', node.dtype(0))};",
        f"Y = {reshaped('H', node.shape(0))};",
    ]
    return apply(function(("In",), ("Y",), *statements), node.value(0))
