"""``x[key]`` as NumPy has it: integers, slices, None, Ellipsis and integer tensors."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from tile_runtime.ops.gather import chosen, wrapped
from tile_runtime.ops.moving import reshaped, sliced
from tile_runtime.ops.values import Value, dtype_of


def indexed(value: Value, key: Any) -> Value:
    """As NumPy's basic indexing, and one integer tensor (or list) along one axis.

    IndexError where an integer lies outside, too many axes are asked for, or the key would give a shape that depends on
    data (a truth tensor); TypeError for keys that are none.
    """
    given = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,)
    keys = _expanded(given, len(value.shape))
    looked = [(axis, k) for axis, k in enumerate(k for k in keys if k is not None) if not isinstance(k, (int, slice))]
    if len(looked) > 1:
        raise IndexError("one integer tensor at a time: index one axis, then the next")
    basic: list[Any] = [slice(None) if k is not None and not isinstance(k, (int, slice)) else k for k in keys]
    found = _basic(value, basic)
    return _looked_up(found, keys, looked[0][1]) if looked else found


def _expanded(keys: Sequence[Any], rank: int) -> list[Any]:
    """The keys with slices for the Ellipsis and for axes that are not named."""
    keys = [_single(k) for k in keys]
    given = sum(1 for k in keys if k is not None and k is not Ellipsis)
    dots = [place for place, k in enumerate(keys) if k is Ellipsis]
    if given > rank or len(dots) > 1:
        raise IndexError(f"{given} indexes and {len(dots)} ellipses for {rank} dimensions")
    place = dots[0] if dots else len(keys)
    return [*keys[:place], *(slice(None),) * (rank - given), *keys[place + 1 :]]


def _single(key: Any) -> Any:
    """A key as an int, slice, None, Ellipsis or integer tensor."""
    if key is None or key is Ellipsis or isinstance(key, slice):
        return cast("Any", key)
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        return operator.index(cast("int", key))
    listed = isinstance(key, (list, bool, np.generic))
    found: Any = np.asarray(cast("Any", key)) if listed else key
    if not hasattr(found, "shape"):
        raise TypeError(f"an index is an integer, a slice, None, ... or an integer tensor, not {type(key).__name__}")
    if not dtype_of(found).is_integer:
        raise IndexError("an index of truth values gives a shape that depends on data: choose with where(test, a, b)")
    return found


def _basic(value: Value, keys: Sequence[Any]) -> Value:
    """Integers, slices and None."""
    cuts: list[slice] = []
    shape: list[int] = []
    for key in keys:
        if key is None:
            shape.append(1)
            continue
        extent = value.shape[len(cuts)]
        if isinstance(key, int):
            if not -extent <= key < extent:
                raise IndexError(f"index {key} of an axis of {extent}")
            cuts.append(slice(key % extent, key % extent + 1))
        else:
            cuts.append(key)
            shape.append(len(range(*key.indices(extent))))
    return reshaped(sliced(value, cuts), shape)


def _looked_up(value: Value, keys: Sequence[Any], indices: Value) -> Value:
    """Integers that were given beside the tensor have left their axes by now."""
    axis = 0
    for key in keys:
        if key is indices:
            break
        axis += not isinstance(key, int)
    return chosen(value, wrapped(indices, value.shape[axis]), axis)
