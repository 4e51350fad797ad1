"""A program in the order in which its parts run: programs without loops, and loops."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tile_ir.program.liveness import defined_by, live_ops, used_by
from tile_ir.program.nodes import ConstantTensor, Loop, Op, Param, Program, TensorType


def has_loops(program: Program) -> bool:
    """Whether an operation of the program is a loop."""
    return any(isinstance(op, Loop) for op in program.ops)


def divide(program: Program) -> tuple[Program | Loop, ...]:
    """The parts, in the order that they run in; constants are copied into each part that reads them.

    The inputs and outputs of parts are called like the values that they are.
    """
    wanted = [value for _, value in program.outputs]
    ops = live_ops(program.ops, wanted)
    constants = {op.name: op for op in ops if isinstance(op, ConstantTensor)}
    stages = _stages([op for op in ops if not isinstance(op, ConstantTensor)])
    types, params = program.types(), {p.name: p for p in program.inputs}
    parts: list[Program | Loop] = []
    for number, inside in sorted(stages.items()):
        loops = [op for op in inside if isinstance(op, Loop)]
        if loops:
            parts += loops
            continue
        read = {name for n, others in stages.items() if n != number for op in others for name in used_by(op)}
        parts.append(_program(program.name, inside, {*wanted, *read}, constants, params, types))
    return tuple(parts)


def _stages(ops: Sequence[Op]) -> dict[int, list[Op]]:
    """Operations by stages that run one after the other; loops have the odd ones to themselves."""
    stages: dict[int, list[Op]] = {}
    stage_of: dict[str, int] = {}
    for op in ops:
        odd = isinstance(op, Loop)
        before = [stage_of[name] for name in used_by(op) if name in stage_of]
        stage = max((b + (b % 2 != odd) for b in before), default=int(odd))
        stage_of |= dict.fromkeys(defined_by(op), stage)
        stages.setdefault(stage, []).append(op)
    return stages


def _program(
    name: str,
    ops: Sequence[Op],
    wanted: Collection[str],
    constants: Mapping[str, ConstantTensor],
    params: Mapping[str, Param],
    types: Mapping[str, TensorType],
) -> Program:
    """Operations as a program that reads what others define and gives what others, or the caller, want."""
    defined = [n for op in ops for n in defined_by(op)]
    read = dict.fromkeys(n for op in ops for n in used_by(op) if n not in defined)
    copies = tuple(constants[n] for n in read if n in constants)
    inputs = tuple(params.get(n) or Param(n, types[n]) for n in read if n not in constants)
    return Program(name, inputs, (*copies, *ops), tuple((n, n) for n in defined if n in wanted))
