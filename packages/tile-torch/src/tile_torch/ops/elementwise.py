"""Elementwise arithmetic, mathematics, comparisons, logic and bits, by PyTorch's promotion."""

from __future__ import annotations

from math import pi

import torch
from tile_ir.dtype import DType
from tile_runtime.ops.elementwise import OPERATORS, as_tensor, integer_power
from tile_runtime.ops.text import cast
from tile_runtime.ops.values import apply, dtype_of

from tile_torch.call import Call, Number, Value, number, written
from tile_torch.registry import Overload, operator

aten = torch.ops.aten

SIGN = "({0} > 0 ? 1 : ({0} < 0 ? -1 : 0))"
"""PyTorch's, which is 0 of NaN and +0 of -0."""

PLAIN: dict[Overload, str] = {
    aten.abs.default: "abs({0})",
    aten.neg.default: "-{0}",
    aten._neg_view.default: "-{0}",
    aten.ceil.default: "ceil({0})",
    aten.floor.default: "floor({0})",
    aten.trunc.default: "trunc({0})",
    aten.round.default: "round_even({0})",
    aten.sign.default: SIGN,
    aten.sgn.default: SIGN,
    aten.reciprocal.default: "1 / {0}",
    aten.sqrt.default: "sqrt({0})",
    aten.rsqrt.default: "1 / sqrt({0})",
    aten.exp.default: "exp({0})",
    aten.exp2.default: "pow(2, {0})",
    aten.expm1.default: "expm1({0})",
    aten.log.default: "log({0})",
    aten.log1p.default: "log1p({0})",
    aten.log2.default: f"log({{0}}) * {1.4426950408889634!r}",
    aten.log10.default: f"log({{0}}) * {0.4342944819032518!r}",
    aten.erf.default: "erf({0})",
    aten.erfc.default: "erfc({0})",
    **{getattr(aten, f).default: f"{f}({{0}})" for f in ("sin", "cos", "tan", "asin", "acos", "atan")},
    **{getattr(aten, f).default: f"{f}({{0}})" for f in ("sinh", "cosh", "tanh")},
    **{getattr(aten, f).default: f"{f}({{0}})" for f in ("asinh", "acosh", "atanh")},
    aten.relu.default: "relu({0})",
    aten.sigmoid.default: "sigmoid({0})",
    aten.silu.default: "silu({0})",
    aten.tanh_backward.default: "{0} * (1 - {1} * {1})",
    aten.sigmoid_backward.default: "{0} * ((1 - {1}) * {1})",
    aten.atan2.default: "atan2({0}, {1})",
    **dict.fromkeys((aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor), "{0} / {1}"),
    **dict.fromkeys(
        (aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor),
        "(mod({0}, {1}) == 0 ? {0} * 0 : mod({0}, {1}))",  # a zero has the sign of what is divided
    ),
    **dict.fromkeys((aten.fmod.Tensor, aten.fmod.Scalar), "fmod({0}, {1})"),
    aten.bitwise_not.default: "~{0}",
    **dict.fromkeys((aten.bitwise_and.Tensor, aten.bitwise_and.Scalar), "{0} & {1}"),
    **dict.fromkeys((aten.bitwise_or.Tensor, aten.bitwise_or.Scalar), "{0} | {1}"),
    **dict.fromkeys((aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar), "{0} ^ {1}"),
    **dict.fromkeys((aten.bitwise_left_shift.Tensor, aten.bitwise_left_shift.Tensor_Scalar), "{0} << {1}"),
    **dict.fromkeys((aten.bitwise_right_shift.Tensor, aten.bitwise_right_shift.Tensor_Scalar), "{0} >> {1}"),
}
"""Expressions of the operands, computed in the dtype of the result."""

WHOLE = (aten.ceil.default, aten.floor.default, aten.trunc.default, aten.round.default)
"""Operators that leave integers as they are."""

TESTS: dict[Overload, str] = {
    aten.isnan.default: "isnan({0})",
    aten.isinf.default: "isinf({0})",
    aten.logical_not.default: "{0} == 0",
}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
LOGIC = {"logical_and": "&", "logical_or": "|"}


@operator(*PLAIN)
def plain(call: Call, *operands: Value) -> Value:
    """What the table says."""
    if call.target in WHOLE and not call.dtype.is_float:
        return call.elementwise("{0}", *operands)
    if call.target is aten.abs.default and call.dtype is DType.BOOL:
        return call.elementwise("{0}", *operands)
    return call.elementwise(PLAIN[call.target], *operands)


