"""Elements put where data says."""

from __future__ import annotations

from collections.abc import Sequence

from tile_runtime.ops.text import at, contraction, function, names
from tile_runtime.ops.values import Value, apply

REDUCTIONS: dict[str, tuple[str, str, str]] = {
    "none": ("=", "X", "S"),
    "add": ("+", "0", "X + S"),
    "mul": ("*", "1", "X * S"),
    "max": (">", "X", "max(X, S)"),
    "min": ("<", "X", "min(X, S)"),
}
"""How updates of one cell are combined, what cells without any hold, and what the result is of X and both."""


def scattered(
    value: Value, indices: Value, updates: Value, subscripts: Sequence[str], reduction: str = "none"
) -> Value:
    """`value` with `updates` put, or combined by one of REDUCTIONS, at `subscripts` into which integers I may enter.

    Subscripts may name the indexes of the updates, ``i0``, ``i1`` …; places outside `value` are clamped into it.
    """
    aggregation, default, result = REDUCTIONS[reduction]
    update = at("U", names(len(updates.shape)))
    statement = contraction("S", value.shape, subscripts, aggregation, update, "default D")
    return apply(function("XIU", "Y", f"D = {default};", statement, f"Y = {result};"), value, indices, updates)


def scattered_along(value: Value, indices: Value, updates: Value, axis: int, reduction: str = "none") -> Value:
    """As `np.put_along_axis`, on a copy; indices count from 0."""
    index = names(len(indices.shape))
    subscripts = (*index[:axis], at("I", index), *index[axis + 1 :])
    return scattered(value, indices, updates, subscripts, reduction)


def scattered_at(value: Value, places: Value, updates: Value, reduction: str = "none") -> Value:
    """`value` with ``updates[p…, r…]`` at ``[places[p…, :], r…]``: ONNX's ScatterND. Places count from 0."""
    own, depth = len(places.shape) - 1, places.shape[-1]
    index = names(len(updates.shape))
    subscripts = (*(at("I", (*index[:own], k)) for k in range(depth)), *index[own:])
    return scattered(value, places, updates, subscripts, reduction)
