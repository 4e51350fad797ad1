"""Activation functions."""

from __future__ import annotations

from tile_onnx.node import Node, Value, apply
from tile_onnx.registry import operator


@operator("Relu")
def relu(node: Node) -> Value:
    return apply("function (X) -> (Y) { Y = X < 0 ? 0 : X; }", node.value(0))
