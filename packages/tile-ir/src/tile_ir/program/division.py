"""A program in parts that run one after the other: operations of two kinds, which no part mixes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from tile_ir.frozen import frozen
from tile_ir.program.liveness import defined_by, live_ops, used_by
from tile_ir.program.nodes import ConstantTensor, Op, Param, Program, TensorType


@frozen
class Part:
    """Operations that run together, as a program of their own; its inputs and outputs are called like the values that they are."""

    away: bool
    """They are of the kind that was set apart."""
    program: Program


def divide(program: Program, is_away: Callable[[Op], bool]) -> tuple[Part, ...]:
    """The parts, in the order that they run in; constants are copied into each part that reads them."""
    wanted = [value for _, value in program.outputs]
    ops = live_ops(program.ops, wanted)
    constants = {op.name: op for op in ops if isinstance(op, ConstantTensor)}
    stages = _stages([op for op in ops if not isinstance(op, ConstantTensor) or op.name in wanted], is_away)
    types, params = program.types(), {p.name: p for p in program.inputs}
    parts: list[Part] = []
    for number, inside in sorted(stages.items()):
        later = {name for n, others in stages.items() if n != number for op in others for name in used_by(op)}
        made = _program(program.name, inside, {*wanted, *later}, constants, params, types)
        parts.append(Part(bool(number % 2), made))
    return tuple(parts)


def _stages(ops: Sequence[Op], is_away: Callable[[Op], bool]) -> dict[int, list[Op]]:
    """Operations by stages that run one after the other; those of the kind set apart have the odd ones to themselves."""
    stages: dict[int, list[Op]] = {}
    stage_of: dict[str, int] = {}
    for op in ops:
        away = is_away(op)
        before = [stage_of[name] for name in used_by(op) if name in stage_of]
        stage = max((b + (b % 2 != away) for b in before), default=int(away))
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
