"""Exponentials as shares of their sum."""

from __future__ import annotations

from tile_runtime.ops.reducing import reduced
from tile_runtime.ops.text import Shape, cast, function, wide
from tile_runtime.ops.values import Value, apply, dtype_of


def softmax(value: Value, axes: Shape, logarithm: bool = False) -> Value:
    """Over `axes`, which count from the front; in float32 where the dtype is narrower. `logarithm`: of the shares."""
    shape, dtype = value.shape, dtype_of(value)
    # The shift keeps the exponentials in range; any gives the same, so that no derivative flows through it.
    statements = [
        f"X = {wide('In', dtype)};",
        reduced("M", "X", shape, axes, ">"),
        "D = X - stop_gradient(M);",
        "E = exp(D);",
        reduced("S", "E", shape, axes),
        f"Y = {cast('(D - log(S))' if logarithm else '(E / S)', dtype)};",
    ]
    return apply(function(("In",), ("Y",), *statements), value)
