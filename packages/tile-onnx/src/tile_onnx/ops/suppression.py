"""NonMaxSuppression: the best boxes of every class, none of which overlaps a better one much; on the host.

What takes time is to go through boxes from the best one on, as each that stays excludes others. Where the model's device
repeats a step by itself, as processors do, that is a program of Tile; few boxes are compared by NumPy, all classes together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from tile_ir.frozen import frozen
from tile_runtime.compose import Composition, compose
from tile_runtime.evaluator import Evaluator
from tile_runtime.function import Function
from tile_runtime.loops import scan
from tile_runtime.ops.values import Array
from tile_runtime.symbols import placeholder

from tile_onnx.node import Node
from tile_onnx.registry import host_operator

FEW = 16
"""Boxes of a class up to which all pairs of them are compared at once."""
LEAST, MOST = 64, 1024
"""Boxes that the first program, and a later one beside those chosen before, goes through."""


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
    limit = np.float32(0.0 if overlap is None else overlap.reshape(()))
    groups = list(_ranked(scores, None if least is None else float(least.reshape(())))) if count > 0 else []
    # Of two boxes without an area, or with one that is no number, neither excludes the other.
    with np.errstate(over="ignore", invalid="ignore"):
        edges = _edges(boxes, bool(node.attribute("center_point_box", 0)))
        kept = _kept(edges, groups, count, limit, node.evaluator)
    classes = np.array([(g.batch, g.class_) for g in groups], np.int64).reshape(-1, 2)
    rows = np.repeat(classes, np.array([len(k) for k in kept], np.int64), 0)
    return np.concatenate([rows, np.concatenate([np.zeros(0, np.int64), *kept])[:, None]], 1)


def _edges(boxes: Array, centred: bool) -> Array:
    """[batch, 5, box]: low y, low x, high y, high x and area of boxes given by two corners in any order, or by centre and size."""
    given = np.ascontiguousarray(np.moveaxis(boxes, -1, 1))
    first, second = given[:, :2], given[:, 2:]
    edges = np.empty((given.shape[0], 5, given.shape[2]), given.dtype)
    low, high = edges[:, :2], edges[:, 2:4]
    if centred:
        half = second[:, ::-1] / 2
        np.subtract(first[:, ::-1], half, out=low)
        np.add(first[:, ::-1], half, out=high)
    else:
        np.minimum(first, second, out=low)
        np.maximum(first, second, out=high)
    np.multiply(high[:, 0] - low[:, 0], high[:, 1] - low[:, 1], out=edges[:, 4])
    return edges


@frozen
class _Ranked:
    """The boxes of one class in question, from the best one on."""

    batch: int
    class_: int
    boxes: Array


def _ranked(scores: Array, least: float | None) -> Iterator[_Ranked]:
    """Of each batch and class that has any: its boxes with scores above `least`."""
    _, classes, count = scores.shape
    flat = np.ascontiguousarray(scores, np.float32).reshape(-1)
    found = np.arange(flat.size) if least is None else np.flatnonzero(flat > least)
    rows, boxes = np.divmod(found, max(1, count))
    keys = _descending(flat[found]) << 32 | boxes
    ends = (*(np.flatnonzero(rows[1:] != rows[:-1]) + 1).tolist(), len(rows)) if len(rows) else ()
    for start, stop in pairwise((0, *ends)):
        part = keys[start:stop]
        part.sort()
        yield _Ranked(*divmod(int(rows[start]), classes), part & 0xFFFFFFFF)


def _descending(scores: Array) -> Array:
    """Integers that grow as scores fall: sorting them, and the boxes in the bits below, is quicker than to sort by scores."""
    bits = (0.0 - scores).view(np.int32)
    return np.where(np.isnan(scores), 0x7FFFFFFF, bits ^ (bits >> 31 & 0x7FFFFFFF)).astype(np.int64)


def _kept(edges: Array, groups: Sequence[_Ranked], count: int, limit: np.float32, evaluator: Evaluator) -> list[Array]:
    """Up to `count` boxes of each group, each of which overlaps those before it by `limit` at most."""
    few = [g for g in groups if len(g.boxes) <= FEW]
    alone = iter(_of_few(edges, few, limit)) if few else iter(())
    compiled = evaluator if evaluator.device.capabilities.loops else None
    return [
        (next(alone) if len(g.boxes) <= FEW else _Choice(edges[g.batch], count, limit, compiled).of(g.boxes))[:count]
        for g in groups
    ]


def _of_few(edges: Array, groups: Sequence[_Ranked], limit: np.float32) -> list[Array]:
    """The same for groups of few boxes each, all of them at once."""
    sizes = [len(g.boxes) for g in groups]
    places: Array = np.arange(max(sizes))
    boxes = np.zeros((len(groups), len(places)), np.int64)
    alive: Array = places < np.array(sizes)[:, None]
    boxes[alive] = np.concatenate([g.boxes for g in groups])
    found = edges[np.array([g.batch for g in groups])[:, None], :, boxes].transpose(2, 0, 1)
    overlapping = _overlapping(found[:, :, :, None], found[:, :, None], limit)
    for place in range(len(places) - 1):
        alive[:, place + 1 :] &= ~(overlapping[:, place, place + 1 :] & alive[:, place, None])
    return [row[kept] for row, kept in zip(boxes, alive, strict=True)]


def _overlapping(some: Array, others: Array, limit: np.float32) -> Array:
    """Whether both cover more than `limit` of the union of two boxes; the first dimension is that of `_edges`."""
    sides = np.maximum(np.minimum(some[2:4], others[2:4]) - np.maximum(some[:2], others[:2]), 0)
    common = sides[0] * sides[1]
    return common / (some[4] + others[4] - common) > limit


@frozen
class _Choice:
    """Up to `count` of the boxes, each of which overlaps those chosen before it by `limit` at most."""

    edges: Array
    count: int
    limit: np.float32
    evaluator: Evaluator | None
    """What runs programs that repeat steps."""

    def of(self, order: Array) -> Array:
        """What is chosen of the boxes `order`, the best ones first.

        Only those in question are compared, a few at a time: few are left by the time that enough are chosen.
        """
        chosen = order[:0]
        while len(order) and len(chosen) < self.count:
            size = min(2 * (self.count - len(chosen)), max(MOST, len(chosen)), len(order))
            whole = max(LEAST, 1 << (len(chosen) + size - 1).bit_length())
            these = np.concatenate([chosen, order[: whole - len(chosen)]])
            order = order[whole - len(chosen) :]
            chosen = these[self._first(these, len(chosen), whole)]
        return chosen

    def _first(self, these: Array, chosen: int, whole: int) -> Array:
        """Places of those that overlap none of the ones before that stay; the first ones are known to be `chosen`."""
        if self.evaluator is None:
            return np.array(self._one_by_one(these, chosen), np.int64)
        found = np.zeros((5, whole), np.float32)
        found[:, : len(these)] = self.edges.take(these, 1)
        alive = (np.arange(whole) < len(these)).astype(np.int32)
        return np.flatnonzero(self.evaluator(_suppressing(whole), found, alive, self.limit))

    def _one_by_one(self, these: Array, chosen: int) -> list[int]:
        """Rows of the comparison as bits of numbers."""
        found = self.edges.take(these, 1)
        kept, excluded = list[int](), 0
        for start in range(0, len(these), LEAST):
            rows = _overlapping(found[:, start : start + LEAST, None], found[:, None], self.limit)
            for place, row in enumerate(np.packbits(rows, axis=1, bitorder="little"), start):
                if place < chosen or not excluded >> place & 1:
                    kept.append(place)
                    excluded |= int.from_bytes(row.tobytes(), "little")
        return kept


_STEP = """function (Alive[N], LowY[N], LowX[N], HighY[N], HighX[N], Area[N], Y, X, Y1, X1, A, K, Limit, Place[N]) -> (Left) {
    Height = max(min(HighY, Y1) - max(LowY, Y), 0.0);
    Width = max(min(HighX, X1) - max(LowX, X), 0.0);
    Common = Height * Width;
    Excluded = (gather(Alive, K) != 0) & (Place > K) & (Common / (Area + A - Common) > Limit);
    Left = Excluded ? 0 : Alive;
}"""
"""One box, number K, which excludes those behind it that it overlaps if it is still there itself."""


@cache
def _suppressing(count: int) -> Composition:
    """Edges [5, count] of boxes from the best one on, which of them are in question, and the limit, to which of them stay."""
    edges = placeholder("float32", (5, count), "edges")
    alive, limit = placeholder("int32", (count,), "alive"), placeholder("float32", (), "limit")
    places, step = np.arange(count, dtype=np.int32), Function(_STEP)
    sides = [edges[k] for k in range(5)]

    def excluded(left: Any, box: tuple[Any, ...]) -> tuple[Any, None]:
        return step(left, *sides, *box, limit, places), None

    left, _ = scan(excluded, alive, (*sides, places))
    return compose([edges, alive, limit], [left])
