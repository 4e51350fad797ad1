"""Reading models: checked before anything is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import FunctionProto, ModelProto

from tile_onnx.graph import Graph, of_graph


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A model that was read: its graph, operator sets and functions."""

    graph: Graph
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], FunctionProto]
    proto: ModelProto


def read(model: str | Path | bytes | ModelProto) -> Imported:
    """The model of a file, of its bytes, or of a message."""
    if isinstance(model, bytes):
        proto = ModelProto.FromString(model)
    elif isinstance(model, ModelProto):
        proto = model
    else:
        proto = onnx.load(str(model))
    opsets = {"" if i.domain == "ai.onnx" else i.domain: i.version for i in proto.opset_import}
    functions = {(f.domain, f.name): f for f in proto.functions}
    return Imported(of_graph(proto.graph), opsets, functions, proto)
