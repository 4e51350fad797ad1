"""Einsum."""

from __future__ import annotations

from tile_runtime.ops import einsum as summing
from tile_runtime.ops.values import Value

from tile_onnx.node import Node
from tile_onnx.registry import operator


@operator("Einsum")
def einsum(node: Node) -> Value:
    """Any equation, with an ellipsis or without an arrow, too."""
    values = [node.value(k) for k in range(node.arity)]
    for k in range(node.arity):
        node.shape(k)
    try:
        return summing.einsum(node.attribute("equation"), *values)
    except (ValueError, KeyError) as error:
        raise node.unsupported(f"the equation does not fit its operands: {error}") from None
