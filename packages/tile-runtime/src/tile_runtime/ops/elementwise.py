"""Operators that compute each element by itself: names of NumPy's functions, Tile's text, and the dtypes of results.

Tensors of different dtypes meet as `docs/language.md` says; a Python number takes the dtype of what it meets, unless that
cannot hold its kind: an integer with 0.5 gives float32, a truth value with 2 int32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache, reduce
from math import log, sqrt
from typing import Any, TypeGuard

import numpy as np
from tile_ir.dtype import DType, promote
from tile_ir.frozen import frozen

from tile_runtime.ops.text import cast, expression, function, names
from tile_runtime.ops.values import TEXTS, Value, apply, dtype_of

Number = bool | int | float
Kind = DType | type[Number]
"""The dtype of a tensor; a Python number's type."""


class Result(Enum):
    """Which dtype an operator computes in, and gives."""

    SAME = "that of its operands"
    FLOAT = "that of its operands, or float32 where they are integers"
    TRUTH = "bool, of operands that met in one dtype"


@frozen
class Operator:
    """Text of operands ``X0``, ``X1``, …; `integers` is what integers take instead."""

    text: str
    result: Result = Result.SAME
    integers: str | None = None
    truths: str | None = None


def _floats(text: str) -> Operator:
    return Operator(text, Result.FLOAT)


def _whole(text: str) -> Operator:
    return Operator(text, integers="X0", truths="X0")


_BELOW = "fmod(X0, X1) != 0 & (X0 < 0) != (X1 < 0)"
_QUOTIENT = (
    "X1 == 0 ? X0 / X1 : (fmod(X0, X1) == X0 & (X0 == 0 | (X0 < 0) == (X1 < 0)) ? X0 / X1 * 0 :"
    f" round_even((X0 - fmod(X0, X1)) / X1) - ({_BELOW} ? 1 : 0))"
)
"""Of what a remainder leaves, as Python has it: ``floor(1.0 / 0.1)`` is 10, ``1.0 // 0.1`` is 9."""
_LONG, _SHORT = "max(abs(X0), abs(X1))", "min(abs(X0), abs(X1))"
_HYPOTENUSE = (
    "abs(X0) == inf | abs(X1) == inf ? inf : "
    f"({_LONG} == {_SHORT} ? {_LONG} * {sqrt(2)} : {_LONG} * sqrt(1 + {_SHORT} / {_LONG} * ({_SHORT} / {_LONG})))"
)
"""Squares of large numbers would be infinite; infinity beside NaN is."""

