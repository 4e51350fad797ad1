"""Operations on elements."""

from __future__ import annotations

from tile_runtime.ops.values import apply

from tile_jax.lowering.registry import Op, Value, operation

_TEXTS = {
    "add": "function (A, B) -> (R) { R = A + B; }",
    "subtract": "function (A, B) -> (R) { R = A - B; }",
    "multiply": "function (A, B) -> (R) { R = A * B; }",
    "divide": "function (A, B) -> (R) { R = A / B; }",
    "tanh": "function (A) -> (R) { R = tanh(A); }",
    "exponential": "function (A) -> (R) { R = exp(A); }",
    "negate": "function (A) -> (R) { R = -A; }",
}


@operation(*(f"stablehlo.{name}" for name in _TEXTS))
def elementwise(op: Op) -> Value:
    """Arrays of one shape."""
    return apply(_TEXTS[op.name.removeprefix("stablehlo.")], *op.operands)
