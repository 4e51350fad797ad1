"""Constants, branches and loops."""

from __future__ import annotations

import numpy as np

from tile_onnx.node import Array, Node, Value
from tile_onnx.registry import operator


@operator("Identity")
def identity(node: Node) -> Value:
    return node.value(0)


@operator("Constant")
def constant(node: Node) -> Array:
    ((name, value),) = node.attributes.items()
    kind = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    if name.startswith("value_string"):
        return np.array(value, dtype=object)
    return np.asarray(value, kind.get(name))


@operator("If")
def branch(node: Node) -> tuple[Value, ...]:
    chosen = "then_branch" if bool(node.host(0).reshape(-1)[0]) else "else_branch"
    return tuple(node.enter(node.attribute(chosen), (), chosen))
