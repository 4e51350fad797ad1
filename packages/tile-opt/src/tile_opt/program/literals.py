"""Constants of one number as literals: immediate operands instead of loads, and numbers that other rewrites can see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import copysign

import numpy as np
from tile_ir import numerics
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import OPS
from tile_ir.program.nodes import ConstantTensor, Contraction, Elementwise, Literal, Op, Program, Scatter

from tile_opt.program.base import Rewrite


@frozen
class Literals(Rewrite):
    """Write constants without dimensions, and what is computed of nothing else, where elementwise operations and contractions read them."""

    def apply(self, program: Program) -> Program:
        known = {op.name: literal_of(op) for op in program.ops if isinstance(op, ConstantTensor) and not op.type.shape}
        if not known:
            return program
        ops: list[Op] = []
        for op in program.ops:
            ops.append(_written(op, known))
            if isinstance(op, Elementwise) and (value := _computed(op, known)) is not None:
                known[op.name] = value
        return replace(program, ops=tuple(ops))


def one_number(makers: Mapping[str, Op], value: str) -> Literal | None:
    """The one number that all elements of a value are, by what makes each value; None where that is not known."""
    made = makers.get(value)
    while isinstance(made, Elementwise) and made.fn == "ident":
        (source,) = made.args
        if isinstance(source, Literal):
            return source
        made = makers.get(source)
    return literal_of(made) if isinstance(made, ConstantTensor) and made.type.size == 1 else None


def rests_at_identity(op: Scatter, makers: Mapping[str, Op]) -> bool:
    """Cells without a value hold what partial results start at: zeros below sums, the lowest number below maxima."""
    identity = op.agg.identity(op.acc)
    rest = Literal(0, op.acc) if op.default is None else one_number(makers, op.default)
    return rest is not None and rest.value == identity and (bool(identity) or copysign(1, rest.value) > 0)


def literal_of(op: ConstantTensor) -> Literal:
    """The number of a constant of one element."""
    dtype = op.type.dtype
    if dtype is DType.BFLOAT16:  # the upper half of a float32; NumPy alone has no such dtype
        return Literal(np.frombuffer(b"\0\0" + bytes(op.data), "<f4")[0].item(), dtype)
    return Literal(np.frombuffer(op.data, dtype.numpy.newbyteorder("<"))[0].item(), dtype)


def _computed(op: Elementwise, known: Mapping[str, Literal]) -> Literal | None:
    """The number that an operation on known integers gives: on all devices the same."""
    numbers = [n for a in op.args if (n := known.get(a) if isinstance(a, str) else a) is not None]
    exact = not any(dtype.is_float for dtype in (op.type.dtype, *(n.dtype for n in numbers)))
    if not exact or len(numbers) < len(op.args) or op.type.shape or op.params or op.fn not in OPS:
        return None
    given = [np.asarray(n.value, n.dtype.numpy) for n in numbers]
    return Literal(numerics.apply(op.fn, given, op.type.dtype).item(), op.type.dtype)


def _written(op: Op, known: Mapping[str, Literal]) -> Op:
    match op:
        case Elementwise(args=args):
            found = tuple(known.get(a, a) if isinstance(a, str) else a for a in args)
            return replace(op, args=found) if any(isinstance(a, str) for a in found) else op
        case Contraction(loads=loads):
            found = tuple(
                replace(x, tensor=known.get(x.tensor, x.tensor)) if isinstance(x.tensor, str) else x for x in loads
            )
            return replace(op, loads=found) if any(isinstance(x.tensor, str) for x in found) else op
        case _:
            return op
