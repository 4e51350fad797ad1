"""Elements put where data says, into a copy of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

import numpy as np
import torch
from tile_ir.dtype import DType
from tile_runtime.ops.gather import wrapped
from tile_runtime.ops.moving import expanded, reshaped
from tile_runtime.ops.scatter import REDUCTIONS
from tile_runtime.ops.text import Shape, aligned, at, cast, contraction, expression, function, names
from tile_runtime.ops.values import Value, apply, dtype_of

from tile_torch.call import Call, Number, axis
from tile_torch.registry import operator

aten = torch.ops.aten


def put(
    value: Value, updates: Value, over: Shape, subscripts: Sequence[str], indices: Sequence[Value], how: str = "none"
) -> Value:
    """`value` with `updates` put, or combined by one of REDUCTIONS, at `subscripts`.

    They name the indexes i0, i1, … that count the cells of `over`, to which the updates broadcast, and I0, I1, … of
    `indices`, which count from 0.
    """
    aggregation, default, result = REDUCTIONS[how]
    body = at("U", aligned(updates.shape, names(len(over))))
    statement = contraction("S", value.shape, subscripts, aggregation, body, "default D")
    inputs = ("X", "U", *names(len(indices), "I"))
    return apply(function(inputs, "Y", f"D = {default};", statement, f"Y = {result};"), value, updates, *indices)


# --- along an axis ------------------------------------------------------------------------------------


@operator(aten.scatter.src, aten.scatter.value, aten.scatter_add.default)
def scatter(call: Call, input: Value, dim: int, index: Value, src: Value | Number = 0, value: Number = 0) -> Value:
    updates = src if hasattr(src, "dtype") else np.asarray(src or value, dtype_of(input).numpy)
    return _along(input, dim, index, updates, "add" if call.target is aten.scatter_add.default else "none")


@operator(aten.scatter.reduce, aten.scatter.value_reduce)
def scatter_with(call: Call, input: Value, dim: int, index: Value, src: Value | Number, reduce: str) -> Value:
    updates = src if hasattr(src, "dtype") else np.asarray(src, dtype_of(input).numpy)
    return _along(input, dim, index, updates, {"add": "add", "multiply": "mul"}[reduce])


def _along(value: Value, dim: int, index: Value, updates: Value, how: str) -> Value:
    """`value` with `updates`, whose first cells count, or one number, at places along an axis."""
    if not value.shape:
        shaped = [reshaped(v, (1,)) for v in (value, index, updates)]
        return reshaped(_along(shaped[0], 0, shaped[1], shaped[2], how), ())
    over = tuple(index.shape)
    subscripts = list(names(len(over)))
    subscripts[axis(dim, len(over))] = at("I0", subscripts)
    return put(value, updates, over, subscripts, [index], how)


_HOW = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


@operator(aten.scatter_reduce.two)
def scatter_reduce(
    call: Call, input: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool = True
) -> Value:
    def along(value: Value, updates: Value, how: str) -> Value:
        return _along(value, dim, index, updates, how)

    return _reduced(input, src, along, reduce, include_self)


@operator(aten.index_reduce.default)
def index_reduce(
    call: Call, input: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """Whole lines at places along an axis."""

    subscripts = list(names(max(len(input.shape), 1)))
    at_axis = axis(dim, len(input.shape))
    subscripts[at_axis] = f"I0[{subscripts[at_axis]}]"
    value, updates = reshaped(input, input.shape or (1,)), reshaped(source, source.shape or (1,))
    places = reshaped(index, index.shape or (1,))

    def lines(value: Value, updates: Value, how: str) -> Value:
        return put(value, updates, tuple(source.shape) or (1,), subscripts, [places], how)

    return reshaped(_reduced(value, updates, lines, reduce, include_self), call.shape)


def _reduced(value: Value, source: Value, combined: Any, reduce: str, with_own: bool) -> Value:
    """What falls on each cell reduced, together with the cell's own value or, where something falls on it, without."""
    dtype = dtype_of(value)
    base = value if with_own else np.full(tuple(value.shape), _neutral(reduce, dtype), dtype.numpy)
    found = combined(base, source, _HOW[reduce])
    if with_own and reduce != "mean":
        return found
    one = np.asarray(1, np.int32)
    count = combined(np.zeros(tuple(value.shape), np.int32), one, "add")
    if reduce == "mean":
        found = apply(expression("S, C", _mean("C + 1" if with_own else "max(C, 1)", dtype)), found, count)
    return found if with_own else apply(expression("S, C, X", "C > 0 ? S : X"), found, count, value)


def _mean(count: str, dtype: DType) -> str:
    """The sum S by `count`; of integers towards minus infinity."""
    if dtype.is_float:
        return cast(f"(S / {cast(f'({count})', dtype.accumulator)})", dtype)
    n = cast(f"({count})", dtype)
    return f"(S - mod(S, {n})) / {n}"


def _neutral(reduce: str, dtype: DType) -> float:
    """What changes nothing."""
    match reduce:
        case "amax":
            return -inf if dtype.is_float else dtype.min_value
        case "amin":
            return inf if dtype.is_float else dtype.max_value
        case _:
            return int(reduce == "prod")


# --- several indices ----------------------------------------------------------------------------------


