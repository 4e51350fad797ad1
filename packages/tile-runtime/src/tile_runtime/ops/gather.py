"""Elements taken from where data says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tile_runtime.ops.text import at, contraction, expression, function, names
from tile_runtime.ops.values import Value, apply, dtype_of, is_known


def wrapped(indices: Value, size: int) -> Value:
    """Integers in which negative ones count from the end of `size` cells."""
    if not dtype_of(indices).is_integer:
        raise TypeError(f"indices are integers, not {dtype_of(indices)}: astype converts them")
    if not dtype_of(indices).is_signed:
        return indices
    if is_known(indices):
        return indices + size * (indices < 0)
    return apply(expression("I", f"I < 0 ? I + {size} : I"), indices)


def taking(sizes: Sequence[int], subscripts: Sequence[str]) -> str:
    """The function ``Y[i0, i1… : sizes] = X[subscripts]``, in which integers I may be among the subscripts."""
    return function("XI", "Y", contraction("Y", sizes, names(len(sizes)), "=", at("X", subscripts)))


def chosen(value: Value, indices: Value, axis: int) -> Value:
    """As `np.take(value, indices, axis)`; indices count from 0 and are clamped into the axis."""
    if is_known(value) and is_known(indices):
        return np.take(value, indices, axis)
    shape, rank = value.shape, len(indices.shape)
    sizes = (*shape[:axis], *indices.shape, *shape[axis + 1 :])
    index = names(len(sizes))
    subscripts = (*index[:axis], at("I", index[axis : axis + rank]), *index[axis + rank :])
    return apply(taking(sizes, subscripts), value, indices)


def taken_along(value: Value, indices: Value, axis: int) -> Value:
    """As `np.take_along_axis`; other axes of the indices may be shorter. Indices count from 0 and are clamped."""
    index = names(len(value.shape))
    return apply(taking(indices.shape, (*index[:axis], at("I", index), *index[axis + 1 :])), value, indices)


def taken_at(value: Value, places: Value, batch: int = 0) -> Value:
    """``Y[b…, p…, r…] = value[b…, places[b…, p…, :], r…]``: ONNX's GatherND, with `batch` leading axes in common."""
    own, depth = len(places.shape) - 1, places.shape[-1]
    sizes = (*places.shape[:-1], *value.shape[batch + depth :])
    index = names(len(sizes))
    looked = [at("I", (*index[:own], k)) for k in range(depth)]
    return apply(taking(sizes, (*index[:batch], *looked, *index[own:])), value, places)


def wrapped_places(places: Value, sizes: Sequence[int]) -> Value:
    """Index tuples, the last dimension of `places`, in which negative numbers count from the ends of `sizes`."""
    limits = np.asarray(sizes, places.dtype if is_known(places) else places.dtype.numpy)
    if is_known(places):
        return places + limits * (places < 0)
    return apply(expression("I, S", "I < 0 ? I + S : I"), places, limits)


def reversed_sequences(value: Value, lengths: Value, time: int, batch: int) -> Value:
    """`value` with the first cells along axis `time` reversed: `lengths[b]` of them for each b of axis `batch`."""
    shape, index = tuple(value.shape), names(len(value.shape))
    moments = np.arange(shape[time], dtype=np.int64).reshape(-1, 1)
    places = apply(expression("T, L", "T < L ? L - 1 - T : T"), moments, lengths)
    subscripts = tuple(f"I[{index[time]}, {index[batch]}]" if k == time else i for k, i in enumerate(index))
    return apply(taking(shape, subscripts), value, places)
