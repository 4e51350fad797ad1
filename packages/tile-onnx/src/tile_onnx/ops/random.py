"""Random operators: refused by name, except Dropout, which drops nothing where a network is only used."""

from __future__ import annotations

import numpy as np

from tile_onnx.node import Node, Value
from tile_onnx.registry import operator

_WHY = "what it draws is another stream of random numbers in every implementation"


@operator("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
def draw(node: Node) -> Value:
    """Refused."""
    raise node.unsupported(_WHY, "draw the numbers outside, and make them an input of the model")


@operator("Dropout")
def dropout(node: Node) -> Value:
    """The data as they are, and a mask of what is kept: all of it."""
    if node.has(2) and node.host(2).any() and (not node.has(1) or node.host(1).any()):
        raise node.unsupported(_WHY, "export the model for inference")
    return (node.value(0), np.ones(node.shape(0), np.bool_)) if node.wants(1) else node.value(0)
