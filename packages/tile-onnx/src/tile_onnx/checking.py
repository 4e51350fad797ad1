"""What must hold of a model before it is walked: names, functions, attributes, shapes; all findings at once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, checker
from tile_ir.diagnostics import Diagnostic

from tile_onnx.graph import label, of_function, of_graph, subgraphs
from tile_onnx.tensors import Malformed, dense, malformed, tensor_array

Functions = Mapping[tuple[str, str], FunctionProto]
MOST_NODES = 100_000
"""Of a model whose functions are put in place of their calls: the largest that exporters write have a tenth."""


def check(proto: ModelProto, opsets: Mapping[str, int], functions: Functions) -> list[Diagnostic]:
    """What is wrong with a model whose tensors of the outermost graph were read."""
    found = [*_versions(proto, opsets), *_inputs(proto.graph), *_calls(proto.graph, functions)]
    if not proto.graph.output:
        found.append(_wrong("the graph has no outputs"))
    found += _graph(proto.graph, frozenset(), opsets, functions)
    for function in functions.values():
        found += _function(function, functions)
    return found


def check_texts(proto: ModelProto) -> None:
    """Malformed where a name is not UTF-8; protobuf hands such a name over as bytes."""
    graphs = [proto.graph]
    nodes = [n for f in proto.functions for n in f.node]
    _texts(text for f in proto.functions for text in (f.name, f.domain, *f.input, *f.output))
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            _texts((*(i.name for i in (*graph.input, *graph.output)), *(t.name for t in graph.initializer)))
            nodes += graph.node
        else:
            node = nodes.pop()
            _texts((node.op_type, node.domain, node.name, *node.input, *node.output, *(a.name for a in node.attribute)))
            graphs += subgraphs(node)


def _texts(names: Iterable[object]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise malformed(f"the name {name!r:.80} is not UTF-8 text")


def _wrong(message: str, hint: str | None = None) -> Diagnostic:
    return Diagnostic("TILE-E901", message, hint=hint)


def _versions(proto: ModelProto, opsets: Mapping[str, int]) -> Iterator[Diagnostic]:
    newest = onnx.defs.onnx_opset_version()
    if not opsets:
        yield _wrong("the model does not say which operator sets it is written in (opset_import is empty)")
    elif not 1 <= opsets.get("", 1) <= newest:
        hint = "a newer onnx may know it; onnx.version_converter writes models in an older opset"
        yield _wrong(
            f"the model is written in opset {opsets['']} of ai.onnx; the onnx installed knows 1 to {newest}", hint
        )


def _inputs(graph: GraphProto) -> Iterator[Diagnostic]:
    names: set[str] = set()
    for info in graph.input:
        if not info.name or info.name in names:
            yield _wrong(
                f"the graph has two inputs {info.name!r}" if info.name else "an input of the graph has no name"
            )
        names.add(info.name)


def _calls(graph: GraphProto, functions: Functions) -> Iterator[Diagnostic]:
    """Functions that call themselves would never end, and calls of calls stand for more nodes with each level."""
    calls = {key: _called(f.node, functions) for key, f in functions.items()}
    sizes: dict[tuple[str, str], int] = {}
    try:
        for key in TopologicalSorter(calls).static_order():
            sizes[key] = len(functions[key].node) + sum(sizes[k] * count for k, count in calls[key].items())
    except CycleError as problem:
        yield _wrong(f"function {problem.args[1][0][1]!r} of the model calls itself")
        return
    nodes = sum(sizes[k] * count for k, count in _called(graph.node, functions).items())
    if nodes > MOST_NODES:
        yield _wrong(f"the functions that the model calls stand for {nodes} nodes; at most {MOST_NODES} are taken")


def _called(nodes: Iterable[NodeProto], functions: Functions) -> Counter[tuple[str, str]]:
    """How often nodes call each function of the model."""
    return Counter(key for n in _all_nodes(nodes) if (key := (n.domain, n.op_type)) in functions)


def _all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from _all_nodes(graph.node)


def _function(function: FunctionProto, functions: Functions) -> Iterator[Diagnostic]:
    opsets = {"" if i.domain == "ai.onnx" else i.domain: i.version for i in function.opset_import}
    try:
        ordered = of_function(function).nodes
    except Malformed as problem:
        yield from problem.diagnostics
        return
    where = f"function {function.name!r}"
    yield from _names(ordered, set(function.input), frozenset(), function.output, where)
    for node in ordered:
        yield from _node(node, frozenset(function.input).union(*(n.output for n in ordered)), opsets, functions)


def _graph(
    graph: GraphProto, outer: frozenset[str], opsets: Mapping[str, int], functions: Functions
) -> Iterator[Diagnostic]:
    given = {
        *(i.name for i in graph.input),
        *(t.name for t in graph.initializer),
        *(t.values.name for t in graph.sparse_initializer),
    }
    try:
        inner = of_graph(graph) if outer else None
    except Malformed as problem:
        yield from problem.diagnostics
        return
    nodes = graph.node if inner is None else inner.nodes
    given = given if inner is None else given.union(inner.constants)
    yield from _names(nodes, given, outer, [o.name for o in graph.output], f"graph {graph.name!r}")
    visible = outer.union(given, *(n.output for n in nodes))
    for node in nodes:
        yield from _node(node, visible, opsets, functions)


def _names(
    nodes: Iterable[NodeProto], given: set[str], outer: frozenset[str], outputs: Iterable[str], where: str
) -> Iterator[Diagnostic]:
    made = given.union(*(n.output for n in nodes))
    for node in nodes:
        for name in filter(None, node.input):
            if name not in made and name not in outer:
                yield _wrong(f"node {label(node)} of {where} uses {name!r}, which nothing makes")
    for name in outputs:
        if name not in made and name not in outer:
            yield _wrong(f"output {name!r} of {where} is made by nothing")


def _node(
    node: NodeProto, visible: frozenset[str], opsets: Mapping[str, int], functions: Functions
) -> Iterator[Diagnostic]:
    domain = "" if node.domain == "ai.onnx" else node.domain
    for attribute in node.attribute:
        yield from _attribute(node, attribute)
    for graph in subgraphs(node):
        yield from _graph(graph, visible | {""}, opsets, functions)
    if (domain, node.op_type) not in functions and not any(True for _ in subgraphs(node)):
        yield from _schema(node, domain, opsets)


def _attribute(node: NodeProto, attribute: AttributeProto) -> Iterator[Diagnostic]:
    try:
        for tensor in (attribute.t, *attribute.tensors) if attribute.type in (4, 9) else ():
            tensor_array(tensor)
        if attribute.type == AttributeProto.SPARSE_TENSOR:
            dense(attribute.sparse_tensor)
    except Malformed as problem:
        yield _wrong(f"attribute {attribute.name!r} of node {label(node)}: {problem.diagnostics[0].message}")


def _schema(node: NodeProto, domain: str, opsets: Mapping[str, int]) -> Iterator[Diagnostic]:
    """Whether a node has the inputs, outputs and attributes that its operator says."""
    if not onnx.defs.has(node.op_type, domain):
        return
    context = checker.C.CheckerContext()
    context.ir_version = onnx.IR_VERSION
    context.opset_imports = {"": onnx.defs.onnx_opset_version(), **opsets}
    try:
        checker.check_node(node, context)
    except checker.ValidationError as problem:
        text = " ".join(str(problem).split("==>")[0].split())
        if not _TOLERATED.search(text):
            yield _wrong(f"node {label(node)}: {text}")


_TOLERATED = re.compile("is deprecated in domain_version of|^No Op registered for")
"""What ONNX Runtime runs all the same: GroupNormalization of opset 18, and operators that its optimiser writes into models
of older opsets (LayerNormalization). Whether there is a converter is asked later."""
