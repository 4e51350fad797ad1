"""Parts of tensors as views have them: read, and replaced in a copy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

import numpy as np
import torch
from tile_runtime.ops.moving import expanded, permuted, reshaped
from tile_runtime.ops.text import Shape, affine, at, contraction, function, names
from tile_runtime.ops.values import Array, Value, apply

from tile_torch.call import Call, axis
from tile_torch.registry import operator
from tile_torch.sizes import dense_order

aten = torch.ops.aten


def replaced(value: Value, part: Value, subscripts: Sequence[str]) -> Value:
    """`value` with the cells of `part`, which i0, i1, … count, at subscripts that differ from cell to cell."""
    text = contraction("Y", value.shape, subscripts, "=", at("U", names(len(part.shape))), "default X")
    return apply(function("XU", "Y", text), value, part)


@operator(aten.slice_scatter.default)
def slice_scatter(
    call: Call,
    input: Value,
    src: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    dim = axis(dim, len(call.shape))
    cells = range(*slice(start, end, step).indices(call.shape[dim]))
    if not len(cells):
        return input
    subscripts = list(names(len(call.shape)))
    subscripts[dim] = affine(subscripts[dim], step, cells.start)
    return replaced(input, src, subscripts)


@operator(aten.select_scatter.default)
def select_scatter(call: Call, input: Value, src: Value, dim: int, index: int) -> Value:
    dim = axis(dim, len(call.shape))
    index += call.shape[dim] if index < 0 else 0
    subscripts = names(len(call.shape) - 1)
    return replaced(input, src, (*subscripts[:dim], str(index), *subscripts[dim:]))


# --- diagonals ----------------------------------------------------------------------------------------


def _diagonal(rank: int, offset: int, dim1: int, dim2: int) -> list[str]:
    """Subscripts of a tensor for the cells of its diagonals, whose last index counts along them."""
    rest, along = iter(names(rank - 2)), f"i{rank - 2}"
    starts = {axis(dim1, rank): max(-offset, 0), axis(dim2, rank): max(offset, 0)}
    return [affine(along, 1, starts[k]) if k in starts else next(rest) for k in range(rank)]


@operator(aten.diagonal_scatter.default)
def diagonal_scatter(call: Call, input: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    if not prod(src.shape):
        return input
    return replaced(input, src, _diagonal(len(input.shape), offset, dim1, dim2))


# --- windows ------------------------------------------------------------------------------------------


@operator(aten.unfold.default)
def unfold(call: Call, input: Value, dimension: int, size: int, step: int) -> Value:
    """The last axis counts the cells of windows, `step` apart."""
    if not input.shape:
        return reshaped(input, (1,))
    cell = at("X", _windows(len(input.shape), dimension, step))
    return apply(function("X", "Y", contraction("Y", call.shape, names(len(call.shape)), "=", cell)), input)


@operator(aten.unfold_backward.default)
def unfold_backward(call: Call, grad: Value, input_sizes: Sequence[int], dim: int, size: int, step: int) -> Value:
    """Where windows overlap, their gradients are added; `istft` gives those of one row for all."""
    if not input_sizes:
        return reshaped(grad, ())
    along = axis(dim, len(call.shape))
    rows = (*call.shape[:along], grad.shape[along], *call.shape[along + 1 :])
    grad = expanded(grad, (*rows, size))
    body = at("G", names(len(grad.shape)))
    text = contraction("Y", call.shape, _windows(len(call.shape), dim, step), "+", body)
    return apply(function("G", "Y", text), grad)


def _windows(rank: int, dim: int, step: int) -> list[str]:
    subscripts = list(names(rank))
    dim = axis(dim, rank)
    subscripts[dim] = f"{affine(subscripts[dim], step, 0)} + i{rank}"
    return subscripts


# --- any strides --------------------------------------------------------------------------------------


@operator(aten.as_strided.default, aten.as_strided_copy.default)
def as_strided(
    call: Call, input: Value, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Value:
    """Cells of the memory that the input fills, `stride` apart."""
    start = _start(call, input, size, stride, storage_offset)
    own, order = _order(call, input), dense_order(size, stride)
    if order is not None and prod(size) == prod(input.shape):
        return _lying(permuted(input, own), size, order)
    text = contraction("Y", call.shape, names(len(call.shape)), "=", f"M[{_place(size, stride, start)}]")
    return apply(function("M", "Y", text), _row(input, own))


@operator(aten.as_strided_scatter.default)
def as_strided_scatter(
    call: Call,
    input: Value,
    src: Value,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Value:
    """The input with other cells in the memory that it fills; of several for one place the last stays."""
    start, order = _start(call, input, size, stride, storage_offset), _order(call, input)
    row, index = _row(input, order), names(len(size))
    if _differ(size, stride):
        row = replaced(row, src, [_place(size, stride, start)])
    else:
        text = contraction("Y", row.shape, (at("I", index),), "=", at("U", index), "default X")
        row = apply(function("XUI", "Y", text), row, src, _places(size, stride, start))
    return _lying(row, call.shape, order)


def _start(call: Call, value: Value, size: Sequence[int], stride: Sequence[int], offset: int | None) -> int:
    """Where the cells begin in the row of the input's elements, which must hold all of them."""
    own = call.offsets[0] or 0
    start = own if offset is None else offset
    last = start + sum(s * (n - 1) for n, s in zip(size, stride, strict=True))
    if start < own or last >= own + prod(value.shape):
        raise call.unsupported("it reaches into memory beside its input", "take the view of the whole tensor")
    return start - own


def _place(size: Sequence[int], stride: Sequence[int], start: int) -> str:
    """The place of cell i0, i1, …, as text."""
    terms = [affine(i, s, 0) for i, n, s in zip(names(len(size)), size, stride, strict=True) if n > 1 and s]
    return " + ".join([*terms, *([str(start)] if start or not terms else [])])


def _places(size: Sequence[int], stride: Sequence[int], start: int) -> Array:
    """The place (int64) of every cell."""
    steps = [s * np.arange(n) for n, s in zip(size, stride, strict=True)]
    return np.asarray(reduce(np.add.outer, steps, np.int64(start)))


def _differ(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether it is plain that no two cells are at one place."""
    reach = 0
    for s, n in sorted((s, n) for n, s in zip(size, stride, strict=True) if n > 1):
        if s <= reach:
            return False
        reach += s * (n - 1)
    return True


def _row(value: Value, order: Shape) -> Value:
    """The elements as they lie in memory."""
    return reshaped(permuted(value, order), (prod(value.shape),))


def _lying(elements: Value, shape: Sequence[int], order: Sequence[int]) -> Value:
    """A tensor of `shape` whose axes, in `order`, go along these elements as they lie in memory."""
    lying = reshaped(elements, [shape[k] for k in order])
    return permuted(lying, [order.index(k) for k in range(len(order))])


def _order(call: Call, value: Value) -> Shape:
    """The axes from the one with the largest stride on, for tensors that lie in memory without gaps."""
    order = dense_order(value.shape, call.strides[0] or ())
    if order is None:
        raise call.unsupported(
            f"strides {list(call.strides[0] or ())} of shape {list(value.shape)} leave gaps or overlap",
            "call .contiguous() on the tensor before it",
        )
    return order
