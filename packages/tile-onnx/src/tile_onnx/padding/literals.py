"""The literals among an operation's operands, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tile_ir.program.nodes import Contraction, Elementwise, Literal, Op, Operand


def literals(op: Op) -> tuple[Literal, ...]:
    """Those that an operation computes with."""
    return tuple(a for a in _operands(op) if isinstance(a, Literal))


def _operands(op: Op) -> Iterator[Operand]:
    match op:
        case Elementwise():
            yield from op.args
        case Contraction():
            yield from (load.tensor for load in op.loads)
            yield from (a for s in op.body for a in s.args)
            yield op.result
        case _:
            pass


def without_literals(op: Op) -> Op:
    """The operation with nothing in the place of each literal, for comparing."""
    return substituted(op, lambda literal: Literal(0, literal.dtype))


def substituted(op: Op, new: Callable[[Literal], Operand]) -> Op:
    """The operation with other operands for its literals; `new` is called in order."""

    def operand(given: Operand) -> Operand:
        return new(given) if isinstance(given, Literal) else given

    match op:
        case Elementwise():
            return replace(op, args=tuple(map(operand, op.args)))
        case Contraction():
            loads = tuple(replace(load, tensor=operand(load.tensor)) for load in op.loads)
            body = tuple(replace(s, args=tuple(map(operand, s.args))) for s in op.body)
            return replace(op, loads=loads, body=body, result=operand(op.result))
        case _:
            return op
