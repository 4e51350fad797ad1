"""Pools: one number for each place of a window."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

import numpy as np

from tile_runtime.ops.text import Shape, at, cast, contraction, function, literal, wide
from tile_runtime.ops.values import Array, Value, apply, dtype_of
from tile_runtime.ops.windows import Window


def pooled(target: str, aggregation: str, body: str, shape: Shape, over: Window) -> str:
    """The statement ``target = aggregation(body)`` over a window of an image of `shape`."""
    sizes = (*shape[:2], *over.sizes)
    return contraction(target, sizes, ("n", "c", *over.places), aggregation, body, *over.constraints())


def cell(over: Window, tensor: str = "X") -> str:
    """The tensor [N, C, *spatial] at the cells of a window."""
    return at(tensor, ("n", "c", *over.subscripts()))


def max_pool(value: Value, over: Window) -> Value:
    """The largest of each place."""
    return apply(function("X", "Y", pooled("Y", ">", cell(over), value.shape, over)), value)


def max_pool_with_places(value: Value, over: Window, order: Sequence[int]) -> tuple[Value, Value]:
    """The largest of each place, and the number (int64) of the first cell that holds it.

    Cells are numbered over the axes of `order`, the last of which counts first.
    """
    # The first of several cells that hold the largest: that with the largest number of cells from it to the end.
    size = prod(value.shape[axis] for axis in order)
    found = f"{cell(over)} == {at('Y', ('n', 'c', *over.places))} ? {cell(over, 'R')}"
    statements = (
        pooled("Y", ">", cell(over), value.shape, over),
        f"R = {size} - ({numbered(value.shape, order)});",
        pooled("F", ">", found, value.shape, over),
        f"P = {size} - F;",
    )
    return apply(function("X", ("Y", "P"), *statements), value)


def numbered(shape: Sequence[int], order: Sequence[int]) -> str:
    """The number of each cell of X, as text: axes of `order`, the last of which counts first."""
    strides = {axis: prod(shape[a] for a in order[k + 1 :]) for k, axis in enumerate(order)}
    return " + ".join(f"as_int(index(X, {axis}), 64) * {stride}" for axis, stride in strides.items())


def average_pool(value: Value, over: Window, with_padding: bool) -> Value:
    """The mean of each place: of the cells inside the image, or of those of its padding, too."""
    dtype, counts = dtype_of(value), counted(over, value.shape[2:], with_padding)
    total = (f"A = {wide('X', dtype)};", pooled("S", "+", cell(over, "A"), value.shape, over))
    if np.all(counts == counts.flat[0]):
        mean = cast(f"(S / {literal(float(counts.flat[0]))})", dtype)
        return apply(function("X", "Y", *total, f"Y = {mean};"), value)
    return apply(
        function("XC", "Y", *total, f"Y = {cast('(S / C)', dtype)};"), value, counts.astype(dtype.accumulator.numpy)
    )


def counted(over: Window, shape: Sequence[int], with_padding: bool) -> Array:
    """How many cells each place of a window averages: those inside the image, or inside it and its padding."""
    counts: list[Array] = []
    every = zip(over.sizes, over.kernel, over.strides, over.dilations, over.before, over.after, shape, strict=True)
    for places, cells, stride, dilation, before, after, size in every:
        low, high = (-before, size + after) if with_padding else (0, size)
        cell = np.add.outer(np.arange(places) * stride, np.arange(cells) * dilation - before)  # pyright: ignore[reportUnknownArgumentType]
        counts.append(np.maximum(1, np.sum((low <= cell) & (cell < high), 1)))
    return reduce(np.multiply.outer, counts)
