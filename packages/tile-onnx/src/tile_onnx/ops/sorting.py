"""TopK."""

from __future__ import annotations

from math import prod

import numpy as np
from tile_ir.dtype import DType

from tile_onnx.node import Node, Value, apply
from tile_onnx.ops.text import cast, contraction, function, reshaped
from tile_onnx.registry import operator

COMPARISONS = 1 << 26
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
        raise node.on_host()
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
