"""Gradients of pools."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import torch
from tile_runtime.ops.moving import reshaped
from tile_runtime.ops.pooling import counted
from tile_runtime.ops.text import Shape, at, contraction, function, listed, names
from tile_runtime.ops.values import Array, Value, apply, dtype_of
from tile_runtime.ops.windows import Window

from tile_torch.call import Call
from tile_torch.ops.convolution import spread
from tile_torch.ops.pooling import adaptive_shares
from tile_torch.registry import operator

aten = torch.ops.aten


@operator(
    aten.max_pool2d_with_indices_backward.default,
    aten.max_pool3d_with_indices_backward.default,
    aten.adaptive_max_pool2d_backward.default,
    aten.adaptive_max_pool3d_backward.default,
)
def max_pool_backward(call: Call, grad_output: Value, input: Value, *rest: object, indices: Value = None) -> Value:
    """The gradient of each window, at the cell that its index counts in the image's plane."""
    places = rest[-1] if indices is None else indices
    spatial = {aten.max_pool3d_with_indices_backward.default: 3, aten.adaptive_max_pool3d_backward.default: 3}
    kept = len(call.shape) - spatial.get(call.target, 2)
    index = names(len(call.shape))
    sizes = (*call.shape[:kept], prod(call.shape[kept:]))
    total = contraction("P", sizes, (*index[:kept], at("I", index)), "+", at("G", index))
    return apply(function("GI", "Y", total, f"Y = reshape({listed(('P', *call.shape))});"), grad_output, places)


@operator(aten.avg_pool2d_backward.default, aten.avg_pool3d_backward.default)
def avg_pool_backward(
    call: Call,
    grad_output: Value,
    input: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    """Each window's gradient, divided by how many cells it averaged, at all of its cells."""
    rank = 2 if call.target is aten.avg_pool2d_backward.default else 3
    shape = (prod(call.shape[:-rank]), 1, *call.shape[-rank:])
    kernel, before = spread(kernel_size, rank), spread(padding, rank)
    sizes = tuple(grad_output.shape[-rank:])
    window = Window(kernel, spread(stride or kernel, rank), (1,) * rank, before, before, sizes)
    counts = counted(window, shape[2:], count_include_pad) if divisor_override is None else np.asarray(divisor_override)
    over = contraction(
        "Y", shape, ("n", "c", *window.subscripts()), "+", at("D", ("n", "c", *window.places)), *window.constraints()
    )
    grad = reshaped(grad_output, (*shape[:2], *sizes))
    made = apply(function("GC", "Y", "D = G / C;", over), grad, counts.astype(dtype_of(grad).numpy))
    return reshaped(made, call.shape)


@operator(aten._adaptive_avg_pool2d_backward.default, aten._adaptive_avg_pool3d_backward.default)
def adaptive_avg_pool_backward(call: Call, grad_output: Value, input: Value) -> Value:
    """As above, axis by axis, for windows whose sizes differ."""
    rank = 2 if call.target is aten._adaptive_avg_pool2d_backward.default else 3
    first = len(call.shape) - rank
    for axis in range(first, len(call.shape)):
        parts = adaptive_shares(call.shape[axis], grad_output.shape[axis])
        grad_output = along(grad_output, axis, parts.T)
    return grad_output


def along(value: Value, axis: int, matrix: Array) -> Value:
    """`value` with an axis multiplied by a matrix, [new, old]."""
    shape: Shape = tuple(value.shape)
    if shape[axis] == 1:
        return apply("function (X, M) -> (Y) { Y = X * M; }", value, _column(matrix, value, len(shape) - axis - 1))
    index = names(len(shape))
    sizes = (*shape[:axis], len(matrix), *shape[axis + 1 :])
    body = f"{at('X', index)} * M[o, {index[axis]}]"
    text = contraction("Y", sizes, (*index[:axis], "o", *index[axis + 1 :]), "+", body)
    return apply(function("XM", "Y", text), value, matrix.astype(dtype_of(value).numpy))


def _column(matrix: Array, value: Value, after: int) -> Array:
    return matrix.reshape(-1, *(1,) * after).astype(dtype_of(value).numpy)
