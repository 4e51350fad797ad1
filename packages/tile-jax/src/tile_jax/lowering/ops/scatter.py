"""Updates of elements where data says: replaced, added, multiplied, the larger or smaller kept, or by any region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

import numpy as np
from tile_ir.dtype import DType
from tile_runtime.loops import scan
from tile_runtime.ops.moving import padded, permuted, sliced
from tile_runtime.ops.text import Names, at, contraction, function, names
from tile_runtime.ops.values import Value, apply, dtype_of, is_known, symbol
from tile_runtime.symbols import Symbol

from tile_jax.lowering.dimensions import scatter_numbers
from tile_jax.lowering.elements import converted, counted, elementwise, full, where
from tile_jax.lowering.op import Op, Shape
from tile_jax.lowering.ops.gather import cells, clamped, component
from tile_jax.lowering.ops.moving import placed, reshaped
from tile_jax.lowering.regions import aggregations, neutral, subtracts
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
    if found is None and subtracts(op.region()):
        found, updates = ["+"], [elementwise("(-{0})", updates[0])]
    if found is None:
        return tuple(_one_by_one(op, values, indices, updates))
    target = _target(op, tuple(values[0].shape), indices, tuple(updates[0].shape))
    return tuple(_scattered(v, u, target, a) for v, u, a in zip(values, updates, found, strict=True))


@dataclass(frozen=True, slots=True)
class _Layout:
    """How updates lie on an operand."""

    batch: Shape
    """Axes of the updates that count windows."""
    inner: dict[int, int]
    """The axis of the updates that counts cells along an axis of the operand."""
    extents: Shape
    """Cells of a window along each axis of the operand."""
    stacked: dict[int, int]
    """Axes of the operand that go with one of the batch, by its number."""
    first: dict[int, Value]
    """The first cell of each window along axes where data says it, int64 of the batch's shape."""
    valid: Value
    """Whether each window lies inside; None where all are known to."""


def _layout(op: Op, shape: Shape, indices: Value, updates: Shape) -> _Layout:
    numbers = scatter_numbers(op.attribute("scatter_dimension_numbers"))
    vector, window, stacks = numbers.index_vector_dim, numbers.update_window_dims, numbers.input_batching_dims
    gone = (*numbers.inserted_window_dims, *stacks)
    inner = dict(zip((a for a in range(len(shape)) if a not in gone), sorted(window), strict=True))
    extents = tuple(updates[inner[a]] if a in inner else 1 for a in range(len(shape)))
    placed_by = enumerate(numbers.scattered_dims_to_operand_dims)
    first = {a: converted(component(indices, vector, k), DType.INT64) for k, a in placed_by}
    others = zip(stacks, numbers.scatter_indices_batching_dims, strict=True)
    return _Layout(
        tuple(k for k in range(len(updates)) if k not in window),
        inner,
        extents,
        {axis: other - (other > vector) for axis, other in others},
        first,
        _valid(first, shape, extents),
    )


def _target(op: Op, shape: Shape, indices: Value, updates: Shape) -> Target:
    layout, index = _layout(op, shape, indices, updates), names(len(updates))
    places = {a: cells(start, layout.extents[a]) for a, start in _begun(layout, shape, updates).items()}
    own = [index[k] for k in layout.batch]

    def subscript(axis: int) -> str:
        if axis in layout.stacked:
            return own[layout.stacked[axis]]
        inside = [index[layout.inner[axis]]] if axis in layout.inner else []
        if axis not in places:
            return (inside or ["0"])[0]
        return at(f"I{axis}", (*own, *inside) if layout.extents[axis] > 1 else own)

    given = {f"I{a}": p for a, p in places.items()}
    guarded = min(layout.first, key=shape.__getitem__, default=-1)
    return Target(tuple(subscript(a) for a in range(len(shape))), given, layout.valid, layout.batch, guarded)


def _begun(layout: _Layout, shape: Shape, updates: Shape) -> dict[int, Value]:
    """The first cells of windows; those that do not fill an axis, and that no data places, begin at 0.

    So does one axis at least: updates may meet, which Tile takes where data says so.
    """
    nothing = full(0, DType.INT64, tuple(updates[k] for k in layout.batch))
    free = [a for a in range(len(shape)) if a not in layout.first and a not in layout.stacked]
    chosen = [a for a in free if layout.extents[a] < shape[a]] or ([] if layout.first else free[:1])
    return layout.first | dict.fromkeys(chosen, nothing)


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
    """Windows one after the other, in a loop on the device."""
    shape, index = tuple(values[0].shape), names(len(values[0].shape))
    windows = _windows(op, shape, indices, updates)
    taken = contraction("Y", windows.extents, index, "=", at("X", windows.subscripts))
    put = contraction("Y", shape, windows.subscripts, "=", at("U", index), "default X")
    take, replace = function(("X", *windows.names), "Y", taken), function(("X", "U", *windows.names), "Y", put)

    def step(carry: tuple[Symbol, ...], row: tuple[Symbol, ...]) -> tuple[tuple[Symbol, ...], None]:
        inside, places, news = row[0], row[1 : 1 + len(shape)], row[1 + len(shape) :]
        olds = [apply(take, own, *places) for own in carry]
        made = op.lift(op.region(), [*olds, *news])
        kept = [where(inside, m, old, windows.extents) for m, old in zip(made, olds, strict=True)]
        return tuple(apply(replace, own, k, *places) for own, k in zip(carry, kept, strict=True)), None

    found, _ = scan(
        step, tuple(map(symbol, values)), tuple(map(symbol, (windows.inside, *windows.places, *windows.updates)))
    )
    return list(found)


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows of an operand, the first axis of all tensors: whether they lie inside, their cells' places, their updates."""

    extents: Shape
    inside: Value
    places: list[Value]
    """For each axis of the operand [windows, extent]."""
    updates: list[Value]
    """[windows, *extents]."""

    @property
    def names(self) -> Names:
        return names(len(self.extents), "P")

    @property
    def subscripts(self) -> Names:
        return tuple(at(place, (index,)) for place, index in zip(self.names, names(len(self.extents)), strict=True))


def _windows(op: Op, shape: Shape, indices: Value, updates: Sequence[Value]) -> _Windows:
    sizes = tuple(updates[0].shape)
    layout = _layout(op, shape, indices, sizes)
    batch, extents = layout.batch, layout.extents
    stacks, count = tuple(sizes[k] for k in batch), prod(sizes[k] for k in batch)
    nothing = full(0, DType.INT64, stacks)
    first = layout.first | {a: counted(stacks, k, DType.INT64) for a, k in layout.stacked.items()}
    begun = [
        reshaped(clamped(first.get(a, nothing), n - e), (count,))
        for a, (n, e) in enumerate(zip(shape, extents, strict=True))
    ]
    return _Windows(
        extents,
        full(1, DType.BOOL, (count,)) if layout.valid is None else reshaped(layout.valid, (count,)),
        [reshaped(cells(b, e), (count, e)) for b, e in zip(begun, extents, strict=True)],
        [reshaped(permuted(u, (*batch, *layout.inner.values())), (count, *extents)) for u in updates],
    )
