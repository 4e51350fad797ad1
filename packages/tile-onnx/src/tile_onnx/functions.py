"""Operators that are defined by others: ONNX's own function bodies, and functions that a model brings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import onnx
import onnx.parser
from onnx import AttributeProto, FunctionProto, TypeProto, helper

from tile_onnx.dtypes import element_type
from tile_onnx.graph import Graph, of_function
from tile_onnx.node import Node
from tile_onnx.values import Value


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """The graph of a function, the operator sets it is written in, and its attributes' defaults."""

    graph: Graph
    opsets: Mapping[str, int]
    defaults: Mapping[str, AttributeProto]


def local(proto: FunctionProto) -> Body:
    """A function that the model defines."""
    return Body(of_function(proto), _opsets(proto), {a.name: a for a in proto.attribute_proto})


@lru_cache(512)
def written(text: str) -> Body:
    """The function ``(X) => (Y) { Y = Relu(X) }``, in the newest operators of ONNX and those of ONNX Runtime."""
    opsets = f'"" : {onnx.defs.onnx_opset_version()}, "com.microsoft" : 1'
    return local(onnx.parser.parse_function(f'<opset_import: [{opsets}], domain: "tile"> written {text}'))


def _schema(domain: str, op: str, opset: int) -> Any:
    """ONNX's description of an operator, which its own types describe in part; None where there is none."""
    try:
        return onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return None


def body(node: Node) -> Body | None:
    """ONNX's definition of the node's operator by other operators; None where it has none."""
    schema = _schema(node.domain, node.op, node.opset)
    if schema is None:
        return None
    if schema.has_function:
        return _plain(node.domain, node.op, node.opset)
    if schema.has_context_dependent_function:
        return _in_context(node, schema)
    return None


def is_defined(node: Node) -> bool:
    """Whether ONNX defines the operator by others."""
    schema = _schema(node.domain, node.op, node.opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


@lru_cache(512)
def _plain(domain: str, op: str, opset: int) -> Body | None:
    schema = _schema(domain, op, opset)
    versions = [v for v in schema.function_opset_versions if v <= opset]
    text = schema.get_function_with_opset_version(max(versions)) if versions else b""
    return _body(schema, text)


def _in_context(node: Node, schema: Any) -> Body | None:
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= node.opset]
    if not versions:
        return None
    types = [_type(v).SerializeToString() for v in node.values]
    text = schema.get_context_dependent_function_with_opset_version(
        max(versions), node.proto.SerializeToString(), types
    )
    return _body(schema, text)


def _body(schema: Any, text: bytes) -> Body | None:
    if not text:
        return None
    proto = FunctionProto.FromString(text)
    defaults = {n: a.default_value for n, a in schema.attributes.items() if a.default_value.name}
    return Body(of_function(proto), _opsets(proto), defaults)


def _opsets(proto: FunctionProto) -> dict[str, int]:
    """What the body imports; ONNX's own bodies do not always say which ai.onnx they are written in."""
    stated = {"" if i.domain == "ai.onnx" else i.domain: i.version for i in proto.opset_import}
    return {"": onnx.defs.onnx_opset_version()} | stated


def _type(value: Value) -> TypeProto:
    """The ONNX type of a value; an empty one where it is absent."""
    if value is None:
        return TypeProto()
    if isinstance(value, list):
        return helper.make_sequence_type_proto(_type(value[0])) if value else TypeProto()  # pyright: ignore[reportUnknownArgumentType]
    dtype = value.dtype if hasattr(value.dtype, "kind") and not hasattr(value.dtype, "numpy") else value.dtype.numpy
    return helper.make_tensor_type_proto(element_type(dtype), value.shape)


def absent(node: Node) -> tuple[str, str]:
    """Why an operator has no converter, and what would help."""
    if _schema(node.domain, node.op, node.opset) is None:
        domain = node.domain or "ai.onnx"
        if domain == "com.microsoft.nchwc":
            return (
                "ONNX Runtime wrote this model for one kind of processor",
                "save it with graph_optimization_level ORT_ENABLE_EXTENDED or less",
            )
        return (
            f"opset {node.opset} of {domain} has no such operator",
            "a function of that name in the model would define it; or export the model with standard operators",
        )
    return "this operator has no converter", "tile_onnx.registry.operator registers one"
