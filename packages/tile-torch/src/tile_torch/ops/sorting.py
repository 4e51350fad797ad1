"""Order: sorting, the largest, the one in the middle, and where numbers belong in an order."""

from __future__ import annotations

from math import prod

import numpy as np
import torch
from tile_ir.dtype import DType
from tile_runtime.ops.gather import taken_along
from tile_runtime.ops.moving import reshaped, sliced
from tile_runtime.ops.text import at, cast, contraction, function, names
from tile_runtime.ops.values import Value, apply, dtype_of

from tile_torch.call import Call, axis
from tile_torch.registry import operator

aten = torch.ops.aten

Ordered = tuple[Value, Value]


def ordered(value: Value, dim: int, descending: bool = False) -> Ordered:
    """The elements in order along an axis, and where they were (int64); equal ones in their order, NaN counts as largest."""
    number = cast("X", DType.UINT8) if dtype_of(value) is DType.BOOL else "X"
    text = function("X", "I", f"K = {number};", f"I = as_int(argsort(K, {dim}, {int(descending)}), 64);")
    places = apply(text, value)
    return taken_along(value, places, dim), places


@operator(aten.sort.default, aten.sort.stable)
def sort(call: Call, input: Value, dim: int = -1, descending: bool = False, *, stable: bool | None = None) -> Ordered:
    value = reshaped(input, call.shape or (1,))
    found = ordered(value, axis(dim, len(call.shape)), descending)
    return reshaped(found[0], call.shape), reshaped(found[1], call.shape)


@operator(aten.topk.default)
def topk(call: Call, input: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Ordered:
    value = reshaped(input, input.shape or (1,))
    dim = axis(dim, len(input.shape))
    found = _largest(value, k, dim) if largest else _first(ordered(value, dim), k, dim)
    return reshaped(found[0], call.shape), reshaped(found[1], call.shape)


def _largest(value: Value, k: int, dim: int) -> Ordered:
    statements = (f"T = top_k(X, {k}, {dim});", "Y = element(T, 0);", "I = as_int(element(T, 1), 64);")
    return apply(function("X", "YI", *statements), value)


def _first(found: Ordered, count: int, dim: int) -> Ordered:
    slices = [slice(count) if k == dim else slice(None) for k in range(len(found[0].shape))]
    return sliced(found[0], slices), sliced(found[1], slices)


# --- one of an order ----------------------------------------------------------------------------------


@operator(aten.kthvalue.default)
def kthvalue(call: Call, input: Value, k: int, dim: int = -1, keepdim: bool = False) -> Ordered:
    return _picked(call, input, dim, str(k - 1))


@operator(aten.median.dim)
def median(call: Call, input: Value, dim: int = -1, keepdim: bool = False) -> Ordered:
    """The lower one of the two in the middle; NaN where there is one."""
    n = input.shape[axis(dim, len(input.shape))] if input.shape else 1
    return _picked(call, input, dim, f"N > 0 ? {n} - N : {(n - 1) // 2}")


@operator(aten.nanmedian.dim)
def nanmedian(call: Call, input: Value, dim: int = -1, keepdim: bool = False) -> Ordered:
    """The lower one of the two in the middle of what is a number."""
    n = input.shape[axis(dim, len(input.shape))] if input.shape else 1
    return _picked(call, input, dim, f"max({n - 1} - N, 0) / 2")


@operator(aten.median.default, aten.nanmedian.default)
def median_of_all(call: Call, input: Value) -> Value:
    which = median if call.target is aten.median.default else nanmedian
    return which(call, reshaped(input, (prod(input.shape),)), 0)[0]


def _picked(call: Call, value: Value, dim: int, place: str) -> Ordered:
    """Of each line in order the element at `place`, in which N counts its NaNs, and where it was."""
    value = reshaped(value, value.shape or (1,))
    dim = axis(dim, len(value.shape))
    values, places = ordered(value, dim)
    index = names(len(value.shape))
    over = [1 if k == dim else n for k, n in enumerate(value.shape)]
    line = ["0" if k == dim else i for k, i in enumerate(index)]
    taken = ["P[" + ", ".join(line) + "]" if k == dim else i for k, i in enumerate(line)]
    text = function(
        "XVI",
        "YZ",
        "H = as_int(isnan(X), 32);",
        contraction("N", over, line, "+", at("H", index)),
        f"P = {cast(f'({place} + 0 * N)', DType.INT32)};",
        contraction("Y", over, line, "=", at("V", taken)),
        contraction("Z", over, line, "=", at("I", taken)),
    )
    found = apply(text, value, values, places)
    return reshaped(found[0], call.shape), reshaped(found[1], call.shape)


# --- places in an order -------------------------------------------------------------------------------


@operator(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def searchsorted(
    call: Call,
    sorted_sequence: Value,
    values: Value,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value = None,
) -> Value:
    """How many elements of a line are smaller than each value, or not larger."""
    if sorter is not None:
        sorted_sequence = taken_along(sorted_sequence, sorter, len(sorted_sequence.shape) - 1)
    if not hasattr(values, "dtype"):
        values = np.asarray(values, dtype_of(sorted_sequence).numpy)
    return _places(call, sorted_sequence, values, right or side == "right")


@operator(aten.bucketize.Tensor, aten.bucketize.Scalar)
def bucketize(call: Call, values: Value, boundaries: Value, *, out_int32: bool = False, right: bool = False) -> Value:
    if not hasattr(values, "dtype"):
        values = np.asarray(values, dtype_of(boundaries).numpy)
    return _places(call, boundaries, values, right)


def _places(call: Call, lines: Value, values: Value, right: bool) -> Value:
    """Counts by comparing with every element of the line: NaN belongs behind all numbers."""
    dtype = call.promoted(lines, values)
    own, rank = tuple(values.shape), len(values.shape)
    spread = reshaped(lines, (*lines.shape[:-1], *(1,) * (rank - len(lines.shape) + 1), lines.shape[-1]))
    column = reshaped(values, (*own, 1))
    behind = f"{cast('S', dtype)} {'>' if right else '>='} {cast('V', dtype)}"
    index = names(rank + 1)
    text = function(
        "SV", "Y", f"H = ~({behind});", "B = as_int(H, 64);",
        contraction("N", own, index[:-1], "+", at("B", index)), f"Y = {cast('N', call.dtype)};",
    )  # fmt: skip
    return apply(text, spread, column)
