"""TopK."""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np
from tile_ir.dtype import DType

from tile_onnx.node import Array, Node, Value, apply
from tile_onnx.ops.text import cast, contraction, function, reshaped
from tile_onnx.registry import operator

COMPARISONS = 1 << 18
"""Comparisons of two elements up to which a device ranks all of them; beyond, sorting on the host is faster."""

_BEATS = {1: "(B > A) | ((B != B) & (A == A))", 0: "(B < A) | ((B == B) & (A != A))"}
_TIES = "((B == A) | ((B != B) & (A != A)))"


@operator("TopK")
def top_k(node: Node) -> Value:
    """The `k` largest or smallest along an axis, sorted, with their places; of equal ones the first, NaN before all.

    An element's rank is the number of those that go before it.
    """
    shape, axis = node.shape(0), node.axis(node.attribute("axis", -1))
    kept = node.ints(1)[0] if node.arity > 1 else node.attribute("k")
    before, size, after = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    if kept > size:
        raise node.unsupported(f"k is {kept}, and axis {axis} has {size} elements")
    if before * size * size * after > COMPARISONS:
        raise node.on_host(partial(_sorted, kept, axis, bool(node.attribute("largest", 1))))
    result = (*shape[:axis], kept, *shape[axis + 1 :])
    statements = [
        f"A = {reshaped('X', (before, size, 1, after))};",
        f"B = {reshaped('X', (before, 1, size, after))};",
        f"G = {_BEATS[node.attribute('largest', 1)]};",
        f"E = {_TIES} & (index(G, 2) < index(G, 1));",
        "F = as_int(G | E, 32);",
        contraction("R", (before, size, after), ("b", "i", "a"), "+", "F[b, i, j, a]"),
        f"D = {reshaped('X', (before, size, after))};",
        "I = index(D, 1);",
        contraction("V", (before, kept, after), ("b", "k", "a"), "+", "R[b, i, a] == K[k] ? D[b, i, a]"),
        contraction("P", (before, kept, after), ("b", "k", "a"), "+", "R[b, i, a] == K[k] ? I[b, i, a]"),
        f"Y = {reshaped('V', result)};",
        f"Z = {cast(reshaped('P', result), DType.INT64)};",
    ]
    return apply(function(("X", "K"), ("Y", "Z"), *statements), node.value(0), np.arange(kept, dtype=np.int32))


def _sorted(kept: int, axis: int, largest: bool, values: Array, _: Array | None = None) -> tuple[Array, Array]:
    """The same on the host, in linear time but for the sorting of what is kept; the count of them is an input, too."""
    rows = np.moveaxis(values, axis, -1)
    keys = _keys(rows, largest)
    places = _smallest(keys, kept)
    order = np.argsort(np.take_along_axis(keys, places, -1), axis=-1, kind="stable")
    places = np.take_along_axis(places, order, -1)
    found = np.take_along_axis(rows, places, -1)
    return np.moveaxis(found, -1, axis), np.moveaxis(places, -1, axis).astype(np.int64)


def _keys(rows: Array, largest: bool) -> Array:
    """What is smaller the earlier it comes."""
    if rows.dtype.kind in "iu":
        return ~rows if largest else rows
    return np.nan_to_num(-rows if largest else rows, nan=-np.inf if largest else np.inf, posinf=np.inf, neginf=-np.inf)


def _smallest(keys: Array, kept: int) -> Array:
    """Places of the smallest of each row, in the row's order; of equal ones the first."""
    if not kept:
        return np.zeros((*keys.shape[:-1], 0), np.int64)
    last = np.partition(keys, kept - 1, axis=-1)[..., kept - 1 : kept]
    before, equal = keys < last, keys == last
    room = kept - before.sum(-1, keepdims=True)
    chosen = before | (equal & (equal.cumsum(-1) <= room))
    return np.nonzero(chosen)[-1].reshape(*keys.shape[:-1], kept)
