"""Aggregations over axes, as text."""

from __future__ import annotations

from tile_runtime.ops.text import Shape, at, at_axes, contraction, names, without


def reduced(target: str, source: str, shape: Shape, axes: Shape, aggregation: str = "+", keep: bool = True) -> str:
    """A statement: `source` aggregated over `axes`, which stay with size 1 (`keep`) or go."""
    if not axes:
        return f"{target} = {source};"
    indexes = names(len(shape))
    subscripts = at_axes(indexes, axes) if keep else without(indexes, axes)
    sizes = reduced_shape(shape, axes, keep)
    return contraction(target, sizes, subscripts, aggregation, at(source, indexes))


def reduced_shape(shape: Shape, axes: Shape, keep: bool) -> Shape:
    """`shape` without `axes`, or with ones in their place."""
    return tuple(1 if k in axes else size for k, size in enumerate(shape) if keep or k not in axes)
