"""Aggregates of one element each are that element: what broadcasts a gradient back is a copy, and can be read through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Op, Program

from tile_opt.program.base import Rewrite, with_each
from tile_opt.program.factorise import index_sizes


@frozen
class SingleTerms(Rewrite):
    """Contractions that aggregate nothing assign."""

    def apply(self, program: Program) -> Program:
        return with_each(program, lambda op: (_assigned(op),))


def _assigned(op: Op) -> Op:
    if not isinstance(op, Contraction) or op.agg is Aggregation.ASSIGN:
        return op
    sizes = index_sizes(op)
    return replace(op, agg=Aggregation.ASSIGN) if sizes is not None and _is_single(op, sizes) else op


def _is_single(op: Contraction, sizes: Mapping[str, int]) -> bool:
    """Every index of several values is a subscript of its own, and nothing but its range is asked of it."""
    cells = [f.index for f in op.output]
    ranges = all(c.formula.index is not None or not c.formula.names for c in op.constraints)
    return ranges and all(cells.count(name) == 1 for name, size in sizes.items() if size > 1)
