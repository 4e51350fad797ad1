"""Reductions by any associative region, and the statistics of batch normalisation's kin."""

from __future__ import annotations

from math import prod

from tile_ir.dtype import DType
from tile_runtime.ops.moving import permuted, reshaped
from tile_runtime.ops.reducing import reduced, reduced_shape
from tile_runtime.ops.text import expression, function
from tile_runtime.ops.values import Value, apply, dtype_of

from tile_jax.lowering.elements import converted
from tile_jax.lowering.mlir import Block
from tile_jax.lowering.op import Op, Shape
from tile_jax.lowering.ops.moving import placed
from tile_jax.lowering.regions import aggregations, by_halves, extreme, is_counted, is_neutral
from tile_jax.lowering.registry import operation


@operation("stablehlo.reduce")
def reduce(op: Op) -> tuple[Value, ...]:
    """Sums, products, extremes and their places as Tile has them; any other region by halves."""
    count = len(op.values) // 2
    values, starts = op.values[:count], op.values[count:]
    axes, block = op.list("dimensions"), op.region()
    kept = reduced_shape(op.shape(), axes, keep=False)
    if not prod(op.shape()):
        return tuple(placed(s, (), kept) for s in starts)
    found = aggregations(block)
    if found is not None and "=" not in found:
        made = [aggregated(v, axes, a) for v, a in zip(values, found, strict=True)]
        if all(is_neutral(s, a, dtype_of(s)) for s, a in zip(starts, found, strict=True)):
            return tuple(made)
        return tuple(op.lift(block, [*(placed(s, (), kept) for s in starts), *made]))
    return tuple(_place(op, axes) or _in_general(op, block, axes, kept))


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


def _in_general(op: Op, block: Block, axes: Shape, kept: Shape) -> list[Value]:
    count = len(op.values) // 2
    rows = [_in_rows(v, axes, kept) for v in op.values[:count]]
    made = [reshaped(v, kept) for v in by_halves(op, block, rows)]
    return op.lift(block, [*(placed(s, (), kept) for s in op.values[count:]), *made])


def _in_rows(value: Value, axes: Shape, kept: Shape) -> Value:
    """`value` with the reduced axes as one, the last."""
    order = [k for k in range(len(value.shape)) if k not in axes] + list(axes)
    return reshaped(permuted(value, order), (*kept, prod(value.shape[k] for k in axes)))
