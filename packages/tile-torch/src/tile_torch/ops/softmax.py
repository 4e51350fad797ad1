"""Exponentials as shares of their sum, and the gradients of that."""

from __future__ import annotations

from typing import Any

import torch
from tile_runtime.ops.reducing import reduced
from tile_runtime.ops.softmax import softmax as shares
from tile_runtime.ops.text import cast, function, wide
from tile_runtime.ops.values import Value, apply, dtype_of

from tile_torch.call import Call, axis
from tile_torch.registry import operator

aten = torch.ops.aten


@operator(aten._softmax.default, aten._log_softmax.default)
def softmax(call: Call, x: Value, dim: int, half_to_float: bool) -> Value:
    return _along(call, x, dim, call.target is aten._log_softmax.default)


@operator(aten._safe_softmax.default)
def safe_softmax(call: Call, x: Value, dim: int, dtype: Any = None) -> Value:
    """Zeros where all elements are -inf."""
    wider = call.elementwise("{0}", x) if dtype_of(x) is not call.dtype else x
    if not x.shape:
        return _along(call, wider, dim, False)
    shape, over = tuple(x.shape), (axis(dim, len(x.shape)),)
    found = apply(function("X", "M", reduced("M", "X", shape, over, ">")), wider)
    return apply("function (S, M) -> (Y) { Y = M == -inf ? 0 : S; }", shares(wider, over), found)


def _along(call: Call, x: Value, dim: int, logarithm: bool) -> Value:
    wider = call.elementwise("{0}", x) if dtype_of(x) is not call.dtype else x
    if not x.shape:
        return call.elementwise("{0} - {0}" if logarithm else "{0} - {0} + 1", wider)
    return shares(wider, (axis(dim, len(x.shape)),), logarithm)


@operator(aten._softmax_backward_data.default)
def softmax_backward(call: Call, grad: Value, output: Value, dim: int, input_dtype: Any) -> Value:
    return _backward(call, grad, output, dim, "G * S", "S * (G - R)")


@operator(aten._log_softmax_backward_data.default)
def log_softmax_backward(call: Call, grad: Value, output: Value, dim: int, input_dtype: Any) -> Value:
    return _backward(call, grad, output, dim, "G", "G - exp(S) * R")


def _backward(call: Call, grad: Value, output: Value, dim: int, before: str, after: str) -> Value:
    if not grad.shape:
        return call.elementwise("{0} - {0}", grad)
    lines = [
        f"G = {wide('InG', dtype_of(grad))};",
        f"S = {wide('InS', dtype_of(output))};",
        f"B = {before};",
        reduced("R", "B", tuple(grad.shape), (axis(dim, len(grad.shape)),)),
        f"Y = {cast(f'({after})', call.dtype)};",
    ]
    return apply(function(("InG", "InS"), ("Y",), *lines), grad, output)
