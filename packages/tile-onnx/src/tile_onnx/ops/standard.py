"""Operators of ai.onnx as parts of others."""

from __future__ import annotations

from typing import Any, cast

from onnx import helper
from tile_runtime.ops.values import Value

from tile_onnx.node import Node

OPSET = 24


def standard(node: Node, op: str, *values: Value, outputs: int = 1, **attributes: Any) -> Any:
    """What an operator of ai.onnx gives on values, in the place of `node`; attributes that are None are absent.

    One value, or a tuple where there are several outputs.
    """
    given = {n: v for n, v in attributes.items() if v is not None}
    names = ["" if v is None else f"x{k}" for k, v in enumerate(values)]
    made = [f"{node.name} > {op} {k}" for k in range(outputs)]
    found = node.convert(helper.make_node(op, names, made, **given), OPSET, values)
    several = cast("tuple[Value, ...]", found) if isinstance(found, tuple) else (found,)
    return several[0] if outputs == 1 else several
