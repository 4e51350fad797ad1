"""Other shapes and orders, parts and joins."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, cast

import numpy as np
from tile_ir.dtype import DType

from tile_runtime.arrays import dtype_of
from tile_runtime.numpy.operands import (
    Axes,
    Operand,
    Result,
    axes_of,
    axis_of,
    called,
    count_of,
    integers_of,
    numbers_of,
    several,
    shape_of,
)
from tile_runtime.ops import indexing, moving
from tile_runtime.ops.elementwise import is_number
from tile_runtime.ops.values import Value


def reshape(x: Operand, /, shape: int | Sequence[int], *, copy: bool | None = None) -> Result:
    """The same elements in C order; one extent may be -1. ValueError where the numbers do not fit."""
    sizes = list(integers_of("shape", shape))
    if sizes.count(-1) == 1:
        rest = prod(n for n in sizes if n != -1)
        sizes[sizes.index(-1)] = prod(shape_of(x)) // rest if rest else 0
    if prod(sizes) != prod(shape_of(x)) or min(sizes, default=0) < 0:
        raise ValueError(f"{prod(shape_of(x))} elements of shape {shape_of(x)} do not fit {shape}")
    return called(moving.reshaped, x, shape=tuple(sizes))


def permute_dims(x: Operand, /, axes: Sequence[int]) -> Result:
    """The axes in another order."""
    order = axes_of(len(shape_of(x)), axes)
    if len(order) != len(shape_of(x)):
        raise ValueError(f"axes {tuple(axes)} of a tensor with {len(shape_of(x))} dimensions")
    return called(moving.permuted, x, order=order)


def moveaxis(x: Operand, source: int | Sequence[int], destination: int | Sequence[int], /) -> Result:
    """Some axes in other places; the others keep their order."""
    rank = len(shape_of(x))
    sources, places = axes_of(rank, source), axes_of(rank, destination)
    order = [k for k in range(rank) if k not in sources]
    for place, axis in sorted(zip(places, sources, strict=True)):
        order.insert(place, axis)
    return permute_dims(x, order)


def expand_dims(x: Operand, /, axis: int = 0) -> Result:
    """With one more axis of one element."""
    place = axis_of(len(shape_of(x)) + 1, axis)
    return reshape(x, (*shape_of(x)[:place], 1, *shape_of(x)[place:]))


def squeeze(x: Operand, /, axis: Axes = None) -> Result:
    """Without these axes, or all, of one element; ValueError where one that is named has more."""
    ones = [k for k, n in enumerate(shape_of(x)) if n == 1]
    gone = axes_of(len(shape_of(x)), ones if axis is None else axis)
    if any(shape_of(x)[k] != 1 for k in gone):
        raise ValueError(f"axes {gone} of shape {shape_of(x)} are not all of one element")
    return reshape(x, [n for k, n in enumerate(shape_of(x)) if k not in gone])


def broadcast_to(x: Operand, /, shape: Sequence[int]) -> Result:
    """Repeated along axes of one element, and along new ones in front."""
    sizes = integers_of("shape", shape)
    np.broadcast_shapes(shape_of(x), sizes)
    return called(moving.expanded, x, shape=sizes)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that tensors of these shapes have together; ValueError where they have none."""
    return np.broadcast_shapes(*(integers_of("shape", s) for s in shapes))


def _filling(value: Operand, dtype: Any, shape: tuple[int, ...]) -> Operand:
    """A number in each cell of `shape`; a tensor as it is."""
    return np.full(shape, value, dtype) if is_number(value) else value


def diff(
    x: Operand, /, n: int = 1, axis: int = -1, *, prepend: Operand | None = None, append: Operand | None = None
) -> Result:
    """Each element less the one before it along an axis, `n` times over; what is given joins at either end first."""
    from tile_runtime.numpy.elementwise import not_equal, subtract

    place = axis_of(len(shape_of(x)), axis)
    thin = tuple(1 if k == place else size for k, size in enumerate(shape_of(x)))
    dtype = dtype_of(x.dtype)
    parts = [_filling(v, dtype.numpy, thin) for v in (prepend, x, append) if v is not None]
    x = concat(parts, axis=place) if len(parts) > 1 else x
    for _ in range(count_of("n", n)):
        ahead, behind = ((slice(None),) * place + (s,) for s in (slice(1, None), slice(None, -1)))
        x = (not_equal if dtype is DType.BOOL else subtract)(indexed(x, ahead), indexed(x, behind))
    return x


def broadcast_arrays(*arrays: Operand) -> list[Result]:
    """All in the shape that they have together."""
    shape = np.broadcast_shapes(*(shape_of(a) for a in arrays))
    return [broadcast_to(a, shape) for a in arrays]


def concat(arrays: Sequence[Operand], /, axis: int | None = 0) -> Result:
    """Joined along an axis; flattened first where it is None. Dtypes meet; ValueError where shapes beside the axis differ."""
    from tile_runtime.numpy.dtypes import astype, result_type

    parts = [reshape(a, -1) for a in several(arrays)] if axis is None else several(arrays)
    if not parts:
        raise ValueError("there is nothing to join")
    dtype = result_type(*parts)
    parts = [a if a.dtype is dtype else astype(a, dtype) for a in parts]
    place = 0 if axis is None else axis_of(len(parts[0].shape), axis)
    return called(_joined, *parts, axis=place)


