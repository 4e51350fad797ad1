"""Constants, branches and loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tile_runtime.loops import scan as device_scan
from tile_runtime.ops.moving import permuted, sliced
from tile_runtime.ops.values import Array, Value
from tile_runtime.symbols import constant as known

from tile_onnx.graph import Graph
from tile_onnx.node import Node, Symbol, Unlooped
from tile_onnx.ops.steps import stack, take
from tile_onnx.registry import operator
from tile_onnx.segments import host_array
from tile_onnx.values import dtype_of, is_array

if TYPE_CHECKING:
    from tile_onnx.walk import GraphRunner

INLINED = 4096
"""Nodes that the steps of a loop may become in one device program; a longer loop runs its body step by step."""
Values = tuple[Value, ...]
_Scanned = tuple[list[Value], list[Value]]
LOOPED = 8
"""Rounds from which a loop is tried as one on the device; fewer are written out."""
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
    looped = _on_device(node, body, trips) if go and LOOPED <= trips < ENDLESS else None
    if looped is not None:
        return looped
    made = _inlined(node, body, trips, go) if trips * len(body.nodes) <= INLINED else None
    if made is None:
        return tuple(node.later(body, [_number(trips), *node.values[1:]], _step_by_step))
    carried, rows = made
    return (*carried, *(_rows(node, row) for row in rows))


def _on_device(node: Node, body: Graph, trips: int) -> tuple[Value, ...] | None:
    """The outputs of one loop on the device; None where rounds differ in more than numbers."""
    carried = tuple(node.values[2:])

    def step(carry: Values, number: Value) -> tuple[Values, Values]:
        condition, *made = node.enter(body, [number, np.array(True), *carry])
        if not (is_array(condition) and _truth(condition)):
            raise Unlooped
        return tuple(made[: len(carry)]), tuple(made[len(carry) :])

    return _scanned_once(node, step, carried, known(np.arange(trips, dtype=np.int64)))


def _scanned_once(
    node: Node, step: Callable[[Values, Value], tuple[Values, Values]], carried: Values, xs: Value
) -> Values | None:
    """What is carried out of a loop on the device, and its stacks; None where it cannot be one."""
    if not all(isinstance(v, (Symbol, np.ndarray)) and dtype_of(v) is not None for v in carried):
        return None
    found = node.attempt(lambda: device_scan(step, carried, xs))
    return None if found is None else (*found[0], *found[1])


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


def _step_by_step(engine: GraphRunner, captured: dict[str, Any], trips: Any, go: Any, *carried: Any) -> tuple[Any, ...]:
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


def _ordered(engine: GraphRunner, feeds: dict[str, Any]) -> list[Any]:
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
    given = [_turned(v, a, bool(b)) for v, a, b in zip(inputs, axes, backwards, strict=True)]
    states, stacks = _rounds(node, body, states, given)
    return (*states, *_scanned(node, stacks))


def _rounds(node: Node, body: Graph, states: Sequence[Value], rows: Sequence[Value], name: str = "") -> _Scanned:
    """The states after a scan along axis 0, and its stacks."""
    length = rows[0].shape[0]

    def step(carry: Values, row: Values) -> tuple[Values, Values]:
        made = node.enter(body, [*carry, *row], name)
        return tuple(made[: len(carry)]), tuple(made[len(carry) :])

    found = _scanned_once(node, step, tuple(states), tuple(rows)) if length >= LOOPED else None
    if found is not None:
        return list(found[: len(states)]), list(found[len(states) :])
    return _written_out(node, body, states, rows, name)


def _written_out(node: Node, body: Graph, states: Sequence[Value], rows: Sequence[Value], name: str) -> _Scanned:
    length = rows[0].shape[0]
    if length * len(body.nodes) > INLINED:
        raise node.unsupported(f"a scan of {length} steps becomes {length * len(body.nodes)} nodes, more than {INLINED}",
                               "a Loop of as many runs step by step")  # fmt: skip
    if not length:
        raise node.unsupported("a scan over no steps gives tensors whose shape is not known")
    stacks: list[list[Value]] = [[] for _ in body.outputs[len(states) :]]
    for number in range(length):
        made = node.enter(body, [*states, *(take(v, 0, number) for v in rows)], f"{name}{number}")
        states = made[: len(states)]
        for stack_, value in zip(stacks, made[len(states) :], strict=True):
            stack_.append(value)
    return list(states), [stack(s, 0) for s in stacks]


def _turned(value: Value, axis: int, backwards: bool) -> Value:
    """A value whose `axis` is the first one, the other way round where that is asked."""
    rank = len(value.shape)
    first = value if axis == 0 else permuted(value, (axis, *(k for k in range(rank) if k != axis)))
    return sliced(first, [slice(None, None, -1), *[slice(None)] * (rank - 1)]) if backwards else first


def _scanned_inputs(node: Node, limit: int) -> int:
    count = node.attribute("num_scan_inputs")
    if not isinstance(count, int) or not 0 < count <= limit:
        raise node.unsupported(f"num_scan_inputs is {count}; the node has {limit} inputs")
    return count


def _scanned(node: Node, stacks: list[Value]) -> list[Value]:
    """Stacks in the directions and with the axes that a node asks for."""
    backwards = node.attribute("scan_output_directions", (0,) * len(stacks))
    axes = node.attribute("scan_output_axes", (0,) * len(stacks))
    found: list[Value] = []
    for stacked, axis, back in zip(stacks, axes, backwards, strict=True):
        rank, turned = len(stacked.shape), _turned(stacked, 0, bool(back))
        order = list(range(1, rank))
        order.insert(axis % rank, 0)
        found.append(turned if axis % rank == 0 else permuted(turned, order))
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
    states, stacks = _rounds(node, body, values[: len(values) - count], values[len(values) - count :], f"{batch}.")
    return [*states, *stacks]
