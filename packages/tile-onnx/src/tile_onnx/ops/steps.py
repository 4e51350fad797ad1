"""One step of a loop along an axis: what it takes, and what all of them give together."""

from __future__ import annotations

from collections.abc import Sequence

from tile_runtime.ops.moving import joined, reshaped, sliced
from tile_runtime.ops.values import Value


def take(value: Value, axis: int, index: int) -> Value:
    """The cells at one place of an axis, which disappears."""
    slices = [slice(index, index + 1) if k == axis else slice(None) for k in range(len(value.shape))]
    return reshaped(sliced(value, slices), [*value.shape[:axis], *value.shape[axis + 1 :]])


def stack(values: Sequence[Value], axis: int) -> Value:
    """Tensors of one shape side by side along a new axis."""
    return joined([reshaped(v, [*v.shape[:axis], 1, *v.shape[axis:]]) for v in values], axis)
