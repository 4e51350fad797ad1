"""Gradients of scatters: each value gets what its aggregation passes on, gathered from the cell that it fell on."""

from __future__ import annotations

from collections.abc import Callable

from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.macros import literal
from tile_ir.program.nodes import IndexOf, Operand, Scatter, TensorType

from tile_autodiff._contractions import Gradients
from tile_autodiff._emit import Graph, Updates
from tile_autodiff._seeds import SEEDS


def scatter_gradients(graph: Graph, op: Scatter, dout: str, active: Callable[[str], bool]) -> Gradients:
    """The derivatives of the updates and of the default."""
    found: Gradients = []
    values = Updates(op, graph)
    if op.default is not None and active(op.default):
        found.append((op.default, _where_nothing_fell(values, dout)))
    if active(op.updates):
        seed = _latest(values, dout) if op.agg is Aggregation.ASSIGN else SEEDS[op.agg](values, dout)
        assert isinstance(seed, str)
        found.append((op.updates, seed))
    return found


def _where_nothing_fell(values: Updates, dout: str) -> str:
    graph, dtype, one = values.graph, values.type.dtype, literal(1, DType.INT32)
    fallen = values.reduced(one, TensorType(DType.INT32, values.type.shape), Aggregation.ASSIGN)
    empty = graph.emit("cmp_eq", (fallen, literal(0, DType.INT32)), DType.BOOL)
    result = graph.emit("cond", (empty, dout, literal(0, dtype)), dtype)
    assert isinstance(result, str)
    return result


def _latest(values: Updates, dout: str) -> Operand:
    """The derivative goes to the value that stayed: of those that fell on one cell, the last one."""
    order = _positions(values)
    dtype = values.graph.dtype(order)
    last = values.reduced(order, TensorType(dtype, values.type.shape), Aggregation.ASSIGN)
    stayed = values.emit("cmp_eq", (values.here(last), order), DType.BOOL)
    zero = literal(0, values.type.dtype)
    return values.emit("cond", (stayed, values.here(dout), zero), values.type.dtype)


def _positions(values: Updates) -> str:
    """The number of each value in row-major order."""
    graph, shape = values.graph, values.graph.shape(values.op.updates)
    total: Operand = literal(0, DType.INT64)
    for axis, extent in enumerate(shape):
        place = graph.add(IndexOf(graph.fresh("G"), TensorType(DType.INT32, shape), axis))
        total = graph.emit("mul", (total, literal(extent, DType.INT64)), DType.INT64)
        total = graph.emit("add", (total, graph.cast(place, DType.INT64)), DType.INT64)
    return graph.stretched(str(graph.emit("ident", (total,), DType.INT64)), shape)
