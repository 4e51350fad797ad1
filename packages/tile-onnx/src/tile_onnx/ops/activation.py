"""Activation functions."""

from __future__ import annotations

from dataclasses import field

from tile_ir.frozen import frozen
from tile_runtime.ops.text import cast, expression, literal, reshaped
from tile_runtime.ops.values import Value, apply

from tile_onnx.node import Node
from tile_onnx.ops.elementwise import of_floats
from tile_onnx.registry import operator


@frozen
class Activation:
    """An expression of ``X`` with attributes in braces, and what those are by default."""

    value: str
    defaults: dict[str, float] = field(default_factory=dict[str, float])

    def text(self, node: Node) -> str:
        """The expression with the node's attributes in it."""
        given = {name: literal(float(node.attribute(name, value))) for name, value in self.defaults.items()}
        return self.value.format(**given)


ACTIVATIONS = {
    "Sigmoid": Activation("sigmoid(X)"),
    "Tanh": Activation("tanh(X)"),
    "Softplus": Activation("softplus(X)"),
    "Softsign": Activation("X / (1 + abs(X))"),
    "Mish": Activation("X * tanh(softplus(X))"),
    "HardSwish": Activation("X * max(0, min(1, X / 6 + 0.5))"),
    "LeakyRelu": Activation("X < 0 ? {alpha} * X : X", {"alpha": 0.01}),
    "Elu": Activation("X < 0 ? {alpha} * expm1(X) : X", {"alpha": 1.0}),
    "Celu": Activation("max(0, X) + min(0, {alpha} * expm1(X / {alpha}))", {"alpha": 1.0}),
    "Selu": Activation(
        "{gamma} * (X <= 0 ? {alpha} * expm1(X) : X)",
        {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    ),
    "HardSigmoid": Activation("max(0, min(1, {alpha} * X + {beta}))", {"alpha": 0.2, "beta": 0.5}),
    "ThresholdedRelu": Activation("X > {alpha} ? X : 0", {"alpha": 1.0}),
    "Swish": Activation("X * sigmoid({alpha} * X)", {"alpha": 1.0}),
}


@operator(*(name for name in ACTIVATIONS if name != "Tanh"))
def activation(node: Node) -> Value:
    """What the table says, in float32 where the dtype is narrower."""
    return of_floats(node, ACTIVATIONS[node.op].text(node))


@operator("Relu")
def relu(node: Node) -> Value:
    """The positive ones; NaN is passed on."""
    return apply(expression("X", "relu(X)"), node.value(0))


@operator("Gelu")
def gelu(node: Node) -> Value:
    """By the error function, or by `tanh`."""
    return of_floats(node, GELU[node.attribute("approximate", "none")])


GELU = {
    "none": "gelu(X)",
    "tanh": "0.5 * X * (1 + tanh(0.7978845608028654 * (X + 0.044715 * X * X * X)))",
}
"""By ONNX's attribute `approximate`."""


@operator("PRelu")
def prelu(node: Node) -> Value:
    """A slope for each element, or what broadcasts; before opset 7 a row of slopes is one for each channel."""
    slope = "S"
    if node.opset < 7 and node.rank(1) == 1:
        slope = reshaped("S", (*node.shape(1), *(1,) * (node.rank(0) - 2)))
    return apply(expression("X, S", f"X < 0 ? {slope} * X : X"), node.value(0), node.value(1))


@operator("Shrink")
def shrink(node: Node) -> Value:
    """Nearer to 0 by `bias`, or 0 within `lambd` of it."""
    bias, least = (literal(float(node.attribute(name, value))) for name, value in (("bias", 0.0), ("lambd", 0.5)))
    value = f"X < -{least} ? X + {bias} : (X > {least} ? X - {bias} : 0)"
    return apply(expression("X", cast(f"({value})", node.dtype(0))), node.value(0))


@operator("SwiGLU")
def swiglu(node: Node) -> Value:
    """The first operand, swished, times the second."""
    return of_floats(node, f"X * sigmoid({literal(float(node.attribute('alpha', 1.0)))} * X) * X1", 2)
