"""Several rounds of a loop as one, where each touches every element by itself: an element then goes through them in
registers, where a round alone would read all of what is carried from memory and write it there again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tile_ir.names import claim
from tile_ir.program.nodes import Elementwise, Loop, Op, Program
from tile_ir.program.rename import spliced

from tile_opt.program.base import with_each

MOST_ROUNDS = 8
MOST_OPERATIONS = 64
"""Of a round that is made of several."""


def several(program: Program) -> Program:
    """The program with such rounds taken together, in other loops' bodies too; what is left over follows one by one."""
    taken = set(program.types())
    return with_each(program, lambda op: _made(op, taken))


def _made(op: Op, taken: set[str]) -> Iterator[Op]:
    if not isinstance(op, Loop):
        yield op
        return
    op = replace(op, body=several(op.body))
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
