"""TopK."""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_runtime.ops.text import cast, function
from tile_runtime.ops.values import Value, apply

from tile_onnx.node import Node
from tile_onnx.registry import operator


@operator("TopK")
def top_k(node: Node) -> Value:
    """The `k` largest or smallest along an axis, sorted, with their places; of equal ones the first, NaN before all."""
    shape, axis = node.shape(0), node.axis(node.attribute("axis", -1))
    kept = node.ints(1)[0] if node.arity > 1 else node.attribute("k")
    if kept > shape[axis]:
        raise node.unsupported(f"k is {kept}, and axis {axis} has {shape[axis]} elements")
    # What turns the order around: of integers the complement, as the smallest has no negative.
    turn = "" if node.attribute("largest", 1) else "~" if node.dtype(0).is_integer else "-"
    statements = [
        f"T = top_k({turn}X, {kept}, {axis});",
        f"Y = {turn}element(T, 0);",
        f"I = {cast('element(T, 1)', DType.INT64)};",
    ]
    return apply(function(("X",), ("Y", "I"), *statements), node.value(0))
