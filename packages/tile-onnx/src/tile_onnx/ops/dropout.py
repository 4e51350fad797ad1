"""Dropout. What draws at random otherwise is refused by name."""

from __future__ import annotations

import numpy as np
from tile_runtime.ops.values import Value

from tile_onnx.node import Node
from tile_onnx.registry import operator


@operator("Dropout")
def dropout(node: Node) -> Value:
    """The data as they are, and a mask of what is kept: all of it. Dropping in training is refused."""
    if node.has(2) and node.host(2).any() and (not node.has(1) or node.host(1).any()):
        raise node.unsupported("dropping at random needs ONNX Runtime's random stream", "export it for inference")
    return (node.value(0), np.ones(node.shape(0), np.bool_)) if node.wants(1) else node.value(0)
