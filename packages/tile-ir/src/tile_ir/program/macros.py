"""Functions that Program keeps whole for their derivatives, and what they compute in scalar operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import sqrt

from tile_ir.dtype import DType
from tile_ir.program.nodes import Literal, Operand, ScalarStatement

Statements = list[ScalarStatement]
Macro = Callable[[Sequence[Operand], DType], Statements]
"""Operands and dtype of a call to the statements that compute it; the last one is ``$result``."""


def literal(value: int | float, dtype: DType) -> Literal:
    """A Literal whose Python value has the dtype's kind."""
    return Literal(dtype.number(value), dtype)


def _relu(args: Sequence[Operand], dtype: DType) -> Statements:
    zero = literal(0, dtype)
    return [
        ScalarStatement("$negative", "cmp_lt", (args[0], zero), DType.BOOL),
        ScalarStatement("$result", "cond", ("$negative", zero, args[0]), dtype),
    ]


def _sigmoid(args: Sequence[Operand], dtype: DType) -> Statements:
    one = literal(1, dtype)
    return [
        ScalarStatement("$minus", "neg", (args[0],), dtype),
        ScalarStatement("$power", "exp", ("$minus",), dtype),
        ScalarStatement("$sum", "add", (one, "$power"), dtype),
        ScalarStatement("$result", "div", (one, "$sum"), dtype),
    ]


def _silu(args: Sequence[Operand], dtype: DType) -> Statements:
    *sigmoid, quotient = _sigmoid(args, dtype)
    return [*sigmoid, replace(quotient, args=(args[0], "$sum"))]


def _softplus(args: Sequence[Operand], dtype: DType) -> Statements:
    return [
        ScalarStatement("$size", "abs", (args[0],), dtype),
        ScalarStatement("$minus", "neg", ("$size",), dtype),
        ScalarStatement("$power", "exp", ("$minus",), dtype),
        ScalarStatement("$rest", "log1p", ("$power",), dtype),
        ScalarStatement("$positive", "max", (args[0], literal(0, dtype)), dtype),
        ScalarStatement("$result", "add", ("$positive", "$rest"), dtype),
    ]


def _gelu(args: Sequence[Operand], dtype: DType) -> Statements:
    return [
        ScalarStatement("$scaled", "mul", (args[0], literal(sqrt(0.5), dtype)), dtype),
        ScalarStatement("$erf", "erf", ("$scaled",), dtype),
        ScalarStatement("$sum", "add", ("$erf", literal(1, dtype)), dtype),
        ScalarStatement("$half", "mul", (args[0], literal(0.5, dtype)), dtype),
        ScalarStatement("$result", "mul", ("$half", "$sum"), dtype),
    ]


def _in_float32(make: Macro) -> Macro:
    """The same for half precision, whose range the intermediate values would leave: rounded once, at the end."""

    def wide(args: Sequence[Operand], dtype: DType) -> Statements:
        if dtype not in (DType.FLOAT16, DType.BFLOAT16):
            return make(args, dtype)
        cast = ScalarStatement("$wide", "cast", (args[0],), DType.FLOAT32)
        *steps, last = make(("$wide",), DType.FLOAT32)
        narrow = ScalarStatement("$result", "cast", ("$single",), dtype)
        return [cast, *steps, replace(last, dst="$single"), narrow]

    return wide


def _sign(args: Sequence[Operand], dtype: DType) -> Statements:
    zero, one = literal(0, dtype), literal(1, dtype)
    positive = ScalarStatement("$positive", "cmp_gt", (args[0], zero), DType.BOOL)
    if not dtype.min_value < 0:
        return [positive, ScalarStatement("$result", "cond", ("$positive", one, args[0]), dtype)]
    return [
        positive,
        ScalarStatement("$negative", "cmp_lt", (args[0], zero), DType.BOOL),
        ScalarStatement("$other", "cond", ("$negative", literal(-1, dtype), args[0]), dtype),
        ScalarStatement("$result", "cond", ("$positive", one, "$other"), dtype),
    ]


def _mod(args: Sequence[Operand], dtype: DType) -> Statements:
    """The remainder with the divisor's sign; of integers by 0 it is 0."""
    b, zero = args[1], literal(0, dtype)
    negative_zero = literal(-0.0, dtype) if dtype.is_float else zero
    return [
        *(_float_rest if dtype.is_float else _integer_rest)(args, dtype),
        ScalarStatement("$low", "cmp_lt", (b, zero), DType.BOOL),
        ScalarStatement("$under", "cmp_lt", ("$rest", zero), DType.BOOL),
        ScalarStatement("$apart", "bit_xor", ("$low", "$under"), DType.BOOL),
        ScalarStatement("$moved", "add", ("$rest", b), dtype),
        ScalarStatement("$chosen", "cond", ("$apart", "$moved", "$rest"), dtype),
        ScalarStatement("$nothing", "cond", ("$low", negative_zero, zero), dtype),
        ScalarStatement("$result", "cond", ("$none", "$nothing", "$chosen"), dtype),
    ]


def _float_rest(args: Sequence[Operand], dtype: DType) -> Statements:
    return [
        ScalarStatement("$rest", "fmod", (args[0], args[1]), dtype),
        ScalarStatement("$none", "cmp_eq", ("$rest", literal(0, dtype)), DType.BOOL),
    ]


def _integer_rest(args: Sequence[Operand], dtype: DType) -> Statements:
    a, b = args
    zero = literal(0, dtype)
    return [
        ScalarStatement("$quotient", "div", (a, b), dtype),
        ScalarStatement("$whole", "mul", ("$quotient", b), dtype),
        ScalarStatement("$rest", "sub", (a, "$whole"), dtype),
        ScalarStatement("$even", "cmp_eq", ("$rest", zero), DType.BOOL),
        ScalarStatement("$by_zero", "cmp_eq", (b, zero), DType.BOOL),
        ScalarStatement("$none", "bit_or", ("$even", "$by_zero"), DType.BOOL),
    ]


def _identity(args: Sequence[Operand], dtype: DType) -> Statements:
    return [ScalarStatement("$result", "ident", (args[0],), dtype)]


MACROS: dict[str, Macro] = {
    "relu": _relu,
    "sigmoid": _sigmoid,
    "silu": _in_float32(_silu),
    "softplus": _in_float32(_softplus),
    "gelu": _in_float32(_gelu),
    "sign": _sign,
    "mod": _mod,
    "stop_gradient": _identity,
    "reverse_grad": _identity,
}
"""Expansion by function name. ``relu`` passes NaN on; ``reverse_grad`` and ``stop_gradient`` change gradients only."""


def expand(fn: str, args: Sequence[Operand], dtype: DType) -> Statements:
    """The scalar statements of ``fn(args…)`` in `dtype`; the last one defines the result.

    For an operation of `tile_ir.ops.OPS` that is one statement. Intermediate names start with ``$``.
    """
    if fn in MACROS:
        return MACROS[fn](args, dtype)
    return [ScalarStatement("$result", fn, tuple(args), dtype)]
