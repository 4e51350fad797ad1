"""Bags of embeddings: rows of a table summed, averaged, or the largest of them, and the gradients."""

from __future__ import annotations

import numpy as np
import torch
from tile_runtime.ops.moving import reshaped
from tile_runtime.ops.text import cast, contraction, function, literal, wide
from tile_runtime.ops.values import Value, apply, dtype_of

from tile_torch.call import Call
from tile_torch.registry import operator

aten = torch.ops.aten

SUM, MEAN, MAX = 0, 1, 2


def bags(count: int, offsets: Value) -> Value:
    """[count]: the bag (int32) of each index, where `offsets` says with which one bags begin."""
    starts = int(offsets.shape[0])
    text = function(
        "KO", "Y", f"L = as_int(reshape(O, {starts}, 1) <= K, 32);",
        contraction("N", (count,), ("k",), "+", "L[b, k]"), "Y = N - 1;",
    )  # fmt: skip
    return apply(text, np.arange(count, dtype=np.int64), offsets)


def counted(indices: Value, padding_idx: int) -> Value:
    """[count]: whether each index counts: those of the padding do not."""
    return apply(f"function (I) -> (Y) {{ Y = I != {literal(padding_idx)}; }}", indices)


@operator(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def embedding_bag(
    call: Call,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Value = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Value, ...]:
    """[bags, width]; the bag of each index; the size of each bag; and for each element of a largest row the number of the first."""
    count, (number, width) = int(indices.shape[0]), call.shape
    bag, there = bags(count, offsets), counted(indices, padding_idx)
    dtype = dtype_of(weight)
    each = per_sample_weights is not None
    given = [weight, indices, bag, there, *(() if per_sample_weights is None else (per_sample_weights,))]
    statements = [
        f"A = {wide('W', dtype)};",
        *([f"S = {wide('P', dtype)};"] if each else []),
        contraction("E", (count, width), ("k", "d"), "=", "A[I[k], d]"),
        f"F = reshape(M, {count}, 1) ? E{f' * reshape(S, {count}, 1)' if each else ''} : {_nothing(mode)};",
        contraction("R", (number, width), ("B[k]", "d"), ">" if mode == MAX else "+", "F[k, d]"),
        "C = as_int(M, 64);",
        contraction("N", (number,), ("B[k]",), "+", "C[k]"),
        f"Y = {cast(_result(mode, number), dtype)};",
        contraction("T", (count, width), ("k", "d"), "=", "R[B[k], d]"),
        f"H = (E == T) & reshape(M, {count}, 1) ? {count} - index(E, 0) : 0;",
        contraction("L", (number, width), ("B[k]", "d"), ">", "H[k, d]"),
        f"Q = {count} - L;",
        contraction("J", (number, width), ("b", "d"), "=", "I[Q[b, d]]"),
        "Z = L > 0 ? as_int(J, 64) : 0;",
    ]
    found = apply(function(["W", "I", "B", "M", *("P" if each else "")], "YNZ", *statements), *given)
    wide_bags = apply("function (B) -> (Y) { Y = as_int(B, 64); }", bag)
    return found[0], *(_fitted(v, call.types[k + 1]) for k, v in enumerate((wide_bags, found[1], found[2])))


def _nothing(mode: int) -> str:
    return "-inf" if mode == MAX else "0"


def _result(mode: int, number: int) -> str:
    """Of the sums or largest R and the sizes N; bags without elements are zeros."""
    size = f"reshape(N, {number}, 1)"
    return {SUM: "R", MEAN: f"(R / max({size}, 1))", MAX: f"({size} > 0 ? R : 0)"}[mode]


def _fitted(value: Value, wanted: tuple[tuple[int, ...], object] | None) -> Value:
    """`value`, or zeros where PyTorch has another shape and does not say what is in it."""
    if wanted is None or tuple(value.shape) == wanted[0]:
        return value
    return np.zeros(wanted[0], np.int64)


@operator(aten._embedding_bag_backward.default)
def embedding_bag_backward(
    call: Call,
    grad: Value,
    indices: Value,
    offsets: Value,
    offset2bag: Value,
    bag_size: Value,
    maximum_indices: Value,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Value,
    padding_idx: int = -1,
) -> Value:
    """The gradient of the table."""
    if scale_grad_by_freq or sparse:
        option = "sparse" if sparse else "scale_grad_by_freq"
        raise call.unsupported(f"{option}=True", "leave the option out")
    width, count = int(grad.shape[1]), int(indices.shape[0])
    if mode == MAX:
        filled = f"F = reshape(N, {int(grad.shape[0])}, 1) > 0 ? G : 0;"
        text = contraction("Y", (num_weights, width), ("Z[b, d]", "d"), "+", "F[b, d]")
        return apply(function("GZN", "Y", filled, text), grad, maximum_indices, bag_size)
    weighted = per_sample_weights is not None
    each = f"X * reshape(P, {count}, 1)" if weighted else "X"
    statements = [
        contraction("X", (count, width), ("k", "d"), "=", "G[B[k], d]"),
        f"F = reshape(M, {count}, 1) ? {each} : 0;",
        contraction("Y", (num_weights, width), ("I[k]", "d"), "+", "F[k, d]"),
    ]
    given = [_share(mode, grad, bag_size), indices, bags(count, offsets), counted(indices, padding_idx)]
    text = function(["G", "I", "B", "M", *("P" if weighted else "")], "Y", *statements)
    return apply(text, *given, *((per_sample_weights,) if weighted else ()))


def _share(mode: int, grad: Value, sizes: Value) -> Value:
    """The gradient of each row of a bag."""
    if mode != MEAN:
        return grad
    divided = cast(f"(G / max(reshape(N, {int(grad.shape[0])}, 1), 1))", dtype_of(grad))
    return apply(function("GN", "Y", f"Y = {divided};"), grad, sizes)


@operator(aten._embedding_bag_per_sample_weights_backward.default)
def per_sample_weights_backward(
    call: Call, grad: Value, weight: Value, indices: Value, offsets: Value, offset2bag: Value, mode: int,
    padding_idx: int = -1,
) -> Value:  # fmt: skip
    """The gradient of what each row is multiplied by."""
    count, width = int(indices.shape[0]), int(grad.shape[1])
    statements = [
        contraction("E", (count, width), ("k", "d"), "=", "W[I[k], d]"),
        contraction("X", (count, width), ("k", "d"), "=", "G[B[k], d]"),
        "Q = E * X;",
        contraction("T", (count,), ("k",), "+", "Q[k, d]"),
        "Y = M ? T : 0;",
    ]
    given = [grad, weight, indices, bags(count, offsets), counted(indices, padding_idx)]
    return reshaped(apply(function("GWIBM", "Y", *statements), *given), call.shape)
