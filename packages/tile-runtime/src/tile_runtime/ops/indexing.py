"""``x[key]`` as NumPy has it: integers, slices, None, Ellipsis and integer tensors."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from tile_runtime.ops.gather import wrapped
from tile_runtime.ops.moving import reshaped, sliced
from tile_runtime.ops.text import aligned, at, contraction, function, names
from tile_runtime.ops.values import Value, apply, dtype_of


def indexed(value: Value, key: Any) -> Value:
    """As NumPy's basic indexing, and integer tensors (or lists) along some axes, which broadcast.

    IndexError where an integer lies outside, too many axes are asked for, or the key would give a shape that depends on
    data (a truth tensor); TypeError for keys that are none.
    """
    given = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,)
    keys = _expanded(given, len(value.shape))
    looks = [_looks_up(k) for k in keys]
    found = _basic(value, [slice(None) if look else k for look, k in zip(looks, keys, strict=True)])
    return _looked_up(found, keys) if any(looks) else found


def _looks_up(key: Any) -> bool:
    """Whether a key is an integer tensor."""
    return key is not None and not isinstance(key, (int, slice))


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
    if listed and not found.size:
        return found.astype(np.intp)  # a list of nothing is one of floats, which NumPy takes for no indexes
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


def _looked_up(value: Value, keys: Sequence[Any]) -> Value:
    """Elements by number along the axes of tensors; integers that were given beside these have left their axes by now.

    As in NumPy, the axes of the tensors stand where the first of tensors and integers does, or in front of all where
    something lies between them.
    """
    kept = [k for k in keys if not isinstance(k, int)]
    tensors = {axis: wrapped(k, value.shape[axis]) for axis, k in enumerate(kept) if _looks_up(k)}
    shape = np.broadcast_shapes(*(t.shape for t in tensors.values()))
    free = [n for axis, n in enumerate(value.shape) if axis not in tensors]
    ahead = _ahead(keys)
    sizes = (*free[:ahead], *shape, *free[ahead:])
    index = names(len(sizes))
    own, rest = index[ahead : ahead + len(shape)], iter(index[:ahead] + index[ahead + len(shape) :])
    inputs = dict(zip(tensors, names(len(tensors), "I"), strict=True))
    subscripts = [
        at(inputs[k], aligned(tensors[k].shape, own)) if k in tensors else next(rest) for k in range(len(value.shape))
    ]
    text = function(("X", *inputs.values()), "Y", contraction("Y", sizes, index, "=", at("X", subscripts)))
    return apply(text, value, *tensors.values())


def _ahead(keys: Sequence[Any]) -> int:
    """How many axes of the result stand before those of the tensors."""
    chosen = [k for k, key in enumerate(keys) if isinstance(key, int) or _looks_up(key)]
    return chosen[0] if chosen[-1] - chosen[0] + 1 == len(chosen) else 0
