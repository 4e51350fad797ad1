"""Graphs as the walk reads them: sorted nodes, decoded constants, and where each name is used last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, ValueInfoProto, helper

from tile_onnx.tensors import dense, malformed, tensor_array
from tile_onnx.values import Array, is_list


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph, a subgraph, or the body of a function; its nodes stand in an order in which they can run."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[NodeProto, ...]
    constants: Mapping[str, Array]
    infos: Mapping[str, ValueInfoProto]
    """Types of its inputs, where it states them."""

    @cached_property
    def last_use(self) -> Mapping[str, int]:
        """The index of the last node that needs a name; beyond the nodes for outputs."""
        uses = {name: k for k, node in enumerate(self.nodes) for name in needs(node)}
        return uses | dict.fromkeys(self.outputs, len(self.nodes))

    @cached_property
    def captured(self) -> frozenset[str]:
        """Names of the surrounding graphs that it uses."""
        made = {*self.inputs, *self.constants, *(o for n in self.nodes for o in n.output)}
        return frozenset(self.last_use) - made

    def pruned(self, outputs: tuple[str, ...]) -> Graph:
        """The part of it that gives these outputs."""
        needed, kept = set(outputs), list[NodeProto]()
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                kept.append(node)
                needed.update(needs(node))
        return Graph(self.name, self.inputs, outputs, tuple(reversed(kept)), self.constants, self.infos)


def needs(node: NodeProto) -> set[str]:
    """Names that a node uses, in its subgraphs too."""
    return {*filter(None, node.input), *(n for g in subgraphs(node) for n in _captured(g))}


def _captured(graph: GraphProto) -> set[str]:
    made = {
        *(i.name for i in graph.input),
        *(t.name for t in graph.initializer),
        *(o for n in graph.node for o in n.output),
    }
    used = {*(o.name for o in graph.output), *(name for node in graph.node for name in needs(node))}
    return used - made


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def of_graph(
    proto: GraphProto, folder: Path | None = None, data: Mapping[int, memoryview] = MappingProxyType({})
) -> Graph:
    """The graph of a message; Malformed when it is none.

    `folder` is where its model lies, `data` are raw data that are apart, by the number of the initializer.
    """
    constants = {t.name: tensor_array(t, folder, data.get(k)) for k, t in enumerate(proto.initializer)}
    constants |= {t.values.name: dense(t, folder) for t in proto.sparse_initializer}
    infos = {i.name: i for i in proto.input}
    inputs = tuple(name for name in infos if name not in constants)
    where = f"graph {proto.name!r}"
    nodes = in_order(proto.node, {*constants, *infos}, where)
    constants |= {n.output[0]: tensor_array(n.attribute[0].t, folder) for n in nodes if is_tensor(n)}
    nodes = tuple(n for n in nodes if not is_tensor(n))
    return Graph(proto.name, inputs, tuple(o.name for o in proto.output), nodes, constants, infos)


def is_tensor(node: NodeProto) -> bool:
    """Whether a node is one of the graph's constants: some exporters write all weights so."""
    of_onnx = node.op_type == "Constant" and node.domain in ("", "ai.onnx")
    return (
        of_onnx and [a.type for a in node.attribute] == [AttributeProto.TENSOR] and not node.attribute[0].ref_attr_name
    )


def of_function(proto: FunctionProto) -> Graph:
    """The body of a function; Malformed when it is none."""
    nodes = in_order(proto.node, set(proto.input), f"function {proto.name!r}")
    return Graph(proto.name, tuple(proto.input), tuple(proto.output), nodes, {}, {})


def in_order(nodes: Sequence[NodeProto], given: set[str], where: str) -> tuple[NodeProto, ...]:
    """Nodes such that each stands behind those whose outputs it needs; Malformed for cycles and names made twice."""
    made: dict[str, int] = {}
    for k, node in enumerate(nodes):
        for name in filter(None, node.output):
            if name in made or name in given:
                raise malformed(f"{where} makes {name!r} twice; a second time by node {label(node)}")
            made[name] = k
    needed = [{made[n] for n in needs(node) if n in made} for node in nodes]
    if all(k > max(before, default=-1) for k, before in enumerate(needed)):
        return tuple(nodes)
    try:
        return tuple(nodes[k] for k in TopologicalSorter(dict(enumerate(needed))).static_order())
    except CycleError as problem:
        found: list[int] = problem.args[1]
        cycle = ", ".join(label(nodes[k]) for k in found[:6])
        raise malformed(f"{where} has a cycle: {cycle}") from None


def label(node: NodeProto) -> str:
    """How errors call a node."""
    name = node.name or next(filter(None, node.output), "")
    return f"{name!r} ({node.op_type})"


def with_attributes(node: NodeProto, given: Mapping[str, AttributeProto]) -> NodeProto:
    """A node of a function's body with the attributes that it takes from the call."""
    if not any(a.ref_attr_name for a in _attributes(node)):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    _resolve(copy, given)
    return copy


def _attributes(node: NodeProto) -> Iterator[AttributeProto]:
    yield from node.attribute
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from _attributes(inner)


def _resolve(node: NodeProto, given: Mapping[str, AttributeProto]) -> None:
    kept = list(_resolved(node.attribute, given))
    del node.attribute[:]
    node.attribute.extend(kept)
    for graph in subgraphs(node):
        for inner in graph.node:
            _resolve(inner, given)


def _resolved(attributes: Iterable[AttributeProto], given: Mapping[str, AttributeProto]) -> Iterator[AttributeProto]:
    for attribute in attributes:
        if not attribute.ref_attr_name:
            yield attribute
        elif attribute.ref_attr_name in given:
            found = AttributeProto()
            found.CopyFrom(given[attribute.ref_attr_name])
            found.name = attribute.name
            yield found


def attribute_value(attribute: AttributeProto) -> Any:
    """int, float, str, tuples of them, an array (a tensor), or a Graph."""
    match attribute.type:
        case AttributeProto.GRAPH:
            return of_graph(attribute.g)
        case AttributeProto.TENSOR:
            return tensor_array(attribute.t)
        case AttributeProto.SPARSE_TENSOR:
            return dense(attribute.sparse_tensor)
        case AttributeProto.STRING:
            return attribute.s.decode("utf-8", "replace")
        case AttributeProto.STRINGS:
            return tuple(s.decode("utf-8", "replace") for s in attribute.strings)
        case _:
            value = helper.get_attribute_value(attribute)
            return tuple(value) if is_list(value) else value