@operator(*TESTS)
def test(call: Call, x: Value) -> Value:
    """Truth values of one operand."""
    if dtype_of(x) is DType.BOOL:
        return call.elementwise("~{0}" if call.target is aten.logical_not.default else "{0} & ~{0}", x)
    return call.elementwise(TESTS[call.target], x, dtype=dtype_of(x))


@operator(*(getattr(getattr(aten, name), kind) for name in COMPARISONS for kind in ("Tensor", "Scalar")))
def comparison(call: Call, x: Value, other: Value) -> Value:
    """Two operands in the dtype to which both are promoted."""
    symbol = COMPARISONS[call.name]
    truth = number(other) if dtype_of(x) is DType.BOOL and number(x) is None else None
    if truth in (0, 1) and call.name in ("eq", "ne"):  # masks, as models write them: a truth value, or its opposite
        return call.elementwise("{0}" if (truth == 1) is (call.name == "eq") else "~{0}", x)
    dtype = call.promoted(x, other)
    if dtype is DType.BOOL:
        dtype = DType.INT8
    return call.elementwise(f"{{0}} {symbol} {{1}}", x, other, dtype=dtype)


@operator(*(getattr(aten, name).default for name in LOGIC))
def logic(call: Call, x: Value, other: Value) -> Value:
    """Of what is not zero."""
    return call.elementwise(f"{{0}} {LOGIC[call.name]} {{1}}", x, other)


@operator(aten.logical_xor.default)
def logical_xor(call: Call, x: Value, other: Value) -> Value:
    return call.elementwise("{0} != {1}", x, other, dtype=DType.BOOL)


# --- arithmetic ------------------------------------------------------------------------------------------


@operator(aten.add.Tensor, aten.add.Scalar)
def add(call: Call, x: Value, other: Value, alpha: Number = 1) -> Value:
    return _sum(call, x, other, alpha, "+", "|")


@operator(aten.sub.Tensor, aten.sub.Scalar)
def sub(call: Call, x: Value, other: Value, alpha: Number = 1) -> Value:
    return _sum(call, x, other, alpha, "-", "^")


def _sum(call: Call, x: Value, other: Value, alpha: Number, symbol: str, of_truths: str) -> Value:
    if call.dtype is DType.BOOL:
        return call.elementwise(f"{{0}} {of_truths} {{1}}" if alpha else "{0} | ({1} & ~{1})", x, other)
    if alpha == 1:
        return call.elementwise(f"{{0}} {symbol} {{1}}", x, other)
    return call.elementwise(f"{{0}} {symbol} {{1}} * {{2}}", x, other, alpha)


@operator(aten.mul.Tensor, aten.mul.Scalar)
def mul(call: Call, x: Value, other: Value) -> Value:
    return call.elementwise("{0} & {1}" if call.dtype is DType.BOOL else "{0} * {1}", x, other)


