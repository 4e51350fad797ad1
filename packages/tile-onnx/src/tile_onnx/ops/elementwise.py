"""Elementwise arithmetic, mathematics, comparisons, logic and bits, with NumPy's broadcasting."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable
from functools import reduce

import numpy as np
from tile_ir.dtype import DType
from tile_runtime.ops.elementwise import integer_power
from tile_runtime.ops.text import cast, expression, function, listed, literal, names, wide
from tile_runtime.ops.values import Array, Value, apply

from tile_onnx.node import Node
from tile_onnx.registry import operator

_EXACT = {
    "Abs": "abs(X)",
    "Neg": "-X",
    "Ceil": "ceil(X)",
    "Floor": "floor(X)",
    "Round": "round_even(X)",
    "Not": "~X",
    "BitwiseNot": "~X",
    "IsNaN": "isnan(X)",
    "Sign": "sign(X)",
}

_MATHEMATICS = {
    "Reciprocal": "1 / X",
    "Sqrt": "sqrt(X)",
    "Exp": "exp(X)",
    "Log": "log(X)",
    "Erf": "erf(X)",
    **{f.capitalize(): f"{f}(X)" for f in ("sin", "cos", "tan", "asin", "acos", "atan")},
    **{f.capitalize(): f"{f}(X)" for f in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh")},
}

_BINARY = {
    "Add": "{0} + {1}",
    "Sub": "{0} - {1}",
    "Mul": "{0} * {1}",
    "Div": "{0} / {1}",
    "And": "{0} & {1}",
    "Or": "{0} | {1}",
    "Xor": "{0} ^ {1}",
    "BitwiseAnd": "{0} & {1}",
    "BitwiseOr": "{0} | {1}",
    "BitwiseXor": "{0} ^ {1}",
    "Equal": "{0} == {1}",
    "Greater": "{0} > {1}",
    "GreaterOrEqual": "{0} >= {1}",
    "Less": "{0} < {1}",
    "LessOrEqual": "{0} <= {1}",
}

_VARIADIC = {"Max": "max({0}, {1})", "Min": "min({0}, {1})", "Sum": "{0} + {1}", "Mean": "{0} + {1}"}


@operator(*_EXACT)
def exact(node: Node) -> Value:
    """What rounds nothing, or decides."""
    return apply(expression("X", _EXACT[node.op]), node.value(0))


@operator(*_MATHEMATICS)
def mathematics(node: Node) -> Value:
    """Functions of floats."""
    return of_floats(node, _MATHEMATICS[node.op])


def of_floats(node: Node, value: str, inputs: int = 1) -> Value:
    """An elementwise expression of the first inputs, ``X`` (or ``X, X1``), rounded once to the dtype of the first."""
    dtype, taken = node.dtype(0), ("X", "X1")[:inputs]
    widened = [f"{name} = {wide('In' + name, dtype)};" for name in taken]
    text = function([f"In{name}" for name in taken], ["Y"], *widened, f"Y = {cast(f'({value})', dtype)};")
    return apply(text, *(node.value(k) for k in range(inputs)))


@operator(*_BINARY)
def binary(node: Node) -> Value:
    """Two operands of one dtype."""
    return _joined(node, lambda a, b: f"({_BINARY[node.op].format(a, b)})")


@operator(*_VARIADIC)
def variadic(node: Node) -> Value:
    """Any number of operands of one dtype."""
    mean = f" / {node.arity}" if node.op == "Mean" else ""
    return _joined(node, lambda a, b: f"({_VARIADIC[node.op].format(a, b)})", mean)


def _joined(node: Node, join: Callable[[str, str], str], rest: str = "") -> Value:
    texts, values = operands(node, range(node.arity))
    return apply(expression(listed(names(len(values), "X")), reduce(join, texts) + rest), *values)


def operands(node: Node, which: Iterable[int]) -> tuple[list[str], list[Value]]:
    """Text of these inputs, and the values that the texts call X0, X1, …: one number that is known is a literal."""
    given = [node.value(k) for k in which]
    rank = max((len(v.shape) for v in given if number(v) is None), default=-1)
    texts: list[str] = []
    values: list[Value] = []
    for value in given:
        constant = number(value)
        if constant is not None and len(value.shape) <= rank:
            texts.append(literal(constant))
        else:
            texts.append(f"X{len(values)}")
            values.append(value)
    return texts, values


def known(value: Value) -> Array | None:
    """The value, if it is an array; None if a device program computes it."""
    return typing.cast("Array", value) if isinstance(value, np.ndarray) else None


def number(value: Value) -> int | float | None:
    """One number, known now; no truth value, which has no literal."""
    array = known(value)
    return None if array is None or array.size != 1 or array.dtype == np.bool_ else array.item()


@operator("IsInf")
def is_inf(node: Node) -> Value:
    """Infinities, of the signs that are asked for."""
    signs = {(1, 1): "abs(X) == inf", (1, 0): "X == inf", (0, 1): "X == -inf", (0, 0): "X < -inf"}
    wanted = node.attribute("detect_positive", 1), node.attribute("detect_negative", 1)
    return apply(expression("X", signs[wanted]), node.value(0))


@operator("Mod")
def mod(node: Node) -> Value:
    """The remainder with the divisor's sign, or with the dividend's (`fmod`); of floats, exactly."""
    return _joined(node, lambda a, b: f"{'fmod' if node.attribute('fmod', 0) else 'mod'}({a}, {b})")


@operator("Pow")
def power(node: Node) -> Value:
    """Powers, of the base's dtype; small whole exponents that are known multiply."""
    base, exponent = node.dtype(0), number(node.value(1))
    if exponent in _PRODUCTS and node.rank(1) <= node.rank(0):
        return apply(expression("X", _PRODUCTS[exponent]), node.value(0))
    if base.is_integer and node.dtype(1).is_integer:
        known = None if exponent is None else int(exponent)
        return apply(integer_power(base, node.dtype(1), known), node.value(0), node.value(1))
    return apply(_float_power(base), node.value(0), node.value(1))