def _joined(*values: Value, axis: int) -> Value:
    return moving.joined(values, axis)


def stack(arrays: Sequence[Operand], /, axis: int = 0) -> Result:
    """Joined along a new axis."""
    return concat([expand_dims(a, axis=axis) for a in several(arrays)], axis=axis)


def unstack(x: Operand, /, axis: int = 0) -> tuple[Result, ...]:
    """The parts along an axis, without it."""
    place = axis_of(len(shape_of(x)), axis)
    whole = (slice(None),) * place
    return tuple(indexed(x, (*whole, k)) for k in range(shape_of(x)[place]))


def flip(x: Operand, /, axis: Axes = None) -> Result:
    """Backwards along `axis`, or along all."""
    return called(moving.flipped, x, axes=axes_of(len(shape_of(x)), axis))


def roll(x: Operand, /, shift: int | Sequence[int], axis: Axes = None) -> Result:
    """What leaves at the end of an axis comes in at its beginning; without an axis, of all elements in C order."""
    if axis is None:
        return reshape(roll(reshape(x, -1), shift, axis=0), shape_of(x))
    whole = [0] * len(shape_of(x))
    axes, shifts = np.broadcast_arrays(np.asarray(axis), numbers_of("shift", shift, whole=True))
    for place, by in zip(axes.flat, shifts.flat, strict=True):
        whole[axis_of(len(shape_of(x)), place)] += int(by)
    return called(moving.rolled, x, shifts=tuple(whole))


def repeat(x: Operand, repeats: int, /, axis: int | None = None) -> Result:
    """Each element `repeats` times in a row along an axis; flattened first where that is None."""
    if axis is None:
        return repeat(reshape(x, -1), repeats, axis=0)
    place = axis_of(len(shape_of(x)), axis)
    repeats = count_of("repeats", repeats)
    head, size, tail = shape_of(x)[:place], shape_of(x)[place], shape_of(x)[place + 1 :]
    wide = broadcast_to(reshape(x, (*head, size, 1, *tail)), (*head, size, repeats, *tail))
    return reshape(wide, (*head, size * repeats, *tail))


def tile(x: Operand, repetitions: int | Sequence[int], /) -> Result:
    """Side by side, `repetitions` of it along each axis, the last ones where there are fewer than axes."""
    given = tuple(count_of("repetitions", n) for n in integers_of("repetitions", repetitions))
    times = (1,) * (len(shape_of(x)) - len(given)) + given
    x = reshape(x, (1,) * (len(times) - len(shape_of(x))) + shape_of(x))
    return called(moving.repeated, x, repeats=times)


Width = int | Sequence[int] | Sequence[Sequence[int]]


_PADS = ("constant", "edge", "reflect", "symmetric", "wrap")
"""Those of NumPy's modes whose new cells hold a constant or what an old cell holds."""


def pad(x: Operand, width: Width, /, mode: str = "constant", *, value: float = 0, constant_values: float = 0) -> Result:
    """Cells in front of and behind each axis: a number, or by one of NumPy's other modes (reflect, edge, wrap, symmetric).

    A width of one number is that of both ends of all axes, a pair of numbers that of the ends of each. The number that the new
    cells hold is called `constant_values`, as NumPy has it, or `value`.
    """
    widths, ends = numbers_of("width", width, whole=True), (len(shape_of(x)), 2)
    if widths.ndim > 2 or any(n not in (1, end) for n, end in zip(widths.shape[::-1], ends[::-1], strict=False)):
        raise ValueError(
            f"width has shape {widths.shape}: a number, (before, after), or such a pair for each of {ends[0]} axes"
        )
    before, after = np.broadcast_to(widths, ends).T.tolist()
    if min(*before, *after, 0) < 0:
        raise ValueError(f"a width of {min(*before, *after)} cells: negative ones cut, which x[1:] does")
    if mode not in _PADS:
        raise ValueError(f"there is no padding by {mode!r}: {', '.join(_PADS)} are here")
    number = value or constant_values
    fill = np.asarray(number, dtype_of(x.dtype).numpy) if number else None
    return called(moving.padded, x, before=before, after=after, mode=mode, fill=fill)


def indexed(x: Operand, key: Any, /) -> Result:
    """``x[key]``: integers, slices, None, Ellipsis and integer tensors or lists, which broadcast."""
    from tile_runtime.operators import Operators

    keys: tuple[Any, ...] = cast("tuple[Any, ...]", key) if isinstance(key, tuple) else (key,)
    looked = [k for k in keys if isinstance(k, Operators)]
    places = [place for place, k in enumerate(keys) if isinstance(k, Operators)]

    def found(value: Any, *tensors: Any) -> Any:
        own = list(keys)
        for place, k in zip(places, tensors, strict=True):
            own[place] = k
        return indexing.indexed(value, tuple(own))

    return called(found, x, *looked)
