"""Softmax and its kin: along an axis, or before opset 13 over all dimensions from it on."""

from __future__ import annotations

from math import prod

from tile_onnx.node import Node, Value, apply
from tile_onnx.ops.reduce import reduced
from tile_onnx.ops.text import Shape, cast, function, reshaped, wide
from tile_onnx.registry import operator

_VALUES = {"Softmax": "E / S", "LogSoftmax": "D - log(S)"}


@operator("Softmax", "LogSoftmax")
def flat_softmax(node: Node) -> Value:
    """Over all dimensions from `axis` (1) on."""
    axis = node.axis(node.attribute("axis", 1))
    return softmax(node, tuple(range(axis, node.rank(0))))


@operator("Softmax", "LogSoftmax", since=13)
def axis_softmax(node: Node) -> Value:
    """Along `axis` (-1)."""
    return softmax(node, node.axes((node.attribute("axis", -1),)))


def softmax(node: Node, axes: Shape) -> Value:
    """Exponentials less the largest, as shares of their sum; in float32 where the dtype is narrower."""
    shape, dtype = node.shape(0), node.dtype(0)
    # The shift keeps the exponentials in range; any gives the same, so that no derivative flows through it.
    statements = [
        f"X = {wide('In', dtype)};",
        reduced("M", "X", shape, axes, ">"),
        "D = X - stop_gradient(M);",
        "E = exp(D);",
        reduced("S", "E", shape, axes),
        f"Y = {cast(f'({_VALUES[node.op]})', dtype)};",
    ]
    return apply(function(("In",), ("Y",), *statements), node.value(0))


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