@operator(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_mode(call: Call, x: Value, other: Value, rounding_mode: str | None = None) -> Value:
    """The quotient as it is, without its fraction, or the whole number below."""
    if rounding_mode is None:
        return call.elementwise("{0} / {1}", x, other)
    if rounding_mode == "floor" and (call.dtype.is_float or call.dtype.is_signed):
        return call.elementwise(_floored(call.dtype), x, other)
    return call.elementwise("trunc({0} / {1})" if call.dtype.is_float else "{0} / {1}", x, other)


def _floored(dtype: DType) -> str:
    """As Python divides, by infinities too, and with the sign of what comes to 0; PyTorch does so."""
    floor = OPERATORS["floor_divide"]
    text = floor.text if dtype.is_float else floor.integers or floor.text
    return text.replace("X0", "{0}").replace("X1", "{1}")


@operator(aten.maximum.default)
def maximum(call: Call, x: Value, other: Value) -> Value:
    return call.elementwise("{0} | {1}" if call.dtype is DType.BOOL else "max({0}, {1})", x, other)


@operator(aten.minimum.default)
def minimum(call: Call, x: Value, other: Value) -> Value:
    return call.elementwise("{0} & {1}" if call.dtype is DType.BOOL else "min({0}, {1})", x, other)


@operator(aten.clamp.default, aten.clamp.Tensor)
def clamp(call: Call, x: Value, min: Value = None, max: Value = None) -> Value:
    """Between bounds that may be absent; where they cross, the upper one counts."""
    if min is None:
        return call.elementwise("min({0}, {1})", x, max)
    if max is None:
        return call.elementwise("max({0}, {1})", x, min)
    return call.elementwise("min(max({0}, {1}), {2})", x, min, max)


@operator(aten.where.self)
def where(call: Call, condition: Value, x: Value, other: Value) -> Value:
    """The second operand where the first is true, else the third."""
    return choice(call, condition, x, other)


def choice(call: Call, condition: Value, x: Value, other: Value) -> Value:
    """``condition ? x : other`` in the dtype of the result."""
    found = [number(v) for v in (x, other)]
    rank = len(condition.shape)
    texts: list[str] = []
    tensors: list[Value] = []
    for value, constant in zip((x, other), found, strict=True):
        if constant is not None and (isinstance(value, bool | int | float) or len(value.shape) <= rank):
            texts.append(written(constant, call.dtype))
        else:
            name = f"X{len(tensors)}"
            texts.append(name if dtype_of(value) is call.dtype else cast(name, call.dtype))
            tensors.append(value)
    test = "C" if dtype_of(condition) is DType.BOOL else "C != 0"
    inputs = ", ".join(["C", *(f"X{k}" for k in range(len(tensors)))])
    value = cast(f"({test} ? {texts[0]} : {texts[1]})", call.dtype)
    return apply(f"function ({inputs}) -> (Y) {{ Y = {value}; }}", condition, *tensors)


@operator(aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar, aten.pow.Scalar)
def power(call: Call, x: Value, exponent: Value) -> Value:
    """Powers; small whole exponents that are known multiply, and half ones take roots."""
    if (
        isinstance(exponent, bool | int | float)
        and exponent in _POWERS
        and (call.dtype.is_float or exponent in (1, 2, 3))
    ):
        return call.elementwise(_POWERS[exponent], x)
    if call.dtype.is_float:
        return call.elementwise("pow({0}, {1})", x, exponent)
    known = number(exponent)
    text = integer_power(call.dtype, number=None if known is None else int(known))
    return apply(text, as_tensor(x, call.dtype), as_tensor(exponent, call.dtype))


_POWERS: dict[Number, str] = {
    1: "{0}",
    2: "{0} * {0}",
    3: "{0} * {0} * {0}",
    -1: "1 / {0}",
    -2: "1 / ({0} * {0})",
    0.5: "sqrt({0})",
    -0.5: "1 / sqrt({0})",
}


# --- activations -----------------------------------------------------------------------------------------


@operator(aten.gelu.default)
def gelu(call: Call, x: Value, approximate: str = "none") -> Value:
    """By the error function, or by `tanh`."""
    return call.elementwise("gelu({0})" if approximate == "none" else _GELU_TANH, x)


_GELU_TANH = f"0.5 * {{0}} * (1 + tanh({(2 / pi) ** 0.5!r} * ({{0}} + 0.044715 * {{0}} * {{0}} * {{0}})))"


@operator(aten.leaky_relu.default)
def leaky_relu(call: Call, x: Value, negative_slope: Number = 0.01) -> Value:
    return call.elementwise("({0} > 0 ? {0} : {0} * {1})", x, negative_slope)


@operator(aten.elu.default)
def elu(call: Call, x: Value, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Value:
    return call.elementwise("({0} > 0 ? {0} * {2} : expm1({0} * {3}) * {1} * {2})", x, alpha, scale, input_scale)


@operator(aten.hardtanh.default)
def hardtanh(call: Call, x: Value, min_val: Number = -1, max_val: Number = 1) -> Value:
    return call.elementwise("min(max({0}, {1}), {2})", x, min_val, max_val)


@operator(aten.threshold_backward.default)
def threshold_backward(call: Call, grad: Value, x: Value, threshold: Number) -> Value:
    return call.elementwise("({1} <= {2} ? 0 : {0})", grad, x, threshold)


# --- conversion ------------------------------------------------------------------------------------------


@operator(aten._to_copy.default, aten.clone.default, aten.alias.default, aten.detach.default, aten.detach_copy.default,
          aten.lift_fresh_copy.default, torch.ops.prims.convert_element_type.default)  # fmt: skip
def converted(call: Call, x: Value, *dtype: object, **how: object) -> Value:
    """Of another dtype; where it lies in memory is the program's business."""
    return call.elementwise("{0}", x) if dtype_of(x) is not call.dtype else x


@operator(aten.copy.default)
def copy(call: Call, x: Value, src: Value, non_blocking: bool = False) -> Value:
    """The second operand in the dtype and shape of the first."""
    from tile_runtime.ops.moving import expanded

    return expanded(call.elementwise("{0}", src), call.shape)
