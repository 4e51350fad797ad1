"""Reductions over axes: sums, means, deviations, the largest and smallest, and where those stand."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan, prod

import numpy as np
import torch
from tile_ir.dtype import DType
from tile_runtime.ops.reducing import reduced
from tile_runtime.ops.text import Shape, cast, function, literal, reshaped, wide
from tile_runtime.ops.values import Value, apply, dtype_of

from tile_torch.call import Call, Number, axes, axis
from tile_torch.registry import operator

aten = torch.ops.aten


def reduction(
    call: Call,
    x: Value,
    over: Shape,
    before: str,
    aggregation: str,
    after: str,
    empty: float,
    dtype: DType | None = None,
) -> Value:
    """``after`` (of R) of the aggregation of ``before`` (of X), computed in `dtype`, or in that of the result.

    `empty` is what nothing reduces to.
    """
    shape, computed = tuple(x.shape), (dtype or call.dtype).accumulator
    if not prod(shape):
        return _everywhere(empty, call.shape, call.dtype)
    if not shape:
        shape, over = (1,), ((0,) if over else ())
    lines = [
        f"X = {reshaped(_as(x, computed), shape)};",
        f"B = {before};",
        reduced("R", "B", shape, over, aggregation),
        f"Y = {reshaped(cast(f'({after})', call.dtype), call.shape)};",
    ]
    return apply(function(("In",), ("Y",), *lines), x)


def _as(x: Value, dtype: DType) -> str:
    return "In" if dtype_of(x) is dtype else cast("In", dtype)


def _everywhere(value: float, shape: Shape, dtype: DType) -> Value:
    with np.errstate(invalid="ignore"):
        return np.full(shape, value).astype(dtype.numpy)


@operator(aten.sum.dim_IntList, aten.sum.default)
def sum_(call: Call, x: Value, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: object = None) -> Value:
    return reduction(call, x, axes(dim, len(x.shape)), "X", "+", "R", 0)


@operator(aten.mean.dim, aten.mean.default)
def mean(call: Call, x: Value, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: object = None) -> Value:
    over = axes(dim, len(x.shape))
    return reduction(call, x, over, "X", "+", f"R / {count(x.shape, over)}", nan)


def count(shape: Sequence[int], over: Shape) -> int:
    """How many elements make one of the result."""
    return prod(shape[k] for k in over)


@operator(aten.prod.default)
def prod_all(call: Call, x: Value, dtype: object = None) -> Value:
    return reduction(call, x, axes(None, len(x.shape)), "X", "*", "R", 1)


@operator(aten.prod.dim_int)
def prod_dim(call: Call, x: Value, dim: int, keepdim: bool = False, dtype: object = None) -> Value:
    return reduction(call, x, axes(dim, len(x.shape)), "X", "*", "R", 1)


@operator(aten.amax.default)
def amax(call: Call, x: Value, dim: Sequence[int] = (), keepdim: bool = False) -> Value:
    return extreme(call, x, axes(dim, len(x.shape)), ">")


@operator(aten.amin.default)
def amin(call: Call, x: Value, dim: Sequence[int] = (), keepdim: bool = False) -> Value:
    return extreme(call, x, axes(dim, len(x.shape)), "<")


@operator(aten.max.default)
def max_all(call: Call, x: Value) -> Value:
    return extreme(call, x, axes(None, len(x.shape)), ">")


@operator(aten.min.default)
def min_all(call: Call, x: Value) -> Value:
    return extreme(call, x, axes(None, len(x.shape)), "<")


def extreme(call: Call, x: Value, over: Shape, aggregation: str) -> Value:
    """The largest (``>``) or smallest."""
    dtype = DType.UINT8 if call.dtype is DType.BOOL else call.dtype
    return reduction(call, x, over, "X", aggregation, "R", 0, dtype)


@operator(aten.any.default, aten.any.dim, aten.any.dims)
def any_(call: Call, x: Value, dim: Sequence[int] | int | None = None, keepdim: bool = False) -> Value:
    return _truth(call, x, axes(dim, len(x.shape)), ">", 0)


@operator(aten.all.default, aten.all.dim, aten.all.dims)
def all_(call: Call, x: Value, dim: Sequence[int] | int | None = None, keepdim: bool = False) -> Value:
    return _truth(call, x, axes(dim, len(x.shape)), "<", 1)


def _truth(call: Call, x: Value, over: Shape, aggregation: str, empty: int) -> Value:
    test = "X" if dtype_of(x) is DType.BOOL else "(X != 0)"
    return reduction(call, x, over, cast(test, DType.UINT8), aggregation, "R", empty, dtype_of(x))


@operator(aten.argmax.default, aten.argmin.default)
def arg_extreme(call: Call, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """Where the first largest or smallest stands, in all elements where no axis is named; NaN counts as both."""
    shape = (prod(x.shape),) if dim is None else (tuple(x.shape) or (1,))
    along = 0 if dim is None else axis(dim, len(shape))
    found = place(call.name, x, shape, along)
    return apply(function("P", "Y", f"Y = {reshaped(cast('P', DType.INT64), call.shape)};"), found)


def place(name: str, x: Value, shape: Shape, along: int) -> Value:
    """``argmax`` or ``argmin`` along an axis, which goes; int32."""
    value = cast("X", DType.UINT8) if dtype_of(x) is DType.BOOL else "X"
    return apply(function("X", "Y", f"V = {reshaped(value, shape)};", f"Y = {name}(V, {along});"), x)


@operator(aten.max.dim, aten.min.dim)
def extreme_with_place(call: Call, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The largest or smallest along an axis, and where the first of them stands."""
    name = call.name
    shape = tuple(x.shape) or (1,)
    found = place(f"arg{name}", x, shape, axis(dim, len(shape)))
    places = apply(function("P", "Y", f"Y = {reshaped(cast('P', DType.INT64), call.type(1)[0])};"), found)
    return extreme(call, x, axes(dim, len(x.shape)), {"max": ">", "min": "<"}[name]), places


@operator(aten.var.correction, aten.var.dim, aten.var_mean.correction, aten.var_mean.dim)
def var(
    call: Call,
    x: Value,
    dim: Sequence[int] | None = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: Number | None = None,
) -> Value:
    """What the elements are off their mean, squared, and the mean itself beside it."""
    less = int(unbiased) if correction is None else correction
    shape, dtype = tuple(x.shape) or (1,), call.dtype
    over = axes(dim, len(x.shape)) if x.shape else (0,)
    if not prod(shape):
        return _everywhere(nan, call.shape, dtype)
    number = count(shape, over)
    rest = number - less
    divisor = literal(float(rest)) if rest > 0 else "0.0"
    lines = [
        f"X = {reshaped(wide('In', dtype), shape)};",
        reduced("T", "X", shape, over),
        f"M = T / {number};",
        "D = X - M;",
        "Q = D * D;",
        reduced("U", "Q", shape, over),
        f"Y = {reshaped(cast(f'(U / {divisor})', dtype), call.shape)};",
        f"Z = {reshaped(cast('M', dtype), call.shape)};",
    ]
    results = ("Y", "Z") if len(call.types) > 1 else ("Y",)
    return apply(function(("In",), results, *lines[: 6 + len(results)]), x)
