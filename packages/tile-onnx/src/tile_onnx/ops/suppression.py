"""NonMaxSuppression: the best boxes of every class, none of which overlaps a better one much; on the host."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tile_ir.frozen import frozen
from tile_runtime.ops.values import Array

from tile_onnx.node import Node
from tile_onnx.registry import host_operator

AT_ONCE = 128
"""Boxes that are compared with one another, all pairs together."""
PAIRS = 1 << 14
"""Boxes that are compared with those chosen already, times how many these are."""


@host_operator("NonMaxSuppression", since=10)
def non_max_suppression(
    node: Node,
    boxes: Array,
    scores: Array,
    most: Array | None = None,
    overlap: Array | None = None,
    least: Array | None = None,
) -> Array:
    """[found, 3] of batch, class and box: the best ones first, none that overlaps a better one too much."""
    count = 0 if most is None else int(most.reshape(()))
    limit = 0.0 if overlap is None else float(overlap.reshape(()))
    choices = [_Choice(edges, count, limit) for edges in _edges(boxes, bool(node.attribute("center_point_box", 0)))]
    with np.errstate(invalid="ignore"):  # of two boxes without an area neither excludes the other
        rows = [
            (batch, class_, box)
            for batch, class_, order in _ranked(scores, None if least is None else float(least.reshape(())))
            for box in choices[batch].of(order).tolist()
        ]
    return np.asarray(rows, np.int64).reshape(-1, 3)


def _edges(boxes: Array, centred: bool) -> Array:
    """[batch, 5, box]: low y, low x, high y, high x and area of boxes given by two corners in any order, or by centre and size."""
    if centred:
        x, y, width, height = np.moveaxis(boxes, -1, 0)
        low, high = np.stack([y - height / 2, x - width / 2]), np.stack([y + height / 2, x + width / 2])
    else:
        first, second = np.moveaxis(boxes[..., :2], -1, 0), np.moveaxis(boxes[..., 2:], -1, 0)
        low, high = np.minimum(first, second), np.maximum(first, second)
    area = np.prod(high - low, 0, keepdims=True)
    return np.ascontiguousarray(np.moveaxis(np.concatenate([low, high, area]), 1, 0))


def _ranked(scores: Array, least: float | None) -> Iterator[tuple[int, int, Array]]:
    """Of each batch and class that has any: its boxes with scores above `least`, from the best on."""
    wanted = np.ones(scores.shape, bool) if least is None else scores > least
    for batch, class_ in np.argwhere(wanted.any(-1)).tolist():
        (places,) = np.nonzero(wanted[batch, class_])
        yield batch, class_, places[np.argsort(-scores[batch, class_, places], kind="stable")]


@frozen
class _Choice:
    """Up to `count` of the boxes, each of which overlaps those chosen before it by `limit` at most."""

    edges: Array
    count: int
    limit: float

    def of(self, order: Array) -> Array:
        """What is chosen of the boxes `order`, the best ones first.

        Only those in question are compared, a few at a time: few are left by the time that enough are chosen.
        """
        chosen = order[:0]
        while len(order) and len(chosen) < self.count:
            size = max(AT_ONCE, PAIRS // len(chosen)) if len(chosen) else AT_ONCE
            these, order = order[:size], order[size:]
            if len(chosen):
                these = these[~self._overlapping(chosen, these).any(0)]
                these, order = these[:AT_ONCE], np.concatenate([these[AT_ONCE:], order])
            chosen = np.concatenate([chosen, these[self._first(these)]])
        return chosen[: self.count]

    def _first(self, these: Array) -> list[int]:
        """Places of those that overlap none of the chosen ones before: rows of the comparison as bits of numbers."""
        rows = np.packbits(self._overlapping(these, these), axis=1, bitorder="little")
        found, excluded = list[int](), 0
        for place, row in enumerate(rows):
            if not excluded >> place & 1:
                found.append(place)
                excluded |= int.from_bytes(row.tobytes(), "little")
        return found

    def _overlapping(self, some: Array, others: Array) -> Array:
        """[some, others]: whether both cover more than `limit` of the union of two boxes."""
        a, b = self.edges.take(some, 1)[:, :, None], self.edges.take(others, 1)[:, None]
        sides = np.maximum(np.minimum(a[2:4], b[2:4]) - np.maximum(a[:2], b[:2]), 0)
        common = sides[0] * sides[1]
        return common / (a[4] + b[4] - common) > self.limit
