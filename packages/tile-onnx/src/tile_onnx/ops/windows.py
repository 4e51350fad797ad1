"""The windows that nodes of convolutions and pools describe."""

from __future__ import annotations

from collections.abc import Sequence

from tile_runtime.ops import windows
from tile_runtime.ops.windows import Window, spans

from tile_onnx.node import Node


def sliding(node: Node, shape: Sequence[int], kernel: Sequence[int]) -> Window:
    """The window that a node's attributes describe, over spatial axes of `shape`."""
    rank = len(shape)
    strides, dilations = _each(node, "strides", rank), _each(node, "dilations", rank)
    before, after = _padding(node, shape, spans(kernel, dilations), strides)
    return windows.sliding(shape, kernel, strides, dilations, before, after, bool(node.attribute("ceil_mode", 0)))


def _each(node: Node, name: str, rank: int) -> tuple[int, ...]:
    return tuple(node.attribute(name) or (1,) * rank)


def _padding(
    node: Node, shape: Sequence[int], covered: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Cells in front of and behind each axis."""
    rank, auto = len(shape), node.attribute("auto_pad", "NOTSET")
    if auto in ("NOTSET", "VALID"):
        pads = (auto == "NOTSET" and node.attribute("pads")) or (0,) * (2 * rank)
        return tuple(pads[:rank]), tuple(pads[rank:])
    totals = [max(0, (-(-n // s) - 1) * s + span - n) for n, span, s in zip(shape, covered, strides, strict=True)]
    smaller, larger = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    return (smaller, larger) if auto == "SAME_UPPER" else (larger, smaller)
