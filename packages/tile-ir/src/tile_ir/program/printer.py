"""The text form of a Program: typed SSA that reads like Tile, with ``parse_program(print_program(p)) == p``.

Spans are not part of it, nor of equality. One statement per operation::

    program main (A: float32[2, 3], B: float32[3, 4]) -> (C = C) {
      C[i, j : 2, 4]: float32 = +($r0: float32) over [i, j, k] where i < 2, j < 4, i < 2, k < 3, k < 3, j < 4 {
        $0 = A[i, k];
        $1 = B[k, j];
        $r0: float32 = mul($0, $1);
      } "C[i, j : M, N] = +(A[i, k] * B[k, j])";
      R: float32[2, 4] = max(C, 0.0: float32);
    }

The dtype behind the aggregated value is that of the accumulator; ``f < n`` means ``0 <= f < n``. Custom gradients
follow the operations: ``gradient of (Y) by (X) program … {…};``. A loop holds its body:
``(H, Y): (float32[4], float32[9, 4]) = loop 9 from (H0) over (X) with (W) program … {…};``.
"""

from __future__ import annotations

import json
import math
import re
from typing import TypeVar

from tile_ir.program.nodes import (
    Argsort,
    ConstantTensor,
    Contraction,
    CustomGradient,
    Elementwise,
    Gather,
    IndexOf,
    Loop,
    Op,
    Operand,
    Poly,
    Prng,
    Program,
    Reshape,
    Scatter,
    Subscript,
)

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z_$][\w$.']*")
_SPECIAL = {"inf": math.inf, "nan": math.nan, "true": True, "false": False}


def print_program(program: Program) -> str:
    """The program's text."""
    inputs = ", ".join(f"{_name(p.name)}: {p.type}{' bound' if p.bound else ''}" for p in program.inputs)
    outputs = ", ".join(f"{_name(public)} = {_name(value)}" for public, value in program.outputs)
    lines = [f"program {_name(program.name)} ({inputs}) -> ({outputs}) {{"]
    lines += [f"  {print_op(op)};" for op in program.ops]
    lines += [f"  {_gradient(g)};" for g in program.gradients]
    return "\n".join([*lines, "}", ""])


def _gradient(rule: CustomGradient) -> str:
    return f"gradient of ({_list(rule.outputs)}) by ({_list(rule.inputs)}) {_nested(rule.backward)}"


def print_op(op: Op) -> str:
    """One operation, without the semicolon."""
    match op:
        case Contraction():
            return _contraction(op)
        case Elementwise(name, type_, fn, args, params):
            extra = "".join(f"; {_number(p)}" for p in params)
            return f"{_name(name)}: {type_} = {fn}({_list(args)}{extra})"
        case IndexOf(name, type_, axis):
            return f"{_name(name)}: {type_} = index({axis})"
        case Reshape(name, type_, arg):
            return f"{_name(name)}: {type_} = reshape({_name(arg)})"
        case Argsort(name, type_, arg, axis, descending):
            return f"{_name(name)}: {type_} = argsort({_name(arg)}, {axis}{', descending' if descending else ''})"
        case Gather(name, type_, data, subscripts):
            return f"{_name(name)}: {type_} = gather({_name(data)}[{_subscripts(subscripts)}])"
        case Scatter(name, type_, updates, subscripts, agg, default):
            tail = f" default {_name(default)}" if default is not None else ""
            return f"{_name(name)}: {type_} = scatter({agg.symbol} {_name(updates)}, [{_subscripts(subscripts)}]{tail})"
        case Prng(value, state, type_, seed):
            return f"{_name(value)}, {_name(state)}: {type_} = prng_step({_name(seed)})"
        case ConstantTensor(name, type_, contents):
            return f'{_name(name)}: {type_} = constant("{contents.view.hex()}")'
        case Loop():
            return _loop(op)


def _contraction(op: Contraction) -> str:
    shape = ", ".join(map(str, op.type.shape))
    head = f"{_name(op.name)}[{', '.join(map(str, op.output))} : {shape}]: {op.type.dtype}"
    domain = f"over [{', '.join(op.indexes)}] where {', '.join(f'{c.formula} < {c.size}' for c in op.constraints)}"
    lines = [f"{head} = {op.agg.symbol}({_operand(op.result)}: {op.acc}) {domain} {{"]
    lines += [f"    {x.dst} = {_operand(x.tensor)}[{', '.join(map(str, x.formulas))}];" for x in op.loads]
    lines += [f"    {s.dst}: {s.dtype} = {s.fn}({_list(s.args)});" for s in op.body]
    tail = "  }"
    if op.default is not None:
        tail += f" default {_name(op.default)}"
    tail += " no_defract" if op.no_defract else ""
    tail += f" {json.dumps(op.text)}" if op.text else ""
    return "\n".join([*lines, tail])


def _loop(op: Loop) -> str:
    head = f"({_list(op.results)}): ({', '.join(map(str, op.types))}) = loop {op.count}"
    groups = f"from ({_list(op.carries)}) over ({_list(op.slices)}) with ({_list(op.captured)})"
    tail = f"{' reverse' if op.reverse else ''}{f' checkpoint {op.checkpoint}' if op.checkpoint else ''}"
    return f"{head} {groups}{tail} {_nested(op.body)}"


def _nested(program: Program) -> str:
    return print_program(program).rstrip().replace("\n", "\n  ")


def _subscripts(subscripts: tuple[Subscript, ...]) -> str:
    return ", ".join(map(_subscript, subscripts))


def _subscript(subscript: Subscript) -> str:
    if isinstance(subscript, Poly):
        return str(subscript)
    return f"{_name(subscript.tensor)}[{', '.join(map(str, subscript.formulas))}]"


def _name(name: str) -> str:
    return name if _NAME.fullmatch(name) and name not in _SPECIAL else json.dumps(name)


def _number(value: int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _operand(operand: Operand) -> str:
    return _name(operand) if isinstance(operand, str) else f"{_number(operand.value)}: {operand.dtype}"


def _list(operands: tuple[Operand, ...]) -> str:
    return ", ".join(map(_operand, operands))
