"""Conversion of dtypes. What Tile has no dtype for (strings, floats and integers below 8 bits) the host converts."""

from __future__ import annotations

import numpy as np
from tile_ir.dtype import DType
from tile_runtime.ops.text import bits_as, expression
from tile_runtime.ops.text import cast as cast_text
from tile_runtime.ops.values import Value, apply, tile_dtype

from tile_onnx.dtypes import element, numpy_dtype
from tile_onnx.node import Node
from tile_onnx.ops.elementwise import known
from tile_onnx.registry import operator


@operator("Cast")
def cast(node: Node) -> Value:
    """To the dtype of the attribute `to`."""
    return _converted(node, numpy_dtype(node.attribute("to")))


@operator("CastLike")
def cast_like(node: Node) -> Value:
    """To the dtype of the second input."""
    like = node.value(1).dtype
    return _converted(node, like.numpy if isinstance(like, DType) else like)


def _converted(node: Node, to: np.dtype[np.generic]) -> Value:
    target = tile_dtype(to)
    if target is None or known(node.value(0)) is not None:
        raise node.on_host()
    return apply(expression("X", cast_text("X", target)), node.value(0))


@operator("BitCast")
def bit_cast(node: Node) -> Value:
    """The same bits as another dtype of that width."""
    target = element(node.attribute("to"))
    if target is None or DType.BOOL in (target, node.dtype(0)):
        raise node.on_host()
    return apply(expression("X", bits_as("X", target)), node.value(0))
