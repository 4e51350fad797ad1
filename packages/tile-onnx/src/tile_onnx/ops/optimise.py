"""Steps of optimisers (ai.onnx.preview.training): each works on any number of tensors at once."""

from __future__ import annotations

from tile_runtime.ops.text import function, literal
from tile_runtime.ops.values import Value, apply

from tile_onnx.node import Node
from tile_onnx.registry import operator

TRAINING = "ai.onnx.preview.training"

_ADAM = (
    "G1 = {norm_coefficient} * X + G;",
    "V1 = {alpha} * V + (1 - {alpha}) * G1;",
    "H1 = {beta} * H + (1 - {beta}) * (G1 * G1);",
    "S = as_float(T, 32);",
    "R1 = T > 0 ? R * sqrt(1 - pow({beta}, S)) / (1 - pow({alpha}, S)) : R;",
    "X1 = (1 - {norm_coefficient_post}) * (X - R1 * (V1 / (sqrt(H1) + {epsilon})));",
)
_ADAGRAD = (
    "G1 = {norm_coefficient} * X + G;",
    "H1 = H + G1 * G1;",
    "X1 = X - R / (1 + as_float(T, 32) * {decay_factor}) * G1 / (sqrt(H1) + {epsilon});",
)
_MOMENTUM = (
    "G1 = {norm_coefficient} * X + G;",
    "V1 = {alpha} * V + (T > 0 ? {beta} : 1.0) * G1;",
)
_NESTEROV = {"standard": "X1 = X - R * V1;", "nesterov": "X1 = X - R * (G1 + {alpha} * V1);"}


@operator("Adam", domain=TRAINING)
def adam(node: Node) -> Value:
    """The rate R, the step T, then parameters X, gradients G, first and second moments V and H."""
    return _step(node, _ADAM, "XGVH", {"alpha": 0.9, "beta": 0.999, "epsilon": 1e-6, "norm_coefficient_post": 0.0})


@operator("Adagrad", domain=TRAINING)
def adagrad(node: Node) -> Value:
    """The rate R, the step T, then parameters X, gradients G, sums of squares H."""
    return _step(node, _ADAGRAD, "XGH", {"decay_factor": 0.0, "epsilon": 1e-6})


@operator("Momentum", domain=TRAINING)
def momentum(node: Node) -> Value:
    """The rate R, the step T, then parameters X, gradients G, momenta V."""
    return _step(node, (*_MOMENTUM, _NESTEROV[node.attribute("mode")]), "XGV", {"alpha": 0.0, "beta": 0.0})


def _step(node: Node, statements: tuple[str, ...], groups: str, defaults: dict[str, float]) -> Value:
    """One step for every parameter: inputs, and results, stand group after group."""
    settings = {
        name: literal(float(node.attribute(name, value)))
        for name, value in ({"norm_coefficient": 0.0} | defaults).items()
    }
    outputs = [f"{name}1" for name in groups if name != "G"]
    text = function(("R", "T", *groups), outputs, *(s.format(**settings) for s in statements))
    count = (node.arity - 2) // len(groups)
    steps = [
        apply(text, node.value(0), node.value(1), *(node.value(2 + g * count + k) for g in range(len(groups))))
        for k in range(count)
    ]
    return tuple(step[g] for g in range(len(outputs)) for step in steps)
