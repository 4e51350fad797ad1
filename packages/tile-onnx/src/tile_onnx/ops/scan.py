"""Cumulative sums and products along an axis, in linear time."""

from __future__ import annotations

from tile_runtime.ops.text import at, cast, contraction, function, names
from tile_runtime.ops.values import Value, apply

from tile_onnx.node import Node
from tile_onnx.registry import operator

_AGGREGATIONS = {"CumSum": "+", "CumProd": "*"}


@operator("CumSum", "CumProd")
def cumulate(node: Node) -> Value:
    """From the start or the end (`reverse`), with the cell itself or without it (`exclusive`)."""
    shape, aggregation = node.shape(0), _AGGREGATIONS[node.op]
    axis = node.axis(node.ints(1)[0])
    indexes, sign = names(len(shape)), "+" if node.attribute("reverse", 0) else "-"

    def moved(tensor: str, offset: str) -> str:
        return at(tensor, (f"{i} {sign} {offset}" if k == axis else i for k, i in enumerate(indexes)))

    statements = [contraction("C", shape, indexes, aggregation, moved("X", "j"), f"j < {shape[axis]}")]
    if node.attribute("exclusive", 0):
        neutral = cast(f"(0 * index(X, {axis}) + {int(aggregation == '*')})", node.dtype(0))
        statements += [f"N = {neutral};", contraction("Y", shape, indexes, "=", moved("C", "1"), "default N")]
    return apply(function(("X",), ("Y" if len(statements) > 1 else "C",), *statements), node.value(0))
