"""Updates of elements where data says: replaced, added, multiplied, the larger or smaller kept, or by any region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from tile_ir.dtype import DType
from tile_runtime.ops.moving import padded, sliced
from tile_runtime.ops.text import Names, at, contraction, function, names
from tile_runtime.ops.values import Value, apply, dtype_of, is_known

from tile_jax.lowering.dimensions import scatter_numbers
from tile_jax.lowering.elements import converted, elementwise, full, where
from tile_jax.lowering.op import Op, Shape
from tile_jax.lowering.ops.gather import cells, component
from tile_jax.lowering.ops.moving import placed
from tile_jax.lowering.regions import aggregations, neutral
from tile_jax.lowering.registry import operation

_COMBINED = {"+": "({0} + {1})", "*": "({0} * {1})", ">": "max({0}, {1})", "<": "min({0}, {1})"}
_OF_TRUTH = {">": "({0} | {1})", "<": "({0} & {1})"}


@dataclass(frozen=True, slots=True)
class Target:
    """Where updates fall: a subscript for each axis of the operand, in which tensors of places may stand."""

    subscripts: Names
    places: dict[str, Value]
    valid: Value
    """Whether each window lies inside, of the shape of the batch; None where all are known to."""
    batch: Shape
    """Axes of the updates that count windows."""
    guarded: int
    """An axis along which places are data; -1 where there is none."""

    def mask(self, updates: Shape) -> Value:
        """`valid`, for each element of the updates."""
        return placed(self.valid, self.batch, updates)


@operation("stablehlo.scatter")
def scatter(op: Op) -> tuple[Value, ...]:
    """Windows that do not lie inside change nothing; updates of one element are combined in row-major order."""
    count = (len(op.values) - 1) // 2
    values, indices, updates = op.values[:count], op.values[count], op.values[count + 1 :]
    if not np.prod(updates[0].shape) or not np.prod(values[0].shape):
        return tuple(values)
    found = aggregations(op.region())
    if found is None:
        return tuple(_one_by_one(op, values, indices, updates))
    target = _target(op, tuple(values[0].shape), indices, tuple(updates[0].shape))
    return tuple(_scattered(v, u, target, a) for v, u, a in zip(values, updates, found, strict=True))


def _target(op: Op, shape: Shape, indices: Value, updates: Shape) -> Target:
    numbers = scatter_numbers(op.attribute("scatter_dimension_numbers"))
    index, window, vector = names(len(updates)), numbers.update_window_dims, numbers.index_vector_dim
    batch = tuple(k for k in range(len(updates)) if k not in window)
    gone = (*numbers.inserted_window_dims, *numbers.input_batching_dims)
    inner = dict(zip((a for a in range(len(shape)) if a not in gone), sorted(window), strict=True))
    extents = tuple(updates[inner[a]] if a in inner else 1 for a in range(len(shape)))
    subscripts = [index[inner[a]] if a in inner else "0" for a in range(len(shape))]
    for axis, other in zip(numbers.input_batching_dims, numbers.scatter_indices_batching_dims, strict=True):
        subscripts[axis] = index[batch[other - (other > vector)]]
    first = {
        a: converted(component(indices, vector, k), DType.INT64)
        for k, a in enumerate(numbers.scattered_dims_to_operand_dims)
    }
    valid = _valid(first, shape, extents)
    places = {a: cells(start, extents[a]) for a, start in first.items()}
    for axis in places:
        own = [index[k] for k in batch]
        subscripts[axis] = at(f"I{axis}", (*own, *((index[inner[axis]],) if extents[axis] > 1 else ())))
    guarded = min(places, key=shape.__getitem__, default=-1)
    return Target(tuple(subscripts), {f"I{a}": p for a, p in places.items()}, valid, batch, guarded)


def _valid(first: dict[int, Value], shape: Shape, extents: Shape) -> Value:
    tests = [
        elementwise(f"(({{0}} >= 0) & ({{0}} <= {shape[a] - extents[a]}))", v, shape=v.shape) for a, v in first.items()
    ]
    if not tests:
        return None
    both = reduce(lambda a, b: elementwise("({0} & {1})", a, b, shape=a.shape), tests)
    return None if is_known(both) and both.all() else both


def _scattered(value: Value, updates: Value, target: Target, aggregation: str) -> Value:
    """What falls outside is what changes nothing; where it would replace, it goes to a row of its own, which is cut off."""
    dtype = dtype_of(value)
    if aggregation == "=":
        return _replaced(value, updates, target)
    if target.valid is not None:
        nothing = full(neutral(aggregation, dtype), dtype)
        updates = where(target.mask(tuple(updates.shape)), updates, nothing, updates.shape)
    found = _fallen(full(neutral(aggregation, dtype), dtype), updates, target, tuple(value.shape), aggregation)
    combined = (_OF_TRUTH if dtype is DType.BOOL else _COMBINED)[aggregation]
    return elementwise(combined, value, found, shape=value.shape)


def _replaced(value: Value, updates: Value, target: Target) -> Value:
    shape = tuple(value.shape)
    if target.valid is None:
        return _fallen(value, updates, target, shape, "=")
    axis, name = target.guarded, f"I{target.guarded}"
    rest = [int(k == axis) for k in range(len(shape))]
    places = target.places[name]
    valid = placed(target.valid, tuple(range(len(target.batch))), tuple(places.shape))
    moved = {**target.places, name: where(valid, places, full(shape[axis], DType.INT64), places.shape)}
    longer = tuple(n + r for n, r in zip(shape, rest, strict=True))
    guarded = Target(target.subscripts, moved, None, target.batch, axis)
    found = _fallen(padded(value, [0] * len(shape), rest), updates, guarded, longer, "=")
    return sliced(found, [slice(0, n) for n in shape])


def _fallen(default: Value, updates: Value, target: Target, shape: Shape, aggregation: str) -> Value:
    """What falls on each cell, and `default` where nothing does."""
    body = at("U", names(len(updates.shape)))
    text = contraction("Y", shape, target.subscripts, aggregation, body, "default D")
    given = {"U": updates, "D": default, **target.places}
    return apply(function(given, "Y", text), *given.values())


# --- any region ---------------------------------------------------------------------------------------------


def _one_by_one(op: Op, values: Sequence[Value], indices: Value, updates: Sequence[Value]) -> list[Value]:
    """Updates one after the other, in a loop on the device."""
    raise op.unsupported("its region is no sum, product, maximum, minimum or replacement",
                         "write the update as a loop, or as a function of gathered elements")  # fmt: skip
