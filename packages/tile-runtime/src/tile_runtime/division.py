"""A program in parts that run on two devices, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tile_hal.interfaces import Device
from tile_ir.program.liveness import defined_by, live_ops, used_by
from tile_ir.program.nodes import ConstantTensor, Op, Param, Program, TensorType

from tile_runtime.requirements import bits_missing, op_needs


@dataclass(frozen=True, slots=True)
class Part:
    """Operations that run together, as a program of their own; its outputs are called like the values that they are."""

    away: bool
    """They run on the other device."""
    program: Program


def lacking(program: Program, device: Device) -> dict[str, str]:
    """What `device` lacks for an operation, such as "no float64", by the operation's first name, where it lacks anything."""
    have = device.capabilities.dtypes
    types = program.types()
    found: dict[str, str] = {}
    for op in program.ops:
        read = [types[name].dtype for name in used_by(op)]
        missing = dict.fromkeys(d.value for d in (*(n[1] for n in op_needs(op)), *read) if d not in have)
        if bits_missing(op, device):
            missing["way to reinterpret bits"] = None
        if missing:
            found[defined_by(op)[0]] = f"no {' and '.join(missing)}"
    return found


def divide(program: Program, away: Collection[str]) -> tuple[Part, ...]:
    """The parts, in the order that they run in; operations whose first name is in `away` run on the other device."""
    wanted = [value for _, value in program.outputs]
    ops = live_ops(program.ops, wanted)
    constants = {op.name: op for op in ops if isinstance(op, ConstantTensor)}
    stages: dict[int, list[Op]] = {}
    stage_of: dict[str, int] = {}
    for op in ops:
        if isinstance(op, ConstantTensor) and op.name not in wanted:
            continue  # every part that reads it has it
        stage = _stage(op, defined_by(op)[0] in away, stage_of)
        stage_of |= dict.fromkeys(defined_by(op), stage)
        stages.setdefault(stage, []).append(op)
    types = program.types()
    params = {p.name: p for p in program.inputs}
    parts: list[Part] = []
    for number, inside in sorted(stages.items()):
        later = {name for n, others in stages.items() if n != number for op in others for name in used_by(op)}
        made = _program(program.name, inside, {*wanted, *later}, constants, params, types)
        parts.append(Part(bool(number % 2), made))
    return tuple(parts)


def _stage(op: Op, away: bool, stage_of: Mapping[str, int]) -> int:
    """After all that it reads; those of the other device have odd numbers."""
    stage = int(away)
    for name in used_by(op):
        before = stage_of.get(name, stage)
        stage = max(stage, before if before % 2 == away else before + 1)
    return stage


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
    outputs = tuple((n, n) for n in defined if n in wanted)
    return Program(name, inputs, (*copies, *ops), outputs)
