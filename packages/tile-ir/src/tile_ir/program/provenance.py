"""Where the operations of a program come from: labels that users give to applications of functions, and numbers.

Labels and numbers are remarks of spans (`origin` of an operation). They change no equality and no text of a program, and
what is compiled does not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from tile_ir.diagnostics import NOWHERE, Span, labelled
from tile_ir.program.nodes import Loop, Op, Program


def with_label(op: Op, label: str) -> Op:
    """The operation as part of an application called `label`."""
    return replace(op, origin=labelled(op.origin, label))


def numbered(program: Program) -> Program:
    """The program with the place of each operation in it as its number, which what is made of them keeps.

    The operations in a loop's body are counted where the loop stands.
    """
    return _numbered(program, count())


def _numbered(program: Program, numbers: Iterator[int]) -> Program:
    ops: list[Op] = []
    for op in program.ops:
        origin = replace(op.origin or _NOWHERE, op=next(numbers))
        inside = {"body": _numbered(op.body, numbers)} if isinstance(op, Loop) else {}
        ops.append(replace(op, origin=origin, **inside))
    return replace(program, ops=tuple(ops))


def bare(program: Program) -> Program:
    """The program without what labels alone say, for keys."""
    gradients = tuple(replace(rule, backward=bare(rule.backward)) for rule in program.gradients)
    return replace(program, ops=tuple(map(_bare, program.ops)), gradients=gradients)


def origins(program: Program) -> dict[int, Span]:
    """Where each operation comes from, by number, as far as that is known."""
    return {number: op.origin for number, op in enumerate(_all(program)) if op.origin is not None}


def _all(program: Program) -> Iterator[Op]:
    for op in program.ops:
        yield op
        if isinstance(op, Loop):
            yield from _all(op.body)


def _bare(op: Op) -> Op:
    if isinstance(op, Loop):
        op = replace(op, body=bare(op.body))
    return replace(op, origin=None) if op.origin is not None and not op.origin.is_place else op


_NOWHERE = Span(NOWHERE, 0, 0)