OPERATORS: Mapping[str, Operator] = {
    "add": Operator("X0 + X1", truths="X0 | X1"),
    "subtract": Operator("X0 - X1"),
    "multiply": Operator("X0 * X1", truths="X0 & X1"),
    "divide": _floats("X0 / X1"),
    "floor_divide": Operator(_QUOTIENT, integers=f"{_BELOW} ? X0 / X1 - 1 : X0 / X1"),
    "remainder": Operator("mod(X0, X1)"),
    "pow": _floats("pow(X0, X1)"),
    "atan2": _floats("atan2(X0, X1)"),
    "copysign": _floats("X1 < 0 | (X1 == 0 & 1 / X1 < 0) ? -abs(X0) : abs(X0)"),
    "hypot": _floats(_HYPOTENUSE),
    "logaddexp": _floats(f"X0 == X1 ? 0.5 * X0 + 0.5 * X1 + {log(2)} : max(X0, X1) + log1p(exp(-abs(X0 - X1)))"),
    "maximum": Operator("max(X0, X1)", truths="X0 | X1"),
    "minimum": Operator("min(X0, X1)", truths="X0 & X1"),
    "equal": Operator("X0 == X1", Result.TRUTH),
    "not_equal": Operator("X0 != X1", Result.TRUTH),
    "less": Operator("X0 < X1", Result.TRUTH),
    "less_equal": Operator("X0 <= X1", Result.TRUTH),
    "greater": Operator("X0 > X1", Result.TRUTH),
    "greater_equal": Operator("X0 >= X1", Result.TRUTH),
    "bitwise_and": Operator("X0 & X1"),
    "bitwise_or": Operator("X0 | X1"),
    "bitwise_xor": Operator("X0 ^ X1"),
    "bitwise_left_shift": Operator("X0 << X1"),
    "bitwise_right_shift": Operator("X0 >> X1"),
    "bitwise_invert": Operator("~X0", truths="X0 == 0"),
    "logical_and": Operator("(X0 != 0) & (X1 != 0)", Result.TRUTH),
    "logical_or": Operator("(X0 != 0) | (X1 != 0)", Result.TRUTH),
    "logical_xor": Operator("(X0 != 0) != (X1 != 0)", Result.TRUTH),
    "logical_not": Operator("X0 == 0", Result.TRUTH),
    "negative": Operator("-X0"),
    "positive": Operator("X0"),
    "abs": Operator("abs(X0)", truths="X0"),
    "square": Operator("X0 * X0"),
    "reciprocal": _floats("1 / X0"),
    "sign": Operator("X0 != X0 ? X0 : sign(X0)", integers="sign(X0)"),
    "signbit": Operator("X0 < 0 | (X0 == 0 & 1 / X0 < 0)", Result.TRUTH, integers="X0 < 0"),
    "isnan": Operator("isnan(X0)", Result.TRUTH),
    "isinf": Operator("isinf(X0)", Result.TRUTH),
    "isfinite": Operator("isfinite(X0)", Result.TRUTH),
    "ceil": _whole("ceil(X0)"),
    "floor": _whole("floor(X0)"),
    "trunc": _whole("trunc(X0)"),
    "round": _whole("round_even(X0)"),
    "log2": _floats("log(X0) / 0.6931471805599453"),
    "log10": _floats("log(X0) / 2.302585092994046"),
    **{name: _floats(f"{name}(X0)") for name in ("exp", "expm1", "log", "log1p", "sqrt", "erf", "sin", "cos", "tan")},
    **{name: _floats(f"{name}(X0)") for name in ("asin", "acos", "atan", "sinh", "cosh", "tanh")},
    **{name: _floats(f"{name}(X0)") for name in ("asinh", "acosh", "atanh", "sigmoid", "silu", "gelu", "softplus")},
    "relu": Operator("relu(X0)"),
    "where": Operator("X0 ? X1 : X2"),
}
"""By name."""

_PRODUCTS = {0: "(X0 == 0 ? X0 : 0) * 0 + 1", 1: "X0", 2: "X0 * X0", 3: "X0 * X0 * X0", 4: "X0 * X0 * X0 * X0"}
"""Powers by these exponents multiply."""


