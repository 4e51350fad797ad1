"""Windows that slide over the spatial axes of a tensor: what convolutions and pools share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tile_onnx.node import Node
from tile_onnx.ops.text import names


@dataclass(frozen=True, slots=True)
class Window:
    """A window of `kernel` cells, `dilations` apart, that moves by `strides`; each field has a number for every axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    """Cells of padding in front of the first."""
    after: tuple[int, ...]
    sizes: tuple[int, ...]
    """How many places it takes."""

    @property
    def places(self) -> tuple[str, ...]:
        """The indexes that count places."""
        return names(len(self.kernel), "y")

    @property
    def cells(self) -> tuple[str, ...]:
        """The indexes that count cells of the window."""
        return names(len(self.kernel), "k")

    def subscripts(self) -> tuple[str, ...]:
        """Where cell `cells` at place `places` is, such as ``2*y0 + k0 - 1``."""
        every = zip(self.places, self.cells, self.strides, self.dilations, self.before, strict=True)
        return tuple(f"{_times(s, y)} + {_times(d, k)}{f' - {b}' if b else ''}" for y, k, s, d, b in every)

    def constraints(self) -> tuple[str, ...]:
        """``k0 < 3``, …, for bodies in which nothing else bounds the cells."""
        return tuple(f"{k} < {size}" for k, size in zip(self.cells, self.kernel, strict=True))


def sliding(node: Node, shape: Sequence[int], kernel: Sequence[int]) -> Window:
    """The window that a node's attributes describe, over spatial axes of `shape`."""
    rank = len(shape)
    strides, dilations = _each(node, "strides", rank), _each(node, "dilations", rank)
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    before, after = _padding(node, shape, spans, strides)
    upwards = node.attribute("ceil_mode", 0)
    sizes = [_places(*all_, upwards) for all_ in zip(shape, spans, strides, before, after, strict=True)]
    return Window(tuple(kernel), strides, dilations, before, after, tuple(sizes))


def _each(node: Node, name: str, rank: int) -> tuple[int, ...]:
    return tuple(node.attribute(name) or (1,) * rank)


def _padding(
    node: Node, shape: Sequence[int], spans: Sequence[int], strides: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Cells in front of and behind each axis."""
    rank, auto = len(shape), node.attribute("auto_pad", "NOTSET")
    if auto in ("NOTSET", "VALID"):
        pads = (auto == "NOTSET" and node.attribute("pads")) or (0,) * (2 * rank)
        return tuple(pads[:rank]), tuple(pads[rank:])
    totals = [max(0, (-(-n // s) - 1) * s + span - n) for n, span, s in zip(shape, spans, strides, strict=True)]
    smaller, larger = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    return (smaller, larger) if auto == "SAME_UPPER" else (larger, smaller)


def _places(size: int, span: int, stride: int, before: int, after: int, upwards: bool) -> int:
    room = size + before + after - span
    if not upwards:
        return max(0, room // stride + 1)
    places = max(0, -(-room // stride) + 1)
    # The last window must begin inside the tensor or the padding in front of it.
    return places - 1 if (places - 1) * stride >= size + before else places


def _times(factor: int, index: str) -> str:
    return index if factor == 1 else f"{factor}*{index}"
