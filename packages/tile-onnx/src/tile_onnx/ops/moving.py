"""What converters ask of a node's shapes."""

from __future__ import annotations

from tile_onnx.node import Node


def attribute_or_input(node: Node, name: str, k: int) -> tuple[int, ...] | None:
    """Integers that older opsets have as attribute `name` and newer ones as input `k`; None where there are none."""
    found = node.attribute(name)
    return node.ints(k) if found is None and node.has(k) else found


def demand(node: Node, holds: bool, otherwise: str) -> None:
    """Refuses a node whose shapes contradict one another: an index that two tensors bound counts what both have."""
    if not holds:
        raise node.unsupported(otherwise, "the operator's definition relates these sizes; the model or a feed is wrong")
