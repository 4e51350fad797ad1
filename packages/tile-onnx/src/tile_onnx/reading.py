"""Reading models: checked before anything is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import FunctionProto, ModelProto

from tile_onnx.feeds import Argument, argument
from tile_onnx.graph import Graph, of_graph


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A model that was read: its graph, operator sets, functions, and what it takes and gives."""

    graph: Graph
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], FunctionProto]
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    defaults: tuple[str, ...]
    """Inputs that have a value of their own."""


def read(model: str | Path | bytes | ModelProto) -> Imported:
    """The model of a file, of its bytes, or of a message."""
    if isinstance(model, bytes):
        proto = ModelProto.FromString(model)
    elif isinstance(model, ModelProto):
        proto = model
    else:
        proto = onnx.load(str(model))
    return imported(proto)


def imported(proto: ModelProto) -> Imported:
    """What a checked message holds."""
    opsets = {_domain(i.domain): i.version for i in proto.opset_import}
    functions = {(_domain(f.domain), f.name): f for f in proto.functions}
    graph = of_graph(proto.graph)
    inputs = tuple(argument(i) for i in proto.graph.input)
    defaults = tuple(a.name for a in inputs if a.name in graph.constants)
    # Inputs that a call has to give come first.
    ordered = tuple(sorted(inputs, key=lambda a: a.name in defaults))
    outputs = tuple(argument(o) for o in proto.graph.output)
    return Imported(graph, opsets, functions, ordered, outputs, defaults)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
