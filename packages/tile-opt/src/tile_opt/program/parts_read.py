"""Values of which a part is read are computed there alone.

Who reads the last token of ``Y[b, t, o] = +(X[b, t, i] * W[o, i])`` asks for one row of Y, which asks for one row of X, and so on
back to what is read as a whole: each operation on the way computes the smallest box around the cells that anyone reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import ceil, floor, prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.program.liveness import defined_by, live_ops, used_by
from tile_ir.program.nodes import (
    Argsort,
    Contraction,
    Elementwise,
    Gather,
    IndexOf,
    Literal,
    Op,
    Poly,
    Program,
    Reshape,
    TensorType,
)

from tile_opt.analysis import FlatDomain, Sets, analyze
from tile_opt.program.base import Rewrite, fixed_values
from tile_opt.program.factorise import own_ranges
from tile_opt.regions import Box, Rule, rule_of
from tile_opt.regions.pointwise import GatherRule
from tile_opt.regions.rules import Emission, Source

Pieced = Argsort | Contraction | Elementwise | Gather | IndexOf | Reshape
"""What can be computed for a box."""
Reads = Iterator[tuple[str, Box | None]]
"""Operands, and the box of each that is read: None for all of it."""


@frozen
class PartsRead(Rewrite):
    """Compute values of which at most `share` is read for that part alone, where aggregations of `least` points, or so many elements of sorts, go."""

    share: float = 0.75
    least: int = 1 << 12

    def apply(self, program: Program) -> Program:
        found = _Parts(program, self.share)
        if not found.parts or found.saved < self.least:
            return program
        ops = tuple(made for op in program.ops for made in found.instead(op))
        return replace(program, ops=live_ops(ops, [value for _, value in program.outputs]), gradients=())


class _Parts:
    """The values of a program that are read in part, and the boxes that are read of them."""

    def __init__(self, program: Program, share: float) -> None:
        self.types = program.types()
        self.sets = Sets()
        self.parts: dict[str, Box] = {}
        self.saved = 0
        """Points of aggregations, and elements in order, that nobody needs."""
        self._fixed: Mapping[str, TensorType] | None = None
        self._taken = set(self.types)
        self._program, self._share = program, share
        self._made = {name for op in program.ops for name in defined_by(op)}
        self._look()

    def _look(self) -> None:
        """From the results back: what each operation reads, given what is read of its own result."""
        asked: dict[str, Box | None] = {value: None for _, value in self._program.outputs}
        for op in reversed(self._program.ops):
            names = [name for name in defined_by(op) if name in asked]
            if not names:
                continue
            part = self._part(op, asked[names[0]])
            for operand, box in self._reads(op, part):
                known = asked.get(operand, box)
                asked[operand] = None if box is None or known is None else known.hull(box)

    def _part(self, op: Op, box: Box | None) -> Box | None:
        """The box of an operation's result that is to be computed; None for the whole result."""
        if box is None or not isinstance(op, Pieced) or not 0 < box.size <= self._share * op.type.size:
            return None
        if isinstance(op, Reshape) and op.type.size != self.types[op.arg].size:  # bytes seen as words
            return None
        if self._fixed is None:
            self._fixed = fixed_values(self._program)
        if op.name in self._fixed:
            return None
        self.parts[op.name] = box
        if isinstance(op, Contraction):
            self.saved += _points_saved(op, analyze(op, self.sets), box)
        if isinstance(op, Argsort):
            self.saved += op.type.size - box.size
        return box

    def _reads(self, op: Op, part: Box | None) -> Reads:
        if part is None:
            return self._whole_reads(op)
        rule = self._rule(op)
        return ((name, box) for name, box in zip(rule.operands, rule.cut(part).reads, strict=True) if box is not None)

    def _whole_reads(self, op: Op) -> Reads:
        """What computing all of an operation reads, by the ranges of its indexes alone: few operations read a part."""
        match op:
            case Contraction():
                yield from self._loads(op)
            case Gather():
                rule = GatherRule(op, self.types)
                cut = rule.cut(Box.whole(op.type.shape)) if op.type.size and self.types[op.data].size else None
                yield from zip(rule.operands, cut.reads if cut else (None,) * len(rule.operands), strict=True)
            case _:
                for name in used_by(op):
                    yield name, None

    def _loads(self, op: Contraction) -> Reads:
        counts = own_ranges(op)
        for load in op.loads:
            if isinstance(load.tensor, str):
                inner = load.tensor in self._made
                yield load.tensor, _reach(load.formulas, self.types[load.tensor].shape, counts) if inner else None
        if op.default is not None:
            yield op.default, None

    def _rule(self, op: Op) -> Rule:
        return rule_of(op, self.types, self.sets)

    # --- what is computed then -------------------------------------------------------------------------

    def instead(self, op: Op) -> Iterator[Op]:
        """An operation for the part of its result that is read, and on the parts that there are of its operands."""
        if not isinstance(op, Pieced) or (op.name not in self.parts and self.parts.keys().isdisjoint(used_by(op))):
            yield op
            return
        rule, box = self._rule(op), self._box(op.name)
        cut = rule.cut(box)
        sources = [self._source(n, read) for n, read in zip(rule.operands, cut.reads, strict=True)]
        numbers = [Literal(n, DType.INT32) for n in cut.numbers]
        type = TensorType(op.type.dtype, box.shape)
        out = Emission(cut.form, op.name, type, sources, numbers, self._new, op.origin)
        rule.emit(out)
        yield from (
            _told(made, box) if op.name in self.parts and op.name in defined_by(made) else made for made in out.ops
        )

    def _box(self, name: str) -> Box:
        return self.parts.get(name) or Box.whole(self.types[name].shape)

    def _source(self, name: str, read: Box | None) -> Source | None:
        if read is None:
            return None
        held = self._box(name)
        return Source(name, TensorType(self.types[name].dtype, held.shape), read.relative(held.low).low, read.shape)

    def _new(self, wanted: str) -> str:
        return claim(wanted, self._taken)


def _told(op: Op, box: Box) -> Op:
    """The operation, whose text says what it computes of what it says."""
    if not isinstance(op, Contraction):
        return op
    cells = ", ".join(f"{low}:{high}" for low, high in zip(box.low, box.high, strict=True))
    return replace(op, text=f"{op.text} [{cells}] alone, no more is read")


def _points_saved(op: Contraction, domain: FlatDomain, box: Box) -> int:
    """Points of an aggregation of several elements that a box of its result goes without."""
    points, cells = prod(domain.ranges), op.type.size
    return points * (cells - box.size) // cells if points > cells else 0


def _reach(formulas: tuple[Poly, ...], shape: tuple[int, ...], counts: Mapping[str, int]) -> Box | None:
    """A box around what subscripts read, given how many values indexes have; None for all of a tensor, which most read."""
    ends = [_ends(f, size, counts) for f, size in zip(formulas, shape, strict=True)]
    if all(end == (0, size) for end, size in zip(ends, shape, strict=True)) or any(a >= b for a, b in ends):
        return None
    return Box.around(ends)


def _ends(formula: Poly, size: int, counts: Mapping[str, int]) -> tuple[int, int]:
    if any(name not in counts for name, _ in formula.terms):
        return 0, size
    low = high = formula.const
    for name, c in formula.terms:
        last = c * (counts[name] - 1)
        low, high = (low, high + last) if c > 0 else (low + last, high)
    return max(0, ceil(low)), min(size, floor(high) + 1)
