"""How many numbers fall into each of several ranges."""

from __future__ import annotations

from math import prod

import torch
from tile_runtime.ops.moving import reshaped
from tile_runtime.ops.text import cast, contraction, function
from tile_runtime.ops.values import Value, apply

from tile_torch.call import Call, Number, written
from tile_torch.registry import operator

aten = torch.ops.aten


@operator(aten.histc.default)
def histc(call: Call, input: Value, bins: int = 100, min: Number = 0, max: Number = 0) -> Value:
    """Equal ranges from `min` to `max`, which belongs to the last; from the smallest to the largest where these are equal."""
    count = prod(input.shape)
    if min == max:
        ends = ("D[] = <(X[i]);", "U[] = >(X[i]);", "L = D < U ? D : D - 1;", "H = D < U ? U : U + 1;")
    else:
        low, high = (written(v, call.dtype.accumulator) for v in (min, max))
        ends = (f"L = X * 0 + {low};", f"H = X * 0 + {high};")
    statements = (
        *ends,
        "B = (X >= L) & (X <= H);",
        f"K = as_int((X - L) * {bins} / (H - L), 32);",
        f"P = B ? (K < {bins} ? K : {bins - 1}) : 0;",
        f"W = {cast('B', call.dtype.accumulator)};",
        contraction("S", (bins,), ("P[i]",), "+", "W[i]"),
        f"Y = {cast('S', call.dtype)};",
    )
    flat = apply(function("V", "X", f"X = {cast('V', call.dtype.accumulator)};"), reshaped(input, (count,)))
    return apply(function("X", "Y", *statements), flat)