_PRODUCTS: dict[int | float | None, str] = {1: "X", 2: "X * X", 3: "X * X * X"}


def _float_power(base: DType) -> str:
    computed = DType.FLOAT64 if base.is_integer else base
    value = f"pow({cast('X', computed)}, {cast('E', computed)})"
    return expression("X, E", cast(value, base) if base.is_integer else value)


@operator("BitShift")
def bit_shift(node: Node) -> Value:
    """Bits moved to the LEFT or RIGHT; counts from the width on leave none but the sign."""
    arrow = {"LEFT": "<<", "RIGHT": ">>"}[node.attribute("direction")]
    return apply(expression("X, K", f"X {arrow} K"), node.value(0), node.value(1))


@operator("Where")
def where(node: Node) -> Value:
    """The second operand where the first is true, else the third."""
    texts, values = operands(node, (1, 2))
    inputs = listed(("C", *names(len(values), "X")))
    return apply(expression(inputs, f"C ? {texts[0]} : {texts[1]}"), node.value(0), *values)


@operator("Clip")
def clip_between_attributes(node: Node) -> Value:
    """Attributes `min` and `max`."""
    value = "X"
    for name, fn in (("min", "max"), ("max", "min")):
        bound = node.attribute(name, None)
        value = f"{fn}({value}, {literal(bound)})" if bound is not None else value
    return apply(expression("X", value), node.value(0))


@operator("Clip", since=11)
def clip(node: Node) -> Value:
    """Optional inputs `min` and `max`."""
    present = [k for k in (1, 2) if node.value(k) is not None]
    texts, values = operands(node, (0, *present))
    value = texts[0]
    for k, text in zip(present, texts[1:], strict=True):
        value = f"{'max' if k == 1 else 'min'}({value}, {text})"
    return apply(expression(listed(names(len(values), "X")), value), *values)
