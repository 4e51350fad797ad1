"""Parts of tensors as views have them: read, and replaced in a copy."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from tile_runtime.ops.moving import permuted, reshaped
from tile_runtime.ops.text import Shape, affine, at, contraction, function, names
from tile_runtime.ops.values import Value, apply

from tile_torch.call import Call, axis
from tile_torch.registry import operator

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
    """Where windows overlap, their gradients are added."""
    if not input_sizes:
        return reshaped(grad, ())
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
    memory = _memory(call, input)
    place = _place(size, stride, storage_offset)
    text = contraction("Y", call.shape, names(len(call.shape)), "=", f"M[{place}]")
    return apply(function("M", "Y", text), memory)


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
    order = _order(call, input)
    memory = _memory(call, input)
    if _differ(size, stride):
        memory = replaced(memory, src, [_place(size, stride, storage_offset)])
    else:
        places = np.full(tuple(size), storage_offset or 0, np.int64)
        for k, (n, s) in enumerate(zip(size, stride, strict=True)):
            places += (np.arange(n) * s).reshape(-1, *(1,) * (len(size) - k - 1))
        text = contraction("Y", memory.shape, (at("I", names(len(size))),), "=", at("U", names(len(size))), "default X")
        memory = apply(function("XUI", "Y", text), memory, src, places)
    lying = reshaped(memory, [call.shape[k] for k in order])
    return permuted(lying, np.argsort(order).tolist())


def _place(size: Sequence[int], stride: Sequence[int], offset: int | None) -> str:
    terms = [affine(i, s, 0) for i, n, s in zip(names(len(size)), size, stride, strict=True) if n > 1 and s]
    return " + ".join([*terms, *([str(offset)] if offset or not terms else [])])


def _differ(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether it is plain that no two cells are at one place."""
    reach = 0
    for s, n in sorted((s, n) for n, s in zip(size, stride, strict=True) if n > 1):
        if s <= reach:
            return False
        reach += s * (n - 1)
    return True


def _memory(call: Call, value: Value) -> Value:
    """The elements as they lie in memory, in one row."""
    return reshaped(permuted(value, _order(call, value)), (prod(value.shape),))


def _order(call: Call, value: Value) -> Shape:
    """The axes from the one with the largest stride on, for tensors that lie in memory without gaps."""
    strides = call.strides[0] or ()
    order = sorted(range(len(strides)), key=lambda k: (-strides[k], -value.shape[k]))
    dense = 1
    for k in reversed(order):
        if value.shape[k] != 1 and strides[k] != dense:
            raise call.unsupported(
                f"strides {list(strides)} of shape {list(value.shape)} leave gaps or overlap",
                "call .contiguous() on the tensor before it",
            )
        dense *= value.shape[k]
    return tuple(order)
