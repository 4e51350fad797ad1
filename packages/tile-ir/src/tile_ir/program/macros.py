"""Functions that Program keeps whole for their derivatives, and what they compute in scalar operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tile_ir.dtype import DType
from tile_ir.program.nodes import Literal, Operand, ScalarStatement

Statements = list[ScalarStatement]


def literal(value: int | float, dtype: DType) -> Literal:
    """A Literal whose Python value has the dtype's kind."""
    return Literal(float(value) if dtype.is_float else bool(value) if dtype is DType.BOOL else int(value), dtype)


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


def _identity(args: Sequence[Operand], dtype: DType) -> Statements:
    return [ScalarStatement("$result", "ident", (args[0],), dtype)]


MACROS: dict[str, Callable[[Sequence[Operand], DType], Statements]] = {
    "relu": _relu,
    "sigmoid": _sigmoid,
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
