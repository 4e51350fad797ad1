"""Loops of one round are no loops: their body fuses with what is around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tile_ir.names import claim
from tile_ir.program.nodes import Elementwise, Loop, Op, Program, Reshape
from tile_ir.program.rename import spliced

from tile_opt.program.base import with_each


def inlined(program: Program) -> Program:
    """The program with the bodies of loops of one round in their place, those in other loops' bodies too."""
    if not any(isinstance(op, Loop) for op in program.ops):
        return program
    taken = set(program.types())
    return with_each(program, lambda op: _made(op, taken))


def _made(op: Op, taken: set[str]) -> Iterator[Op]:
    if not isinstance(op, Loop):
        yield op
        return
    body = inlined(op.body)
    if op.count == 1:
        yield from _round(replace(op, body=body), taken)
    else:
        yield replace(op, body=body)


def _round(op: Loop, taken: set[str]) -> Iterator[Op]:
    """The one round of a loop: its rows are all of the slices and stacks."""
    body, carried = op.body, len(op.carries)
    names: dict[str, str] = {}
    for param, value in zip(body.inputs, (*op.carries, *op.slices, *op.captured), strict=True):
        names[param.name] = value
    for param, value in zip(body.inputs[carried:], op.slices, strict=False):
        names[param.name] = claim(f"{value}_row", taken)
        yield Reshape(names[param.name], param.type, value, op.origin)
    yield from spliced(body.ops, names, taken)
    ends = zip(op.results, op.types, (names[value] for _, value in body.outputs), strict=True)
    for number, (result, type, value) in enumerate(ends):
        yield Elementwise(result, type, "ident", (value,)) if number < carried else Reshape(result, type, value)
