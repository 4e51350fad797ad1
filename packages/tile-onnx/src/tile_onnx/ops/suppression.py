"""NonMaxSuppression: the best boxes of every class, none of which overlaps a better one much; on the host.

What takes time is to go through boxes from the best one on, as each that stays excludes others. Where the model's device
repeats a step by itself, as processors do, that is a program of Tile; few boxes are compared by NumPy, all classes together.
"""

from __future__ import annotations

from functools import cache
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

FEW = 32
"""Boxes of a class of which all pairs are compared at once: all that it has, or the first ones, which often are enough."""
AT_ONCE = 512
"""Classes that are compared at once: what their pairs take stays in the caches."""
MANY = 4
"""Classes of more boxes from which on their first ones are compared at once, too."""
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
    threshold = None if least is None else float(least.reshape(()))
    ranked = _ranked(scores[:, : scores.shape[1] if count > 0 else 0], threshold)
    # Of two boxes without an area, or with one that is no number, neither excludes the other.
    with np.errstate(over="ignore", invalid="ignore"):
        edges = _edges(boxes, bool(node.attribute("center_point_box", 0)))
        kept = _kept(edges, ranked, count, limit, node.evaluator).nonzero()[0]
    rows = np.empty((len(kept), 3), np.int64)
    rows[:, 0], rows[:, 1] = np.divmod(ranked.rows[kept], max(1, scores.shape[1]))
    rows[:, 2] = ranked.boxes[kept]
    return rows


def _edges(boxes: Array, centred: bool) -> Array:
    """[batch, 5, box]: low y, low x, high y, high x and area of boxes given by two corners in any order, or by centre and size."""
    given = np.ascontiguousarray(boxes.transpose(0, 2, 1))
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
    """The boxes in question, class by class, each from its best one on."""

    rows: Array
    """Of each: the number of its class, those of all batches counted."""
    boxes: Array
    starts: Array
    """Where each class begins that has any, and where the last one ends."""
    batches: Array
    """Of each class that has any."""


def _ranked(scores: Array, least: float | None) -> _Ranked:
    """The boxes with scores above `least`."""
    _, classes, count = scores.shape
    flat = np.ascontiguousarray(scores, np.float32).reshape(-1)
    found = np.arange(flat.size) if least is None else (flat > least).nonzero()[0]
    rows, boxes = np.divmod(found, max(1, count))
    boxes = _by_score(rows, boxes, _descending(flat[found]), (len(scores) * classes, count))
    ends = (rows[1:] != rows[:-1]).nonzero()[0] + 1
    starts = np.array([0, *ends.tolist(), len(rows)]) if len(rows) else ends
    return _Ranked(rows, boxes, starts, rows[starts[:-1]] // max(1, classes))


def _by_score(rows: Array, boxes: Array, falling: Array, sizes: tuple[int, int]) -> Array:
    """The boxes of each row, which stand together, in the order of `falling`, of equals the first one before."""
    wide, narrow = (size.bit_length() for size in sizes)
    if wide + 32 + narrow > 63:
        return boxes[np.lexsort((falling, rows))]
    keys = ((rows << 32) + falling + (1 << 31) << narrow) | boxes  # one number is sorted quicker than three
    keys.sort()
    return keys & ((1 << narrow) - 1)


def _descending(scores: Array) -> Array:
    """Integers of 32 bits that grow as scores fall."""
    bits = (0.0 - scores).view(np.int32)
    return np.where(np.isnan(scores), 0x7FFFFFFF, bits ^ (bits >> 31 & 0x7FFFFFFF)).astype(np.int64)


def _kept(edges: Array, ranked: _Ranked, count: int, limit: np.float32, evaluator: Evaluator) -> Array:
    """Which boxes stay: up to `count` of each class, each of which overlaps those before it by `limit` at most."""
    kept = np.zeros(len(ranked.boxes), np.bool_)
    sizes = ranked.starts[1:] - ranked.starts[:-1]
    left = np.ones(len(sizes), np.bool_)
    large: Array = sizes > FEW
    together = count <= FEW and np.count_nonzero(large) >= MANY
    few = np.arange(len(sizes)) if together else (~large).nonzero()[0]
    for part in (few[at : at + AT_ONCE] for at in range(0, len(few), AT_ONCE)):
        places, alive = _of_few(edges, ranked, part, np.minimum(sizes[part], FEW), limit)
        order = alive.cumsum(1)
        done = ~large[part] | (order[:, -1] >= count)
        kept[places[alive & (order <= count) & done[:, None]]] = True
        left[part] = ~done
    compiled = evaluator if evaluator.device.capabilities.loops else None
    for k in left.nonzero()[0].tolist():
        start, stop = int(ranked.starts[k]), int(ranked.starts[k + 1])
        choice = _Choice(edges[ranked.batches[k]], ranked.boxes[start:stop], count, limit, compiled)
        kept[start + choice.places()[:count]] = True
    return kept


def _of_few(edges: Array, ranked: _Ranked, few: Array, sizes: Array, limit: np.float32) -> tuple[Array, Array]:
    """Places among the ranked boxes, [class, box], of the first few of some classes, and which stay; all of them at once."""
    ranks = np.arange(int(sizes.max()))
    alive = ranks < sizes[:, None]
    places = np.minimum(ranked.starts[few][:, None] + ranks, len(ranked.boxes) - 1)
    whole = ranked.batches[few][:, None] * edges.shape[2] + ranked.boxes[places]
    found = edges.transpose(1, 0, 2).reshape(5, -1).take(whole, 1)
    overlapping = _overlapping(found[:, :, :, None], found[:, :, None], limit)
    overlapping &= ranks[:, None] < ranks
    excluding: Array = np.any(overlapping, (0, 2))
    for rank in excluding.nonzero()[0].tolist():
        alive &= ~(overlapping[:, rank] & alive[:, rank, None])
    return places, alive


def _overlapping(some: Array, others: Array, limit: np.float32) -> Array:
    """Whether both cover more than `limit` of the union of two boxes; the first dimension is that of `_edges`."""
    sides = np.maximum(np.minimum(some[2:4], others[2:4]) - np.maximum(some[:2], others[:2]), 0)
    common = sides[0] * sides[1]
    return common / (some[4] + others[4] - common) > limit


@frozen
class _Choice:
    """Up to `count` of the boxes, each of which overlaps those chosen before it by `limit` at most."""

    edges: Array
    boxes: Array
    """Those in question, the best ones first."""
    count: int
    limit: np.float32
    evaluator: Evaluator | None
    """What runs programs that repeat steps."""

    def places(self) -> Array:
        """Which of the boxes are chosen.

        Only some are compared, a few at a time: few are left by the time that enough are chosen.
        """
        order: Array = np.arange(len(self.boxes))
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
        found[:, : len(these)] = self.edges.take(self.boxes[these], 1)
        alive = (np.arange(whole) < len(these)).astype(np.int32)
        return np.flatnonzero(self.evaluator(_suppressing(whole), found, alive, self.limit))

    def _one_by_one(self, these: Array, chosen: int) -> list[int]:
        """Rows of the comparison as bits of numbers."""
        found = self.edges.take(self.boxes[these], 1)
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