COMPARISONS = frozenset(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"))
"""Operators that answer for integers, too, that the dtype of a tensor does not hold."""


def applied(name: str, *operands: Value | Number) -> Value:
    """The operator of this name on tensors, at least one, and Python numbers; shapes broadcast."""
    return apply(*form(name, operands))


def form(name: str, operands: Sequence[Value | Number]) -> tuple[str, *tuple[Value, ...]]:
    """The operator as the text of a function, and its operands as tensors."""
    source, dtypes = _form(name, tuple(map(kind_of, operands)))
    return (source, *map(as_tensor, operands, dtypes))


@lru_cache(TEXTS)
def _form(name: str, kinds: tuple[Kind, ...]) -> tuple[str, tuple[DType, ...]]:
    """The text, and in which dtype each operand is a tensor where it is a number."""
    operator, tests = OPERATORS[name], kinds[: name == "where"]
    rest = kinds[len(tests) :]
    met = _met(rest)
    computed = DType.FLOAT32 if operator.result is Result.FLOAT and not met.is_float else met
    text = _text(operator, computed)
    for k, kind in enumerate(rest, len(tests)):
        if isinstance(kind, DType) and kind is not computed:
            text = text.replace(f"X{k}", cast(f"X{k}", computed))
    inputs = ", ".join(names(len(kinds), "X"))
    return expression(inputs, text), (*(DType.BOOL for _ in tests), *(computed for _ in rest))


def _text(operator: Operator, dtype: DType) -> str:
    if dtype is DType.BOOL and operator.truths is not None:
        return operator.truths
    return operator.text if dtype.is_float or operator.integers is None else operator.integers


def powered(base: Value | Number, exponent: Value | Number) -> Value:
    """``base ** exponent``: small whole exponents multiply, integers stay integers."""
    met = meeting((base, exponent))
    if is_number(exponent) and exponent in _PRODUCTS and not is_number(base):
        return apply(expression("X0", _PRODUCTS[int(exponent)]), converted(base, met))
    if met.is_integer:
        known = int(exponent) if is_number(exponent) else None
        return apply(integer_power(met, number=known), as_tensor(base, met), as_tensor(exponent, met))
    return applied("pow", base, exponent)


def integer_power(dtype: DType, exponent: DType | None = None, number: int | None = None) -> str:
    """The function of X and N, by squaring: wraps as products do; a negative exponent gives 0 unless the base is 1 or -1.

    X is made `dtype`, N `exponent`, or that, too; `number` is what all of N are, where that is known: it has fewer bits.
    """
    counted = exponent or dtype
    bits = counted.bits - counted.is_signed if number is None else max(number.bit_length(), 1)
    steps = [f"B = {cast('X', dtype)};", f"E = {cast('N', counted)};", "P0 = B * 0 + 1;", "S0 = B;"]
    for k in range(bits):
        steps += [f"P{k + 1} = (E >> {k} & 1) == 1 ? P{k} * S{k} : P{k};", f"S{k + 1} = S{k} * S{k};"]
    value = f"P{bits}"
    if counted.is_signed:
        ones = "(B == 1) | (B == -1)" if dtype.is_signed else "B == 1"
        value = f"E < 0 ? ({ones} ? ((E & 1) == 1 ? B : B * B) : B * 0) : {value}"
    return function(("X", "N"), ("Y",), *steps, f"Y = {value};")


def is_number(value: Value | Number) -> TypeGuard[Number]:
    """Whether it is one of Python's numbers, which take the dtype of what they meet."""
    return type(value) in (bool, int, float)


def kind_of(value: Value | Number) -> Kind:
    """The type of a Python number, the dtype of a tensor."""
    return type(value) if is_number(value) else dtype_of(value)


def meeting(values: Sequence[Value | Number]) -> DType:
    """The dtype in which tensors and numbers meet."""
    return _met(tuple(map(kind_of, values)))


@lru_cache(TEXTS)
def _met(kinds: tuple[Kind, ...]) -> DType:
    met = reduce(promote, [k for k in kinds if isinstance(k, DType)] or [DType.BOOL])
    for number in kinds:
        if number is float and not met.is_float:
            met = DType.FLOAT32
        elif number is int and met is DType.BOOL:
            met = DType.INT32
    return met


def holds(dtype: DType, value: Number) -> bool:
    """Whether a number is none that integers of the dtype leave out."""
    return not dtype.is_integer or dtype.min_value <= value <= dtype.max_value


def as_tensor(value: Value | Number, dtype: DType) -> Value:
    """A Python number as a tensor without dimensions; a tensor as it is. OverflowError for an integer that does not fit."""
    if not is_number(value):
        return value
    if not holds(dtype, value):
        raise OverflowError(f"{value} does not fit {dtype}")
    return np.asarray(value, dtype.numpy)


def nothing(value: Value) -> Value:
    """Zeros (int32) in the shape of integers."""
    return apply(expression("X", cast("X - X", DType.INT32)), value)


def converted(value: Value, dtype: DType) -> Value:
    """`value` in another dtype, as Tile's casts do it."""
    return value if dtype_of(value) is dtype else apply(expression("X", cast("X", dtype)), value)


def fills(value: Number, like: Sequence[Any] = ()) -> DType:
    """The dtype of an array filled with a Python number: bool, int32 or float32, as literals in Tile."""
    return meeting((value, *like))
