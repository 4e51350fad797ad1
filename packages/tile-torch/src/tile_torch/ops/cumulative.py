"""Running sums, products and extremes along an axis."""

from __future__ import annotations

from math import inf

import numpy as np
import torch
from tile_runtime.ops.moving import padded, reshaped
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


@operator(aten.logcumsumexp.default)
def log_cumulate(call: Call, input: Value, dim: int) -> Value:
    """By doubling: each round adds up twice as many terms, relative to the larger one of two partial sums."""
    value, dim = reshaped(input, call.shape or (1,)), axis(dim, len(call.shape))
    size, rank, dtype = value.shape[dim], len(value.shape), call.dtype.accumulator
    value = apply(function("V", "X", f"X = {cast('V', dtype)};"), value)
    high, low = "max(X, Z)", "min(X, Z)"
    added = f"Y = ({low} == -inf) | ({high} == inf) ? {high} : {high} + log1p(exp({low} - {high}));"
    for shift in (2**k for k in range((size - 1).bit_length())):
        start, end = ([shift * sign * (k == dim) for k in range(rank)] for sign in (1, -1))
        earlier = padded(value, start, end, fill=np.asarray(-inf, dtype.numpy))
        value = apply(function("XZ", "Y", added), value, earlier)
    return reshaped(call.elementwise("{0}", value), call.shape)
