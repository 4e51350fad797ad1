"""A program in the order in which its parts run: programs without loops, and loops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tile_ir.program import division
from tile_ir.program.nodes import ConstantTensor, Loop, Op, Program


def has_loops(program: Program) -> bool:
    """Whether an operation of the program is a loop."""
    return any(map(_is_loop, program.ops))


def divide(program: Program) -> Iterator[Program | Loop]:
    """The parts, in the order that they run in; constants are copied into each program that reads them.

    The inputs and outputs of parts are called like the values that they are. Outputs that are constants are of no part.
    """
    constants = {op.name for op in program.ops if isinstance(op, ConstantTensor)}
    computed = tuple((public, value) for public, value in program.outputs if value not in constants)
    for part in division.divide(replace(program, outputs=computed), _is_loop):
        if part.away:
            yield from (op for op in part.program.ops if isinstance(op, Loop))
        else:
            yield part.program


def _is_loop(op: Op) -> bool:
    return isinstance(op, Loop)
