"""Distances between rows, by a norm, and their gradients."""

from __future__ import annotations

from math import inf

import numpy as np
import torch
from tile_runtime.ops.gather import chosen
from tile_runtime.ops.moving import reshaped
from tile_runtime.ops.reducing import reduced
from tile_runtime.ops.text import Shape, cast, function, literal
from tile_runtime.ops.values import Array, Value, apply, dtype_of

from tile_torch.call import Call
from tile_torch.registry import operator

aten = torch.ops.aten

NORMS = {
    0.0: ("as_float(D != 0, {bits})", "+", "R"),
    1.0: ("abs(D)", "+", "R"),
    2.0: ("D * D", "+", "sqrt(R)"),
    inf: ("abs(D)", ">", "R"),
}
"""What is aggregated of differences D, how, and what the distance is of that."""


def distance(left: Value, right: Value, p: float) -> Value:
    """``|left - right|`` over the last axis; other axes broadcast."""
    dtype = dtype_of(left)
    power = literal(p)
    before, aggregation, after = NORMS.get(p, (f"pow(abs(D), {power})", "+", f"pow(R, {literal(1 / p if p else 0.0)})"))
    shape = np.broadcast_shapes(left.shape, right.shape)
    statements = (
        f"D = {cast('A', dtype.accumulator)} - {cast('B', dtype.accumulator)};",
        f"T = {before.format(bits=dtype.accumulator.bits)};",
        reduced("R", "T", shape, (len(shape) - 1,), aggregation, keep=False),
        f"Y = {cast(f'({after})', dtype)};",
    )
    return apply(function("AB", "Y", *statements), left, right)


def slope(left: Value, right: Value, p: float, length: Value, grad: Value) -> Value:
    """What `grad` of the distances makes of each element of ``left - right``; `length` and `grad` have a last axis of 1."""
    amount = {
        0.0: "0 * D",
        1.0: "sign(D)",
        2.0: "L == 0 ? 0 : D / L",
        inf: "sign(D) * (abs(D) == L ? 1 : 0)",
    }.get(p, f"(L == 0) | (D == 0) ? 0 : sign(D) * pow(abs(D) / L, {literal(p - 1)})")
    dtype = dtype_of(left)
    wide = [f"{name} = {cast('In' + name, dtype.accumulator)};" for name in "ABLG"]
    text = function(
        [f"In{n}" for n in "ABLG"], "Y", *wide, "D = A - B;", f"S = {amount};", f"Y = {cast('(S * G)', dtype)};"
    )
    return apply(text, left, right, length, grad)


@operator(aten._cdist_forward.default)
def cdist(call: Call, x1: Value, x2: Value, p: float, compute_mode: int | None) -> Value:
    """Every row of one beside every row of the other, of matrices whose further axes broadcast."""
    return distance(*_crossed(x1, x2), float(p))


def _crossed(x1: Value, x2: Value) -> tuple[Value, Value]:
    left = reshaped(x1, (*x1.shape[:-1], 1, x1.shape[-1]))
    return left, reshaped(x2, (*x2.shape[:-2], 1, *x2.shape[-2:]))


@operator(aten._cdist_backward.default)
def cdist_backward(call: Call, grad: Value, x1: Value, x2: Value, p: float, cdist: Value) -> Value:
    """The gradient of the first operand."""
    left, right = _crossed(x1, x2)
    column = [reshaped(v, (*v.shape, 1)) for v in (cdist, grad)]
    found = slope(left, right, float(p), column[0], column[1])
    return summed(found, (*call.shape[:-1], 1, call.shape[-1]), call.shape)


def summed(value: Value, shape: Shape, merged: Shape) -> Value:
    """`value` added up over what broadcasting to it from `shape` repeats, as `merged`."""
    if 0 in value.shape:
        return np.zeros(merged, dtype_of(value).numpy)
    aligned = (1,) * (len(value.shape) - len(shape)) + tuple(shape)
    axes = tuple(k for k, (n, own) in enumerate(zip(value.shape, aligned, strict=True)) if own != n)
    return reshaped(apply(function("X", "Y", reduced("Y", "X", tuple(value.shape), axes)), value), merged)


@operator(aten._pdist_forward.default)
def pdist(call: Call, input: Value, p: float = 2) -> Value:
    """Every row beside those after it."""
    first, second = _pairs(input.shape[0])
    return distance(chosen(input, first, 0), chosen(input, second, 0), float(p))


@operator(aten._pdist_backward.default)
def pdist_backward(call: Call, grad: Value, input: Value, p: float, pdist: Value) -> Value:
    first, second = _pairs(input.shape[0])
    column = [reshaped(v, (*v.shape, 1)) for v in (pdist, grad)]
    found = slope(chosen(input, first, 0), chosen(input, second, 0), float(p), column[0], column[1])
    sizes = ", ".join(map(str, input.shape))
    text = function(
        "SIJ", "Y",
        f"P[I[k], c : {sizes}] = +(S[k, c]);",
        f"N[J[k], c : {sizes}] = +(S[k, c]);",
        "Y = P - N;",
    )  # fmt: skip
    return apply(text, found, first, second)


def _pairs(count: int) -> tuple[Array, Array]:
    first, second = np.triu_indices(count, 1)
    return first.astype(np.int32), second.astype(np.int32)
