"""Axes resized: each new cell a weighted sum of old ones that are known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_ir.dtype import DType
from tile_ir.frozen import frozen

from tile_runtime.ops.moving import expanded, of_cells, reshaped
from tile_runtime.ops.text import at, cast, contraction, expression, function, names
from tile_runtime.ops.values import Value, apply, dtype_of

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@frozen
class Axis:
    """How one axis is resized from `old` to `new` cells."""

    old: int
    new: int
    numerator: float
    """One cell of the new axis is this many cells of the old one, divided by the denominator: exact for sizes."""
    denominator: float
    roi: tuple[float, float]
    """Where the new axis begins and ends in the old one, for tf_crop_and_resize."""

    @property
    def stays(self) -> bool:
        """It is not resized."""
        return self.numerator == self.denominator and self.roi == (0.0, 1.0)

    @property
    def width(self) -> float:
        """The new size before it was rounded."""
        return self.old * self.denominator / self.numerator


def _align_corners(axis: Axis, y: Floats) -> Floats:
    return y * (axis.old - 1) / (axis.width - 1) if axis.width != 1 else 0 * y


def _asymmetric(axis: Axis, y: Floats) -> Floats:
    return y * axis.numerator / axis.denominator


def _half_pixel(axis: Axis, y: Floats) -> Floats:
    return (y + 0.5) * axis.numerator / axis.denominator - 0.5


def _pytorch_half_pixel(axis: Axis, y: Floats) -> Floats:
    return _half_pixel(axis, y) if axis.width != 1 else 0 * y - 0.5


def _half_pixel_symmetric(axis: Axis, y: Floats) -> Floats:
    return axis.old / 2 * (1 - axis.new / axis.width) + _half_pixel(axis, y)


def _crop_and_resize(axis: Axis, y: Floats) -> Floats:
    begin, end = axis.roi
    across = (end - begin) * (axis.old - 1)
    return begin * (axis.old - 1) + (y * across / (axis.width - 1) if axis.width != 1 else 0 * y + across / 2)


_COORDINATES: dict[str, Callable[[Axis, Floats], Floats]] = {
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "half_pixel": _half_pixel,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "tf_crop_and_resize": _crop_and_resize,
}
"""Where in the old axis the cells of the new one lie."""

_NEAREST: dict[str, Callable[[Floats], Floats]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _triangle(x: Floats, _: float) -> Floats:
    return np.maximum(0, 1 - np.abs(x))


def _cubic(x: Floats, a: float) -> Floats:
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


_KERNELS: dict[str, tuple[int, Callable[[Floats, float], Floats]]] = {"linear": (1, _triangle), "cubic": (2, _cubic)}
"""How far a kernel reaches, and its weight at a distance."""


@frozen
class Interpolation:
    """How new cells are made of old ones, by ONNX's names of modes."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    exclude_outside: bool
    antialias: bool

    def taps(self, axis: Axis) -> tuple[Integers, Floats]:
        """Which old cells each new cell is made of, [new, taps], in range; and their weights, [new, taps]."""
        x = _COORDINATES[self.coordinates](axis, np.arange(axis.new, dtype=np.float64))
        if self.mode == "nearest":
            cells = _NEAREST[self.nearest](x).astype(np.int64)[:, None]
            return np.clip(cells, 0, axis.old - 1), np.ones(cells.shape)
        reach, kernel = _KERNELS[self.mode]
        shrink = min(1.0, axis.denominator / axis.numerator) if self.antialias else 1.0
        reach = ceil(reach / shrink)
        cells = np.floor(x).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
        weights = kernel((cells - x[:, None]) * shrink, self.cubic)
        if self.exclude_outside:
            weights = np.where((cells >= 0) & (cells < axis.old), weights, 0)
        if self.antialias or self.exclude_outside:
            weights = weights / weights.sum(1, keepdims=True)
        return np.clip(cells, 0, axis.old - 1), weights


def resized(value: Value, axis: int, cells: Integers, weights: Floats) -> Value:
    """`value`, which is summed in its own dtype, with an axis made of weighted old cells, both [new, taps]."""
    if cells.shape[1] == 1:
        return of_cells(value, axis, cells[:, 0])
    return _few_taps(value, axis, cells, weights) if cells.shape[1] <= 4 else _many_taps(value, axis, cells, weights)


