"""Running sums, products and extremes along an axis."""

from __future__ import annotations

import torch
from tile_runtime.ops.moving import reshaped
from tile_runtime.ops.text import cast, function
from tile_runtime.ops.values import Value, apply

from tile_torch.call import Call, axis
from tile_torch.registry import operator

aten = torch.ops.aten


@operator(aten.cumsum.default, aten.cumprod.default)
def cumulate(call: Call, input: Value, dim: int, *, dtype: torch.dtype | None = None) -> Value:
    """In the dtype of the result, halves in float32."""
    name = {aten.cumsum.default: "cumsum", aten.cumprod.default: "cumprod"}[call.target]
    value = reshaped(input, call.shape or (1,))
    computed = cast("X", call.dtype.accumulator)
    running = f"R = {name}({computed}, {axis(dim, len(call.shape))});"
    return reshaped(apply(function("X", "Y", running, f"Y = {cast('R', call.dtype)};"), value), call.shape)


@operator(aten.cummax.default, aten.cummin.default)
def extremes(call: Call, input: Value, dim: int) -> tuple[Value, Value]:
    """The extreme so far, and where its last one is; a NaN stays."""
    name = "cummax" if call.target is aten.cummax.default else "cummin"
    value, dim = reshaped(input, call.shape or (1,)), axis(dim, len(call.shape))
    statements = (
        f"R = {name}(X, {dim});",
        "H = (X == R) | isnan(X);",
        f"P = H ? index(X, {dim}) : 0;",
        f"I = as_int(cummax(P, {dim}), 64);",
    )
    found = apply(function("X", "RI", *statements), value)
    return reshaped(found[0], call.shape), reshaped(found[1], call.shape)
