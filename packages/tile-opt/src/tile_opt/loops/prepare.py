"""What becomes of a program's loops before anything is compiled: those of one round are none, and several rounds are one.

The body of a loop of one round fuses with what is around it. Where each round touches every element by itself, an element
goes through several of them in registers, where a round alone would read all of what is carried from memory and write it
there again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tile_ir.names import claim
from tile_ir.program.nodes import Elementwise, Loop, Op, Program, Reshape
from tile_ir.program.rename import spliced

from tile_opt.loops.divide import has_loops
from tile_opt.program.base import with_each

MOST_ROUNDS = 8
MOST_OPERATIONS = 64
"""Of a round that is made of several."""


def prepared(program: Program) -> Program:
    """The program without loops of one round, and with fewer rounds where several are one."""
    return _with_loops(_with_loops(program, _inlined), _several)


def _with_loops(program: Program, made: Callable[[Loop, set[str]], Iterator[Op]]) -> Program:
    """The program with what is `made` of each loop, given the names that are taken; of those in other loops' bodies first."""
    if not has_loops(program):
        return program
    taken = set(program.types())

    def instead(op: Op) -> Iterator[Op]:
        return made(replace(op, body=_with_loops(op.body, made)), taken) if isinstance(op, Loop) else iter((op,))

    return with_each(program, instead)


def _inlined(op: Loop, taken: set[str]) -> Iterator[Op]:
    """The one round of a loop: its rows are all of the slices and stacks."""
    if op.count != 1:
        yield op
        return
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


def _several(op: Loop, taken: set[str]) -> Iterator[Op]:
    """The loop with such rounds taken together; what is left over follows one by one."""
    rounds = _rounds(op)
    if rounds == 1:
        yield op
        return
    together, left = divmod(op.count, rounds)
    body = _repeated(op.body, len(op.carries), rounds)
    if not left:
        yield replace(op, body=body, count=together)
        return
    ends = tuple(claim(name, taken) for name in op.results)
    yield replace(op, body=body, count=together, results=ends)
    yield replace(op, count=left, carries=ends)


def _rounds(op: Loop) -> int:
    """How many rounds become one: a divisor of their number, if a large one is."""
    most = min(MOST_ROUNDS, MOST_OPERATIONS // max(1, len(op.body.ops)), op.count // 2)
    if most < 2 or op.slices or len(op.results) > len(op.carries) or not _pointwise(op.body):
        return 1
    return next((n for n in range(most, most // 2, -1) if op.count % n == 0), most)


def _pointwise(body: Program) -> bool:
    """All is elementwise, on one shape: no element of a round depends on another one of the round before."""
    shapes: set[tuple[int, ...]] = {op.type.shape for op in body.ops if isinstance(op, Elementwise)}
    return len(shapes) == 1 and all(isinstance(op, Elementwise) for op in body.ops)


def _repeated(body: Program, carried: int, rounds: int) -> Program:
    """A body of so many rounds; the first `carried` inputs and outputs are what is carried."""
    taken, ops = set(body.types()), list(body.ops)
    values = [value for _, value in body.outputs]
    for _ in range(rounds - 1):
        names = dict(zip((p.name for p in body.inputs[:carried]), values, strict=True))
        ops += spliced(body.ops, names, taken)
        values = [names.get(value, value) for _, value in body.outputs]
    outputs = tuple((public, value) for (public, _), value in zip(body.outputs, values, strict=True))
    return replace(body, ops=tuple(ops), outputs=outputs)
