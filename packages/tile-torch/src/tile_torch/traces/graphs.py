"""Graphs of ATen operators as JSON, and back: operators, arguments, and what PyTorch knows of each value."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore[reportPrivateUsage]

from tile_torch import support
from tile_torch.traces.records import Json, Unkept, packed, unpacked

FUNCTIONS: Mapping[str, Callable[..., Any]] = {"getitem": operator.getitem}
"""Targets that are no operators."""


def lines(module: GraphModule, target: Callable[[Node], Json]) -> Iterator[list[Json]]:
    """Of each node: what it is, its name, what `target` calls its target, its arguments, and where it comes from."""
    places: dict[Node, int] = {}
    for node in module.graph.nodes:
        arguments = packed([list(node.args), dict(node.kwargs)], places.__getitem__)
        yield [node.op, node.name, target(node), arguments, support.label(node)]
        places[node] = len(places)


def written(module: GraphModule) -> str:
    """A graph as a text of JSON; Unkept where it has bodies, sizes that are open, or other operators than PyTorch's."""
    values = (_value(node.meta.get("val")) for node in module.graph.nodes)
    return json.dumps(
        [[*line, value] for line, value in zip(lines(module, partial(_target, module)), values, strict=True)]
    )


def _target(module: GraphModule, node: Node) -> Json:
    if node.op == "get_attr":
        with _disable_current_modes():
            return packed(getattr(module, str(node.target), None))
    if node.op != "call_function":
        return str(node.target)
    target: Any = node.target
    if isinstance(target, OpOverload):
        return packed(target)
    for name, function in FUNCTIONS.items():
        if target is function:
            return name
    raise Unkept(str(node.target))


def _value(value: Any) -> Json:
    """What is known of a node's value: of tensors all but the numbers."""
    match value:
        case torch.Tensor():
            if value.layout is not torch.strided or value.device.type != "cpu" or value.is_conj() or value.is_neg():
                raise Unkept("a tensor of a kind of its own")
            places = [list(value.shape), list(value.stride()), value.storage_offset()]
            return {"like": [packed(value.dtype), *map(packed, places)]}
        case list() | tuple():
            return [_value(v) for v in cast("Sequence[Any]", value)]
        case None:
            return None
        case _:
            raise Unkept(f"a value that is a {type(value).__name__}")


def inputs(text: str) -> list[str]:
    """The names of a graph's inputs."""
    return [name for op, name, *_ in json.loads(text) if op == "placeholder"]


def read(text: str) -> GraphModule:
    """The graph that `written` made a text of."""
    graph, root = Graph(), torch.nn.Module()
    mode = FakeTensorMode()
    nodes: list[Node] = []
    for op, name, target, arguments, label, value in json.loads(text):
        given, named = unpacked(arguments, nodes)
        found = _found(op, target)
        if op == "get_attr":
            root.register_buffer(name, found)
            found = name
        node = graph.create_node(op, found, tuple(given), named, name)
        node.meta = {"val": _known(value, mode), support.LABEL: label}
        nodes.append(node)
    return GraphModule(root, graph)


def _found(op: str, target: Json) -> Any:
    """What `_target` has written: inputs may be called as a function is."""
    if op == "get_attr" or isinstance(target, dict):
        return unpacked(target)
    return FUNCTIONS[target] if op == "call_function" else target


def _known(value: Json, mode: FakeTensorMode) -> Any:
    if isinstance(value, list):
        return [_known(v, mode) for v in cast("list[Json]", value)]
    if value is None:
        return None
    dtype, shape, strides, offset = value["like"]
    plain = torch.empty_strided(shape, strides, dtype=unpacked(dtype), device="meta")
    if offset:
        reach = offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if n)
        plain = torch.empty(reach, dtype=plain.dtype, device="meta").as_strided(shape, strides, offset)
    return FakeTensor(mode, plain, torch.device("cpu"))
