"""Sums of tensors that lie beside each other: each is written where it belongs, over the one before.

Concatenations and frames are written as ``P[i] = =(A[i]); Q[N + i] = =(B[i]); C = P + Q;``: every cell of C is one value and
zeros. Which value it is holds for whole boxes of C, so that nothing has to be filled with zeros and added up. Side by side
in rows, though, parts are faster as a sum: one walk over all rows, which constraints cut, writes neighbours together.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from itertools import combinations

from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.liveness import reads
from tile_ir.program.nodes import Contraction, Elementwise, Literal, Program, ScalarStatement
from tile_ir.stripe.affine import intervals

from tile_opt.analysis import Sets, analyze
from tile_opt.program.base import Rewrite, with_each

PLACED = "$placed"
"""A value and a zero, added."""
Parts = tuple[Contraction, ...]
Box = tuple[tuple[int, int], ...]
"""The first and the last cell of each dimension."""


@frozen
class PlacedParts(Rewrite):
    """Sums of assignments to boxes that are apart before the last dimension become assignments that keep what is there already.

    With `products` only where each is one of a sum of products.
    """

    products: bool = False

    def apply(self, program: Program) -> Program:
        products = {op.name for op in program.ops if isinstance(op, Contraction) and len(op.loads) > 1}
        sums, sets, taken = _sums(program, products if self.products else None), Sets(), set(program.types())
        added = {op.name for op in program.ops if isinstance(op, Contraction) and op.agg is Aggregation.SUM}
        positive = added & products if self.products else set[str]()
        made = {name: _placed(name, parts, taken, positive) for name, parts in sums.items() if _are_apart(parts, sets)}
        return with_each(program, lambda op: made.get(op.name, (op,)) if isinstance(op, Elementwise) else (op,))


def _sums(program: Program, of: Set[str] | None) -> dict[str, Parts]:
    """What the last of several additions adds up, where that is nothing but assignments, `of` these, that have no other use."""
    uses = reads(program)
    terms: dict[str, Parts] = {}
    sums: dict[str, Parts] = {}
    for op in program.ops:
        if isinstance(op, Contraction) and _is_part(op) and (of is None or {x.tensor for x in op.loads} <= of):
            terms[op.name] = (op,)
        elif isinstance(op, Elementwise) and op.fn == "add" and all(a in terms and uses[str(a)] == 1 for a in op.args):
            names = [str(a) for a in op.args]
            parts = tuple(part for name in names for part in terms[name])
            if all(part.type == op.type for part in parts):
                terms[op.name] = sums[op.name] = parts
                sums = {name: found for name, found in sums.items() if name not in names}
    return sums


def _is_part(op: Contraction) -> bool:
    return op.agg is Aggregation.ASSIGN and op.default is None and op.acc is op.type.dtype


def _are_apart(parts: Parts, sets: Sets) -> bool:
    boxes = [box for part in parts if (box := _box(part, sets))]
    return len(boxes) == len(parts) and not any(_meet(a, b) for a, b in combinations(boxes, 2))


def _box(part: Contraction, sets: Sets) -> Box:
    """Around all rows in which cells are written; () where there are none."""
    domain = analyze(part, sets)
    ranges = intervals(domain.extents)
    return () if domain.empty else tuple(form.bounds(ranges) for form in domain.output[:-1] or domain.output)


def _meet(one: Box, other: Box) -> bool:
    return all(a <= d and c <= b for (a, b), (c, d) in zip(one, other, strict=True))


def _placed(name: str, parts: Parts, taken: set[str], positive: Set[str]) -> Parts:
    """The parts in order, the last one under the name of the sum; what is `positive` has no -0: sums begin with 0."""
    names = [*(claim(f"{name}_parts", taken) for _ in parts[1:]), name]
    kept = [None, *names[:-1]]
    alike = (p if _is_copy(p) and {x.tensor for x in p.loads} <= positive else _beside_zero(p) for p in parts)
    return tuple(replace(p, name=n, default=k) for p, n, k in zip(alike, names, kept, strict=True))


def _is_copy(part: Contraction) -> bool:
    return not part.body


def _beside_zero(part: Contraction) -> Contraction:
    """Of floats the sum with zero: that of -0 is 0."""
    dtype = part.type.dtype
    if not dtype.is_float:
        return part
    added = ScalarStatement(PLACED, "add", (part.result, Literal(0.0, dtype)), dtype)
    return replace(part, body=(*part.body, added), result=PLACED)
