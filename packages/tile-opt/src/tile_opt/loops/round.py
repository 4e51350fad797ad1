"""What a round of a loop computes, and where it goes: the same whether rounds are steps of a kernel list or of one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tile_ir.frozen import frozen
from tile_ir.program.liveness import defined_by, used_by
from tile_ir.program.nodes import ConstantTensor, Loop, Op, Program


@frozen
class Round:
    """One round of `loop`."""

    loop: Loop
    body: Program
    """What is compiled: each value that a round leaves is one output, and constants that it captures are its own."""
    sources: tuple[int | str, ...]
    """What each carry becomes: another carry, or a value that a round leaves."""
    rows: tuple[str, ...]
    """What each stack gets a row of."""
    outputs: Mapping[str, str]
    """The value behind each name of what a round leaves, in the order of the body's outputs."""
    captured: tuple[str, ...]
    """The program's values behind the body's inputs that are neither carried nor cut."""


def round_of(loop: Loop, program: Program) -> Round:
    """A round of a loop of `program`, whose constants may be captured."""
    body, carried = loop.body, len(loop.carries)
    places = {p.name: k for k, p in enumerate(body.inputs[:carried])}
    made = {n for op in body.ops if not isinstance(op, ConstantTensor) for n in defined_by(op)}
    values = [value for _, value in body.outputs]
    outputs = {v: v for v in values[:carried] if v not in places}
    rows: list[str] = []
    for k, value in enumerate(values[carried:]):
        rows.append(value if value in made and value not in rows else f"{value} {k}")
        outputs[rows[-1]] = value
    sources = tuple(places.get(v, v) for v in values[:carried])
    known = {op.name: op for op in program.ops if isinstance(op, ConstantTensor)}
    captured = tuple(name for name in loop.captured if name not in known)
    return Round(loop, _compiled(loop, known, tuple(outputs.values())), sources, tuple(rows), outputs, captured)


def _compiled(loop: Loop, known: Mapping[str, ConstantTensor], left: tuple[str, ...]) -> Program:
    body = loop.body
    before = len(body.inputs) - len(loop.captured)
    inputs, constants = list(body.inputs[:before]), list[Op]()
    for param, name in zip(body.inputs[before:], loop.captured, strict=True):
        if name in known:
            constants.append(replace(known[name], name=param.name))
        else:
            inputs.append(replace(param, bound=True))
    outputs = tuple((f"Left{k}", value) for k, value in enumerate(left))
    return Program(body.name, tuple(inputs), (*constants, *body.ops), outputs)


def needed(program: Program) -> set[str]:
    """The values that something of the program reads, its outputs included."""
    return {value for _, value in program.outputs} | {n for op in program.ops for n in used_by(op)}