def _repeats(cells: Integers, size: int) -> int:
    """How often each of `size` cells stands there, one after the other; 0 where it is not so."""
    times = len(cells) // max(1, size)
    return times if times and np.array_equal(cells, np.arange(times * size) // times) else 0


def repeated_cells(value: Value, times: Sequence[int]) -> Value:
    """`value` with each cell of every axis so many times in a row."""
    shape: tuple[int, ...] = value.shape
    pairs = [(size, count) for size, count in zip(shape, times, strict=True)]
    wide = [n for size, count in pairs for n in ((size, count) if count > 1 else (size,))]
    thin = [n for size, count in pairs for n in ((size, 1) if count > 1 else (size,))]
    return reshaped(expanded(reshaped(value, thin), wide), [size * count for size, count in pairs])


def _few_taps(value: Value, axis: int, cells: Integers, weights: Floats) -> Value:
    shape, count = value.shape, cells.shape[1]
    sizes = (*shape[:axis], len(cells), *shape[axis + 1 :])
    index = names(len(sizes))
    column = (len(cells), *(1,) * (len(sizes) - axis - 1))
    inputs, statements, terms = ["X"], list[str](), list[str]()
    for k in range(count):
        inputs += [f"I{k}", f"W{k}"]
        place = (*index[:axis], f"I{k}[{index[axis]}]", *index[axis + 1 :])
        statements.append(contraction(f"G{k}", sizes, index, "=", at("X", place)))
        terms.append(f"G{k} * W{k}")
    statements.append(f"Y = {' + '.join(terms)};")
    columns = [
        a for k in range(count) for a in (cells[:, k].astype(np.int32), _weights(weights[:, k], value).reshape(column))
    ]
    return apply(function(inputs, ["Y"], *statements), value, *columns)


def _many_taps(value: Value, axis: int, cells: Integers, weights: Floats) -> Value:
    shape, index = value.shape, names(len(value.shape))
    matrix = np.zeros((len(cells), shape[axis]))
    np.add.at(matrix, (np.arange(len(cells))[:, None], cells), weights)
    sizes = (*shape[:axis], len(cells), *shape[axis + 1 :])
    place = (*index[:axis], "o", *index[axis + 1 :])
    total = contraction("Y", sizes, place, "+", f"{at('X', index)} * W[o, {index[axis]}]")
    return apply(function("XW", "Y", total), value, _weights(matrix, value))


def _weights(weights: Floats, value: Value) -> npt.NDArray[Any]:
    return weights.astype(dtype_of(value).numpy)


def resized_axes(value: Value, how: Interpolation, axes: Sequence[Axis], outside: float = 0.0) -> Value:
    """`value` with every axis resized; `outside` fills what tf_crop_and_resize takes from beyond the old cells.

    Sums are computed in float32 where the dtype is narrower, and rounded once: the last one.
    """
    taps = {k: how.taps(axis) for k, axis in enumerate(axes) if not axis.stays}
    dtype, sums = dtype_of(value), any(cells.shape[1] > 1 for cells, _ in taps.values())
    if sums and dtype not in (DType.FLOAT32, DType.FLOAT64):
        wide = _resized_axes(apply(expression("X", cast("X", DType.FLOAT32)), value), how, axes, taps, outside)
        return apply(expression("X", cast("X", dtype)), wide)
    return _resized_axes(value, how, axes, taps, outside)


def _resized_axes(
    value: Value, how: Interpolation, axes: Sequence[Axis], taps: Mapping[int, tuple[Integers, Floats]], outside: float
) -> Value:
    times = {k: _repeats(cells[:, 0], axes[k].old) for k, (cells, _) in taps.items() if cells.shape[1] == 1}
    value = repeated_cells(value, [times.get(k) or 1 for k in range(len(axes))])
    for k, (cells, weights) in taps.items():
        if not times.get(k):
            value = resized(value, k, cells, weights)
        if how.coordinates == "tf_crop_and_resize":
            value = _extrapolated(value, k, axes[k], outside)
    return value


def _extrapolated(value: Value, k: int, axis: Axis, outside: float) -> Value:
    """`value` with `outside` in the cells of axis k that lie outside the old ones."""
    x = _crop_and_resize(axis, np.arange(axis.new, dtype=np.float64))
    inside = (x >= 0) & (x <= axis.old - 1)
    if inside.all():
        return value
    column = inside.reshape(-1, *(1,) * (len(value.shape) - k - 1))
    return apply(expression("X, M, V", "M ? X : V"), value, column, np.asarray(outside, dtype_of(value).numpy))
