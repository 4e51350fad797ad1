"""Reductions over any axes: sums, means, norms, largest and smallest, and where those stand."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan, prod

import numpy as np
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_runtime.ops.reducing import reduced, reduced_shape
from tile_runtime.ops.text import Shape, cast, function, reshaped, wide
from tile_runtime.ops.values import Value, apply

from tile_onnx.node import Node
from tile_onnx.registry import operator


@frozen
class Reduction:
    """``after`` of the aggregation of ``before``; `empty` is what nothing reduces to (None: the dtype's limit)."""

    before: str
    aggregation: str
    after: str
    empty: Callable[[DType], float]


def _lowest(dtype: DType) -> float:
    return -inf if dtype.is_float else dtype.min_value


def _highest(dtype: DType) -> float:
    return inf if dtype.is_float else dtype.max_value


def _always(value: float) -> Callable[[DType], float]:
    return lambda _: value


_REDUCTIONS = {
    "ReduceSum": Reduction("X", "+", "R", _always(0)),
    "ReduceMean": Reduction("X", "+", "R / {count}", _always(nan)),
    "ReduceProd": Reduction("X", "*", "R", _always(1)),
    "ReduceMax": Reduction("X", ">", "R", _lowest),
    "ReduceMin": Reduction("X", "<", "R", _highest),
    "ReduceL1": Reduction("abs(X)", "+", "R", _always(0)),
    "ReduceL2": Reduction("X * X", "+", "sqrt(R)", _always(0)),
    "ReduceSumSquare": Reduction("X * X", "+", "R", _always(0)),
    "ReduceLogSum": Reduction("X", "+", "log(R)", _always(-inf)),
}


@operator(*_REDUCTIONS)
def reduction(node: Node) -> Value:
    """Axes as an attribute before opset 18 (ReduceSum: 13), as an input since; none are all of them, or none."""
    axes = _axes(node)
    shape, dtype, keep, rule = node.shape(0), node.dtype(0), _keeps(node), _REDUCTIONS[node.op]
    if prod(shape) == 0:
        return _of_nothing(rule.empty(dtype), reduced_shape(shape, axes, keep), dtype)
    count = prod(shape[axis] for axis in axes)
    statements = [
        f"X = {wide('In', dtype)};",
        f"B = {rule.before};",
        reduced("R", "B", shape, axes, rule.aggregation, keep),
        f"Y = {cast(f'({rule.after.format(count=count)})', dtype)};",
    ]
    return apply(function(("In",), ("Y",), *statements), node.value(0))


@operator("ReduceLogSumExp")
def log_sum_exp(node: Node) -> Value:
    """Less the largest, which keeps the exponentials in range, unless that is infinite."""
    axes = _axes(node)
    shape, dtype, kept = node.shape(0), node.dtype(0), reduced_shape(node.shape(0), axes, _keeps(node))
    if prod(shape) == 0:
        return _of_nothing(-inf, kept, dtype)
    statements = [
        f"X = {wide('In', dtype)};",
        reduced("M", "X", shape, axes, ">"),
        "L = stop_gradient(abs(M) < inf ? M : 0);",
        "B = exp(X - L);",
        reduced("R", "B", shape, axes),
        f"Y = {reshaped(cast('(log(R) + L)', dtype), kept)};",
    ]
    return apply(function(("In",), ("Y",), *statements), node.value(0))


def _of_nothing(value: float, shape: Shape, dtype: DType) -> Value:
    with np.errstate(invalid="ignore"):
        return np.full(shape, value).astype(dtype.numpy)


def _keeps(node: Node) -> bool:
    return bool(node.attribute("keepdims", 1))


def _axes(node: Node) -> Shape:
    given = node.ints(1, None) if node.arity > 1 else node.attribute("axes", None)
    if given:
        return node.axes(given)
    return () if node.attribute("noop_with_empty_axes", 0) else tuple(range(node.rank(0)))


@operator("ArgMax", "ArgMin")
def arg_reduction(node: Node) -> Value:
    """Where the largest or smallest stands along an axis: the first one or the last; a NaN counts as beyond all."""
    shape, axis = node.shape(0) or (1,), node.axis(node.attribute("axis", 0))
    found = ">" if node.op == "ArgMax" else "<"
    last = node.attribute("select_last_index", 0)
    statements = [
        f"X = {reshaped('In', shape)};",
        reduced("M", "X", shape, (axis,), found),
        "H = (X == M) | isnan(X);",
        f"I = cond(H, index(X, {axis}), {-1 if last else shape[axis]});",
        reduced("P", "I", shape, (axis,), ">" if last else "<", _keeps(node)),
        f"Y = {cast('P', DType.INT64)};",
    ]
    return apply(function(("In",), ("Y",), *statements), node.value(0))
