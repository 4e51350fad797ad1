"""Tensors made of nothing: constants, and those that are too large to be constants."""

from __future__ import annotations

import numpy as np
import torch
from tile_runtime.ops.moving import expanded
from tile_runtime.ops.text import function
from tile_runtime.ops.values import Value, apply

from tile_torch.call import Call, Number
from tile_torch.registry import operator

aten = torch.ops.aten


@operator(aten.full.default, aten.full_like.default, aten.fill.Scalar, aten.new_full.default)
def full(call: Call, like: object, *values: Number, **how: object) -> Value:
    """One number everywhere."""
    value = values[-1]
    return filled(call, value)


def filled(call: Call, value: Number) -> Value:
    """The result's shape, with one number in it."""
    one = apply(function("X", "Y", "Y = X;"), np.asarray(value).astype(call.dtype.numpy))
    return expanded(one, call.shape)


@operator(aten.fill.Tensor)
def fill(call: Call, like: Value, value: Value) -> Value:
    return expanded(call.elementwise("{0}", value), call.shape)


@operator(aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default, aten.empty.memory_format,
          aten.empty_like.default, aten.empty_strided.default, aten.new_empty.default, aten.new_empty_strided.default,
          aten.empty_permuted.default)  # fmt: skip
def zeros(call: Call, *shape: object, **how: object) -> Value:
    """Zeros; also where PyTorch leaves the elements open."""
    return filled(call, 0)


@operator(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def ones(call: Call, *shape: object, **how: object) -> Value:
    return filled(call, 1)


@operator(aten.arange.start_step)
def arange(call: Call, start: Number, end: Number, step: Number = 1, **how: object) -> Value:
    """A row of numbers too long to be a constant."""
    dtype = call.dtype
    counts = np.arange(call.shape[0])
    return (start + counts * step).astype(dtype.numpy)


@operator(aten.scalar_tensor.default)
def scalar_tensor(call: Call, value: Number, **how: object) -> Value:
    return np.asarray(value).astype(call.dtype.numpy)
