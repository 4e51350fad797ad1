"""Constants, branches and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tile_onnx.graph import Graph
from tile_onnx.node import Array, Node, Value
from tile_onnx.ops.steps import stack, take
from tile_onnx.registry import operator
from tile_onnx.segments import host_array
from tile_onnx.values import is_array

if TYPE_CHECKING:
    from tile_onnx.engine import Engine

INLINED = 4096
"""Nodes that the steps of a loop may become in one device program; a longer loop runs its body step by step."""
ENDLESS = np.iinfo(np.int64).max


@operator("Identity")
def identity(node: Node) -> Value:
    return node.value(0)


@operator("Constant")
def constant(node: Node) -> Array:
    if len(node.attributes) != 1:
        raise node.unsupported(f"a constant has one value, this one has {len(node.attributes)}")
    ((name, value),) = node.attributes.items()
    kind = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    return np.array(value, object) if name.startswith("value_string") else np.asarray(value, kind.get(name))


@operator("If")
def branch(node: Node) -> tuple[Value, ...]:
    chosen = "then_branch" if _truth(node.host(0)) else "else_branch"
    return tuple(node.enter(node.attribute(chosen), (), chosen))


# --- Loop ------------------------------------------------------------------------------------------------


@operator("Loop")
def loop(node: Node) -> tuple[Value, ...]:
    body: Graph = node.attribute("body")
    trips = int(node.host(0).reshape(-1)[0]) if node.has(0) else ENDLESS
    go = _truth(node.host(1)) if node.has(1) else True
    made = _inlined(node, body, trips, go) if trips * len(body.nodes) <= INLINED else None
    if made is None:
        return tuple(node.later(body, [_number(trips), *node.values[1:]], _step_by_step))
    carried, rows = made
    return (*carried, *(_rows(node, row) for row in rows))


def _inlined(node: Node, body: Graph, trips: int, go: bool) -> tuple[list[Value], list[list[Value]]] | None:
    """The values carried, and those of each step; None where only a run tells how often it goes round."""
    carried = list(node.values[2:])
    rows: list[list[Value]] = [[] for _ in body.outputs[1 + len(carried) :]]
    step = 0
    while go and step < trips:
        condition, *made = node.enter(body, [_number(step), np.array(True), *carried], str(step))
        if not is_array(condition):
            return None
        go, carried = _truth(condition), made[: len(carried)]
        for row, value in zip(rows, made[len(carried) :], strict=True):
            row.append(value)
        step += 1
    return carried, rows


def _rows(node: Node, values: Sequence[Value]) -> Value:
    if not values:
        raise node.unsupported("a loop that goes round no times gives tensors whose shape is not known")
    return stack(values, 0)


def _step_by_step(engine: Engine, captured: dict[str, Any], trips: Any, go: Any, *carried: Any) -> tuple[Any, ...]:
    """The outputs of a loop whose body is a device program of its own."""
    body, limit = engine.graph, int(host_array(trips))
    names = body.inputs[2 : 2 + len(carried)]
    rows: list[list[Any]] = [[] for _ in body.outputs[1 + len(carried) :]]
    step, goes = 0, go is None or _truth(host_array(go))
    while goes and step < limit:
        feeds = dict(zip(body.inputs, (_number(step), np.array(True), *carried), strict=False)) | captured
        condition, *made = _ordered(engine, feeds)
        goes, carried = _truth(host_array(condition)), tuple(made[: len(names)])
        for row, value in zip(rows, made[len(names) :], strict=True):
            row.append(host_array(value))
        step += 1
    return (*carried, *(np.stack(row) for row in rows))


def _ordered(engine: Engine, feeds: dict[str, Any]) -> list[Any]:
    outputs = engine.graph.outputs
    found = engine.run(feeds, tuple(dict.fromkeys(outputs)))
    return [found[name] for name in outputs]


def _truth(value: Array) -> bool:
    return bool(value.reshape(-1)[0])


def _number(value: int) -> Array:
    return np.array(value, np.int64)


# --- Scan ------------------------------------------------------------------------------------------------


@operator("Scan", since=9)
def scan(node: Node) -> tuple[Value, ...]:
    body: Graph = node.attribute("body")
    count = _scanned_inputs(node, node.arity)
    states, inputs = list(node.values[: node.arity - count]), node.values[node.arity - count :]
    given = zip(node.attribute("scan_input_axes", (0,) * count), inputs, strict=True)
    axes = [node.axis(a, len(v.shape)) for a, v in given]
    backwards = node.attribute("scan_input_directions", (0,) * count)
    length = inputs[0].shape[axes[0]]
    if length * len(body.nodes) > INLINED:
        raise node.unsupported(f"a scan of {length} steps becomes {length * len(body.nodes)} nodes, more than {INLINED}",
                               "a Loop of as many runs step by step")  # fmt: skip
    rows: list[list[Value]] = [[] for _ in body.outputs[len(states) :]]
    for step in range(length):
        now = [take(v, a, length - 1 - step if b else step) for v, a, b in zip(inputs, axes, backwards, strict=True)]
        made = node.enter(body, [*states, *now], str(step))
        states = made[: len(states)]
        for row, value in zip(rows, made[len(states) :], strict=True):
            row.append(value)
    return (*states, *_scanned(node, rows))


def _scanned_inputs(node: Node, limit: int) -> int:
    count = node.attribute("num_scan_inputs")
    if not isinstance(count, int) or not 0 < count <= limit:
        raise node.unsupported(f"num_scan_inputs is {count}; the node has {limit} inputs")
    return count


def _scanned(node: Node, rows: list[list[Value]]) -> list[Value]:
    backwards = node.attribute("scan_output_directions", (0,) * len(rows))
    axes = node.attribute("scan_output_axes", (0,) * len(rows))
    found: list[Value] = []
    for row, axis, back in zip(rows, axes, backwards, strict=True):
        if not row:
            raise node.unsupported("a scan over no steps gives tensors whose shape is not known")
        rank = len(row[0].shape) + 1
        found.append(stack(row[::-1] if back else row, axis % rank))
    return found


@operator("Scan", since=8)
def batched_scan(node: Node) -> tuple[Value, ...]:
    """The first version has a batch axis before the scanned one, and a length for each row of the batch."""
    if node.has(0):
        raise node.unsupported("a scan of rows of different lengths", "opset 9 has none")
    body: Graph = node.attribute("body")
    given = node.values[1:]
    count = _scanned_inputs(node, len(given))
    batch = given[0].shape[0]
    made = [_one_scan(node, body, [take(v, 0, b) for v in given], count, b) for b in range(batch)]
    return tuple(stack(column, 0) for column in zip(*made, strict=True))


def _one_scan(node: Node, body: Graph, values: list[Value], count: int, batch: int) -> list[Value]:
    states, inputs = values[: len(values) - count], values[len(values) - count :]
    rows: list[list[Value]] = [[] for _ in body.outputs[len(states) :]]
    for step in range(inputs[0].shape[0]):
        made = node.enter(body, [*states, *(take(v, 0, step) for v in inputs)], f"{batch}.{step}")
        states = made[: len(states)]
        for row, value in zip(rows, made[len(states) :], strict=True):
            row.append(value)
    return [*states, *(stack(row, 0) for row in rows)]
