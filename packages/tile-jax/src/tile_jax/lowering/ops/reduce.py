"""Reductions by any associative region, and the statistics of batch normalisation's kin."""

from __future__ import annotations

from math import prod

from tile_ir.dtype import DType
from tile_runtime.ops.moving import permuted, reshaped
from tile_runtime.ops.reducing import reduced, reduced_shape
from tile_runtime.ops.text import expression, function
from tile_runtime.ops.values import Value, apply, dtype_of

from tile_jax.lowering.complexes import is_whole
from tile_jax.lowering.elements import converted
from tile_jax.lowering.mlir import Block
from tile_jax.lowering.op import Op, Shape
from tile_jax.lowering.ops.moving import placed
from tile_jax.lowering.regions import aggregations, by_halves, extreme, is_counted, is_neutral
from tile_jax.lowering.registry import operation


@operation("stablehlo.reduce")
def reduce(op: Op) -> tuple[Value, ...]:
    """Sums, products, extremes and their places as Tile has them; any other region, and any of complex numbers, by halves."""
    count = len(op.values) // 2
    values, starts = op.values[:count], op.values[count:]
    axes, block = op.list("dimensions"), op.region()
    begun = [everywhere(s, reduced_shape(v.shape, axes, keep=False)) for v, s in zip(values, starts, strict=True)]
    if not prod(op.shape()):
        return tuple(begun)
    whole = is_whole(op)
    found = None if whole else aggregations(block)
    if found is not None and "=" not in found:
        made = [aggregated(v, axes, a) for v, a in zip(values, found, strict=True)]
        if all(is_neutral(s, a, dtype_of(s)) for s, a in zip(starts, found, strict=True)):
            return tuple(made)
        return tuple(op.lift(block, [*begun, *made]))
    places = [] if whole else _place(op, axes)
    return tuple(places or op.lift(block, [*begun, *_in_general(op, block, axes)]))


def everywhere(start: Value, shape: Shape) -> Value:
    """What a reduction begins with, a number or both parts of one, for each cell of the result."""
    return placed(start, tuple(range(len(shape) - len(start.shape), len(shape))), shape)


def aggregated(value: Value, axes: Shape, aggregation: str) -> Value:
    """`value` aggregated over axes, which go."""
    shape = tuple(value.shape)
    return apply(function("X", "R", reduced("R", "X", shape, axes, aggregation, keep=False)), value) if axes else value


def _place(op: Op, axes: Shape) -> list[Value]:
    """The largest or smallest along an axis, and where it stands; nothing where that is not what is asked."""
    if len(axes) != 1 or len(op.values) != 4 or not is_counted(op.values[1], axes[0]):
        return []
    name = extreme(op, op.region(), op.dtype())
    if name is None:
        return []
    whole = converted(op.values[0], DType.INT32) if op.dtype() is DType.BOOL else op.values[0]
    place = apply(expression("X", f"{name}(X, {axes[0]})"), whole)
    found = aggregated(op.values[0], axes, ">" if name == "argmax" else "<")
    return [found, converted(reshaped(place, found.shape), op.dtype(1))]


def _in_general(op: Op, block: Block, axes: Shape) -> list[Value]:
    made = by_halves(op, block, [_in_rows(v, axes) for v in op.values[: len(op.values) // 2]], 0)
    return [reshaped(v, tuple(v.shape[1:])) for v in made]


def _in_rows(value: Value, axes: Shape) -> Value:
    """`value` with the reduced axes as one, the first."""
    kept = [k for k in range(len(value.shape)) if k not in axes]
    sizes = [value.shape[k] for k in kept]
    return reshaped(permuted(value, [*axes, *kept]), (prod(value.shape[k] for k in axes), *sizes))
