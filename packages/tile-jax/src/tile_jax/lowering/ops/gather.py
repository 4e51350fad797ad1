"""Elements taken from where data says, and slices that begin there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tile_ir.dtype import DType
from tile_runtime.ops.moving import reshaped, sliced
from tile_runtime.ops.text import affine, at, contraction, function, names
from tile_runtime.ops.values import Value, apply, is_known

from tile_jax.lowering.dimensions import gather_numbers
from tile_jax.lowering.elements import converted, elementwise, full
from tile_jax.lowering.op import Op, Shape
from tile_jax.lowering.registry import operation
from tile_jax.lowering.scope import Row


@operation("stablehlo.gather")
def gather(op: Op) -> Value:
    return gathered(op, op.list("slice_sizes"))


@operation("stablehlo.dynamic_gather")
def dynamic_gather(op: Op) -> Value:
    return gathered(op, op.ints(2))


def gathered(op: Op, slices: Shape) -> Value:
    """Windows of the operand, of these sizes, each from its own start on; starts are clamped so that windows fit."""
    numbers = gather_numbers(op.attribute("dimension_numbers"))
    sizes, shape = op.result().shape, op.shape()
    if not np.prod(sizes):
        return full(0, op.result().dtype, sizes)
    index, offsets = names(len(sizes)), numbers.offset_dims
    batch = tuple(i for k, i in enumerate(index) if k not in offsets)
    inner = _inner(index, offsets, len(shape), (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims))
    places = starts(op.values[1], numbers.index_vector_dim, numbers.start_index_map, shape, slices)
    vector = numbers.index_vector_dim
    stacked = {
        axis: batch[other - (other > vector)]
        for axis, other in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
    }
    subscripts = [stacked.get(axis) or _subscript(axis, places, batch, inner) for axis in range(len(shape))]
    given = {f"I{axis}": place for axis, place in places.items()}
    text = contraction("Y", sizes, index, "=", at("X", subscripts))
    return apply(function(("X", *given), "Y", text), op.values[0], *given.values())


def _inner(index: Sequence[str], offsets: Shape, rank: int, gone: Shape) -> dict[int, str]:
    """The index that counts cells of a window along each axis of the operand that windows keep."""
    kept = [axis for axis in range(rank) if axis not in gone]
    return {axis: index[k] for axis, k in zip(kept, sorted(offsets), strict=True)}


def _subscript(axis: int, places: dict[int, Value], batch: Sequence[str], inner: dict[int, str]) -> str:
    if axis not in places:
        return inner.get(axis, "0")
    extent = [inner[axis]] if len(places[axis].shape) > len(batch) else []
    return at(f"I{axis}", (*batch, *extent))


def starts(indices: Value, vector: int, axes: Shape, shape: Shape, extents: Shape) -> dict[int, Value]:
    """For each of `axes` the places that its windows begin at, clamped, of the shape of the batch.

    Where windows are longer than one cell, the places of all their cells, along one more axis. An axis that windows
    fill has none.
    """
    found: dict[int, Value] = {}
    for k, axis in enumerate(axes):
        if extents[axis] < shape[axis] or shape[axis] == 1:
            start = component(indices, vector, k)
            found[axis] = cells(clamped(start, shape[axis] - extents[axis]), extents[axis])
    return found


def component(indices: Value, vector: int, k: int) -> Value:
    """Number `k` of each index vector, which lie along axis `vector`."""
    if vector == len(indices.shape):
        return indices
    picked = [slice(k, k + 1) if axis == vector else slice(None) for axis in range(len(indices.shape))]
    kept = [n for axis, n in enumerate(indices.shape) if axis != vector]
    return reshaped(sliced(indices, picked), kept)


def clamped(start: Value, most: int) -> Value:
    """Places from 0 to `most`, int64."""
    return elementwise(f"min(max({{0}}, 0), {most})", converted(start, DType.INT64), shape=start.shape)


def cells(start: Value, extent: int) -> Value:
    """The places of `extent` cells from each start on, along a new last axis; of one cell the starts themselves."""
    if extent == 1:
        return start
    column = reshaped(start, (*start.shape, 1))
    return elementwise("({0} + {1})", column, np.arange(extent), shape=(*start.shape, extent))


# --- slices whose start is data -----------------------------------------------------------------------------


@operation("stablehlo.dynamic_slice")
def dynamic_slice(op: Op) -> Value:
    """A slice whose starts are clamped so that it fits."""
    sizes, shape = op.list("slice_sizes"), op.shape()
    first = _starts(op.values[1:], shape, sizes)
    known = {axis: int(v) for axis, v in first.items() if is_known(v)}
    index = names(len(sizes))
    if len(known) == len(first):
        return sliced(op.values[0], [slice(known.get(k, 0), known.get(k, 0) + n) for k, n in enumerate(sizes)])
    given, subscripts = _places(first, known, index, sizes)
    text = contraction("Y", sizes, index, "=", at("X", subscripts))
    return apply(function(("X", *given), "Y", text), op.values[0], *given.values())


def _starts(values: Sequence[Value], shape: Shape, sizes: Shape) -> dict[int, Value]:
    return {k: clamped(v, n - s) for k, (v, n, s) in enumerate(zip(values, shape, sizes, strict=True)) if s < n}


def _places(
    first: dict[int, Value], known: dict[int, int], index: Sequence[str], sizes: Shape
) -> tuple[dict[str, Value], list[str]]:
    """Tensors of places, and the subscripts in which they and known starts stand."""
    given: dict[str, Value] = {}
    subscripts = list(index)
    for axis, start in first.items():
        if axis in known:
            subscripts[axis] = affine(index[axis], 1, known[axis])
        else:
            given[f"I{axis}"] = cells(start, sizes[axis])
            subscripts[axis] = at(f"I{axis}", () if sizes[axis] == 1 else (index[axis],))
    return given, subscripts


@operation("stablehlo.dynamic_update_slice")
def dynamic_update_slice(op: Op) -> Value:
    """The operand with a slice replaced, whose starts are clamped so that it fits."""
    value, update, *at_ = op.values
    shape, sizes = op.shape(), tuple(update.shape)
    if sizes == shape:
        return update
    if not np.prod(sizes):
        return value
    first = _starts(at_, shape, sizes)
    known = {axis: int(v) for axis, v in first.items() if is_known(v)}
    index = names(len(sizes))
    given, subscripts = _places(first, known, index, sizes)
    text = contraction("Y", shape, subscripts, "=", at("U", index), "default X")
    made = apply(function(("X", "U", *given), "Y", text), value, update, *given.values())
    if sizes[0] == 1 and sizes[1:] == shape[1:]:
        op.walk.rows[id(made)] = Row(made, value, update, first[0])
    return made


@operation("stablehlo.torch_index_select")
def torch_index_select(op: Op) -> Value:
    """Slices along an axis by number, with leading axes in common."""
    axis, batch = op.number("dim"), op.number("batch_dims")
    shape, places = op.shape(0), op.shape(1)
    sizes, count = op.result().shape, len(places) - batch
    index = names(len(sizes))
    own = (*index[:batch], *index[axis : axis + count])
    subscripts = (*index[:axis], at("I", own), *index[axis + count :])
    assert len(subscripts) == len(shape)
    text = contraction("Y", sizes, index, "=", at("X", subscripts))
    return apply(function("XI", "Y", text), op.values[0], op.values[1])
