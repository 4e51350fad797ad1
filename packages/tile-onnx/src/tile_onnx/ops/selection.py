"""Operators whose results have as many elements as the data says: they run on the host, between device programs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from tile_runtime.ops.values import Array

from tile_onnx.node import Node
from tile_onnx.registry import host_operator


@host_operator("NonZero", since=9)
def nonzero(node: Node, value: Array) -> Array:
    return np.asarray(np.nonzero(np.atleast_1d(value)), np.int64)


@host_operator("Compress", since=9)
def compress(node: Node, value: Array, condition: Array) -> Array:
    return np.compress(condition, value, node.attribute("axis"))


@host_operator("Unique", since=11)
def unique(node: Node, value: Array) -> tuple[Array, ...]:
    axis = node.attribute("axis")
    if axis is None:
        value = value.reshape(-1)
    found, first, inverse, counts = np.unique(value, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not node.attribute("sorted", 1):
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        found, first, inverse, counts = np.take(found, order, axis or 0), first[order], place[inverse], counts[order]
    return found, *(part.astype(np.int64) for part in (first, inverse, counts))


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
    corners = _corners(boxes, bool(node.attribute("center_point_box", 0)))
    batches, classes, _ = scores.shape
    rows = [
        (b, c, box)
        for b, c in product(range(batches), range(classes))
        for box in _kept(corners[b], scores[b, c], count, limit, None if least is None else float(least.reshape(())))
    ]
    return np.asarray(rows, np.int64).reshape(-1, 3)


def _corners(boxes: Array, centred: bool) -> Array:
    """[…, low y, low x, high y, high x] of boxes given by two corners in any order, or by centre and size."""
    if centred:
        x, y, width, height = np.moveaxis(boxes, -1, 0)
        return np.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2], -1)
    first, second = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


def _kept(boxes: Array, scores: Array, count: int, limit: float, least: float | None) -> Iterator[int]:
    """Up to `count` boxes with scores above `least`, from the best on, that overlap those before them by `limit` at most."""
    order = np.argsort(-scores, kind="stable")
    if least is not None:
        order = order[scores[order] > least]
    for _ in range(count):
        if not len(order):
            return
        best, order = order[0], order[1:]
        yield int(best)
        order = order[_overlap(boxes[best], boxes[order]) <= limit]


def _overlap(box: Array, others: Array) -> Array:
    """What part of the union of `box` and each of `others` both cover."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    common = np.prod(np.maximum(sides, 0), -1)
    union = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], -1) - common
    return np.divide(common, union, out=np.zeros_like(common), where=union > 0)
