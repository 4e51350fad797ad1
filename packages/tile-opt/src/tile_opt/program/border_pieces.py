"""Borders as pieces of results: what lies away from them reads tensors as they are, without a framed copy.

``R[x] = +(A[clamp(x + t - 2)] * K[t])`` reads a copy of A in a frame. All of R but its outermost cells, and all that is
computed of them, needs nothing of the frame: this interior is computed from A itself, and so are strips around it, from
what is left of the frame there. A result of several such steps is put together but once, at its end, so that the steps of
its interior make one kernel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.copies import copied
from tile_ir.program.liveness import defined_by, live_ops, used_by
from tile_ir.program.nodes import (
    Contraction,
    Elementwise,
    Op,
    Param,
    Poly,
    Program,
    TensorType,
    coordinates,
)
from tile_ir.program.rename import renamed, spliced

from tile_opt.program.base import Rewrite
from tile_opt.program.interiors import Interiors
from tile_opt.regions import Box, Walker, rule_of

Pointwise = Contraction | Elementwise
"""What has an interior."""


@frozen
class BorderPieces(Rewrite):
    """Compute interiors and the strips around them apart.

    Where framed copies of `least` bytes and more go, and `step` for each aggregation that strips then do by themselves. Without `zeros`
    frames of zeros are no copies: what reads them loads under a condition.
    """

    least: int = 1 << 16
    step: int = 1 << 16
    zeros: bool = True

    def apply(self, program: Program) -> Program:
        found, closed = _interiors(program, self.least)
        parts = {name: _part(program, found, closed, name) for name in _ends(found, closed)}
        work = _Pieces(found, {name: part for name, part in parts.items() if self._pays(part, found)}, set(found.types))
        if not work.parts:
            return program
        ops = [made for op in program.ops for made in work.instead(op)]
        return replace(program, ops=live_ops(ops, [value for _, value in program.outputs]))

    def _pays(self, part: Program, found: Interiors) -> bool:
        """The bytes of framed copies that go are worth the kernels that come."""
        copies = (op for op in part.ops if isinstance(op, Contraction) and op.name in found.boxes)
        saved = sum(op.type.nbytes for op in copies if self.zeros or op.default is not None)
        steps = sum(isinstance(op, Contraction) and op.agg is not Aggregation.ASSIGN for op in part.ops)
        return saved >= max(self.least, steps * self.step)


def _interiors(program: Program, least: int) -> tuple[Interiors, frozenset[str]]:
    """The interiors, and the values that are there as a whole: results, and what something reads that has no interior."""
    closed = frozenset(value for _, value in program.outputs)
    types = program.types()
    while True:
        found = Interiors(types, least, closed)
        unfit = {name for op in program.ops if not found.add(op) for name in used_by(op)}
        whole = {name for name, box in found.boxes.items() if box == Box.whole(types[name].shape)}
        again = _shared(program, found, closed) if found.boxes else set[str]()
        more = (unfit | whole | again) & found.boxes.keys() - closed
        if not more:
            return found, closed
        closed |= more


def _shared(program: Program, found: Interiors, closed: frozenset[str]) -> set[str]:
    """Contractions that several values which are there as a whole would each compute again."""
    ends: defaultdict[str, set[str]] = defaultdict(set)
    again: set[str] = set()
    for op in reversed(program.ops):
        for name in defined_by(op):
            if isinstance(op, Contraction) and name not in found.links and len(ends[name]) > 1:
                again.add(name)
            reached = {name} if name in closed else ends[name]
            for operand in used_by(op):
                ends[operand] |= reached
    return again


def _ends(found: Interiors, closed: frozenset[str]) -> list[str]:
    """The values that are put together of pieces."""
    return [n for n in found.types if n in closed and n in found.boxes and n not in found.links]


def _part(program: Program, found: Interiors, closed: frozenset[str], name: str) -> Program:
    """What computes a value from values that are there as a whole."""
    inner = (found.boxes.keys() | found.links.keys()) - closed
    ops: list[Op] = []
    wanted, given = {name}, set[str]()
    for op in reversed(program.ops):
        if not wanted.isdisjoint(defined_by(op)):
            ops.append(op)
            wanted |= inner.intersection(used_by(op))
            given |= set(used_by(op)) - inner
    inputs = tuple(Param(n, type) for n, type in found.types.items() if n in given)
    return Program(name, inputs, tuple(reversed(ops)), ((name, name),))


@dataclass(slots=True)
class _Pieces:
    """A program's values that are put together of pieces, each with the part of the program that computes it."""

    found: Interiors
    parts: Mapping[str, Program]
    taken: set[str]

    def instead(self, op: Op) -> Iterator[Op]:
        """The operations in the place of one."""
        if not isinstance(op, Pointwise) or op.name not in self.parts:
            yield op
            return
        part = self.parts[op.name]
        walker = Walker(part, tuple(rule_of(op, self.found.types, self.found.sets) for op in part.ops))
        boxes = around(self.found.boxes[op.name], op.type.shape)
        under: str | None = None
        for box in boxes:
            name = op.name if box is boxes[-1] else claim(f"{op.name}_pieces", self.taken)
            ops, piece = self._piece(walker, part, box)
            if len(boxes) == 1:
                yield from (renamed(op, {piece: name}) for op in ops)
            else:
                yield from (*ops, _placed(op, piece, box, under, name))
            under = name

    def _piece(self, walker: Walker, part: Program, box: Box) -> tuple[list[Op], str]:
        """The operations that compute a box of a value, and the name of it."""
        type = TensorType(self.found.types[part.name].dtype, box.shape)
        made = walker.program(walker.region(box, walker.whole), type)
        names = {mine.name: theirs.name for mine, theirs in zip(made.inputs, part.inputs, strict=True)}
        ops = list(spliced(made.ops, names, self.taken))
        return ops, names[made.outputs[0][1]]


def around(inner: Box, shape: Sequence[int]) -> list[Box]:
    """A box and the strips around it, those along the first dimension as long as the whole; the box comes last."""
    rest, strips = Box.whole(shape), list[Box]()
    for axis, (low, high) in enumerate(zip(inner.low, inner.high, strict=True)):
        before, behind = (rest.low[axis], low), (high, rest.high[axis])
        strips += [rest.along(axis, ends) for ends in (before, behind) if ends[0] < ends[1]]
        rest = rest.along(axis, (low, high))
    return [*strips, rest]


def _placed(op: Pointwise, piece: str, box: Box, under: str | None, name: str) -> Contraction:
    """A piece of a result, laid on the pieces before it."""
    cells = coordinates(len(box.low))
    output = tuple(cell + Poly.of({}, low) for cell, low in zip(cells, box.low, strict=True))
    sizes, text = zip(cells, box.shape, strict=True), op.text if isinstance(op, Contraction) else ""
    return copied(name, op.type, output, piece, cells, sizes, default=under, text=text, origin=op.origin)