@operator(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(
    call: Call, input: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    """As ``input[indices] = values`` or ``+=`` on a copy, by NumPy's rules for advanced indexing."""
    given = [(k, v) for k, v in enumerate(indices) if v is not None]
    how = "add" if accumulate else "none"
    if any(dtype_of(v) is DType.BOOL for _, v in given):
        return _masked(call, input, given, values, how)
    places = np.broadcast_shapes(*(tuple(v.shape) for _, v in given))
    axes = [k for k, _ in given]
    first = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    kept = [k for k in range(len(input.shape)) if k not in axes]
    ahead = first if axes[0] == first else 0
    over = (*(input.shape[k] for k in kept[:ahead]), *places, *(input.shape[k] for k in kept[ahead:]))
    index = names(len(over))
    own = index[ahead : ahead + len(places)]
    rest = iter((*index[:ahead], *index[ahead + len(places) :]))
    numbers = {k: f"I{n}" for n, k in enumerate(axes)}
    subscripts = [
        _subscript(numbers[k], dict(given)[k].shape, own) if k in numbers else next(rest)
        for k in range(len(input.shape))
    ]
    wrapped_indices = [_filled(wrapped(v, input.shape[k])) for k, v in given]
    return put(input, values, over, subscripts, wrapped_indices, how)


def _subscript(name: str, shape: Shape, index: Sequence[str]) -> str:
    return at(name, aligned(shape, index) or ("0",))


def _filled(index: Value) -> Value:
    """An index without dimensions as one with one."""
    return index if len(index.shape) else reshaped(index, (1,))


def _masked(call: Call, value: Value, given: Sequence[tuple[int, Value]], updates: Value, how: str) -> Value:
    """Where a mask is true, the same values for all of its cells."""
    (first, mask), *others = given
    if others:
        raise call.unsupported("a mask is an index beside others")
    behind = len(value.shape) - first - len(mask.shape)
    counted = len(updates.shape) > behind
    if counted and updates.shape[len(updates.shape) - behind - 1] != 1:
        updates = _listed(call, value, first, mask, updates)
    else:
        cut = len(updates.shape) - behind - counted
        ones = (1,) * len(mask.shape) if counted else ()
        kept = updates.shape[len(updates.shape) - behind :]
        updates = reshaped(updates, (*updates.shape[:cut], *ones, *kept) if counted else updates.shape)
    mask = reshaped(mask, (*mask.shape, *(1,) * behind))
    new = {"add": "X + U", "none": "U"}[how]
    return apply(expression("M, X, U", f"M ? {new} : X"), mask, value, updates)


def _listed(call: Call, value: Value, first: int, mask: Value, updates: Value) -> Value:
    """Values that a mask takes one after the other, each at the cells of `value` that it is for."""
    last = first + len(mask.shape)
    count = updates.shape[len(updates.shape) - (len(value.shape) - last) - 1]
    index = names(len(value.shape))
    taken = at("U", aligned(updates.shape, [*index[:first], at("I", index[first:last]), *index[last:]]))
    text = function("UI", "Y", contraction("Y", value.shape, index, "=", taken))

    def as_many(found: torch.Tensor) -> None:
        if int(found) != count:
            raise RuntimeError(f"shape mismatch: a mask with {int(found)} true elements, and {count} values for them")

    summed = function("M", "Y", "C = as_int(M, 64);", f"Y[] = +({at('C', index[first:last])});")
    call.check(as_many, apply(summed, mask))
    return apply(text, updates, reshaped(_numbered(mask), mask.shape))


@operator(aten.put.default)
def put_flat(call: Call, input: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    """Places count all elements in row-major order."""
    size = prod(input.shape)
    flat, places = reshaped(input, (size,)), wrapped(reshaped(index, (prod(index.shape),)), size)
    updates = reshaped(source, (prod(source.shape),))
    found = put(flat, updates, tuple(places.shape), ["I0[i0]"], [places], "add" if accumulate else "none")
    return reshaped(found, call.shape)


# --- masks --------------------------------------------------------------------------------------------


@operator(aten.masked_scatter.default)
def masked_scatter(call: Call, input: Value, mask: Value, source: Value) -> Value:
    """Where the mask is true, the elements of the source one after the other."""
    mask, input = expanded(mask, call.shape), expanded(input, call.shape)
    places = reshaped(_numbered(mask), call.shape)
    index = names(len(call.shape))
    taken = contraction("T", call.shape, index, "=", f"S[{at('I', index)}]")
    text = function("XMSI", "Y", taken, "Y = M ? T : X;")
    return apply(text, input, mask, reshaped(source, (prod(source.shape),)), places)


@operator(aten.masked_scatter_backward.default)
def masked_scatter_backward(call: Call, grad_output: Value, mask: Value, sizes: Sequence[int]) -> Value:
    """The gradient of the source: what the mask let in, one after the other."""
    size = prod(sizes)
    mask = expanded(mask, grad_output.shape)
    statements = ("Z = M ? G : 0;", contraction("Y", (size,), ("I[i0]",), "+", "F[i0]"))
    flat = f"F = reshape(Z, {prod(grad_output.shape)});"
    text = function("GMI", "Y", statements[0], flat, statements[1])
    return reshaped(apply(text, grad_output, mask, _numbered(mask)), tuple(sizes))


def _numbered(mask: Value) -> Value:
    """For each cell, in one row, the number of true ones before it; the last one's where there is none after."""
    size = prod(mask.shape)
    count = f"reshape(as_int(M, 64), {size})"
    return apply(function("M", "Y", f"C = {count};", "Y = max(cumsum(C, 0) - 1, 0);"), mask)
