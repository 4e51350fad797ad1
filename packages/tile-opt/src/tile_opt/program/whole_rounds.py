"""Aggregate few columns in whole rounds of rows, and the rows that are left by themselves.

`FewColumns` takes as many rows together as fill vectors, and `SplitReduction` gives each core chunks of these rounds. Where
they do not divide the rows, lanes of the last round are left out: without masks each lane then runs by itself, all along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from tile_ir.frozen import frozen
from tile_ir.names import claim, fresh
from tile_ir.program.nodes import Contraction, Elementwise, Op, Program, TensorType
from tile_ir.stripe.affine import Affine

from tile_opt.analysis import FlatDomain, Sets
from tile_opt.program.base import Rewrite
from tile_opt.program.few_columns import FewColumns, beside_smaller
from tile_opt.program.split_reduction import in_parts, partial_results


@frozen
class WholeRounds(Rewrite):
    """Rounds as an index of their own beside the rows of each; what is left is a contraction by itself."""

    columns: FewColumns = field(default_factory=FewColumns)

    def apply(self, program: Program) -> Program:
        uneven = beside_smaller(program)

        def split(op: Contraction, types: Mapping[str, TensorType], sets: Sets, taken: set[str]) -> Sequence[Op] | None:
            found = None if any(load.tensor in uneven for load in op.loads) else self.columns.rows(op, types, sets)
            if found is None or found.domain.constraints:
                return None
            extents = found.domain.extents
            cut = [(n, c.kept) for n, c in found.cuts.items() if c.kept < extents[n]]
            return _in_rounds(op, found.domain, *cut[0], taken) if cut else None

        return in_parts(program, split)


def _in_rounds(op: Contraction, domain: FlatDomain, index: str, count: int, taken: set[str]) -> Sequence[Op]:
    """The contraction in rounds of `count` iterations of an index, and what is left of these."""
    rounds, left = divmod(domain.extents[index], count)
    turn = fresh(f"{index}_round", domain.names)
    inner, last = Affine.var(index), Affine.var(index) + rounds * count
    whole = _moved(domain, index, inner + Affine.var(turn, count), {index: count, turn: rounds})
    if not left:
        return (replace(partial_results(op, whole, {}, op.name, 0)[0], type=op.type),)
    parts = (("whole", whole), ("rest", _moved(domain, index, last, {index: left})))
    made = [partial_results(op, part, {}, claim(f"{op.name}_{name}", taken), 0)[0] for name, part in parts]
    both = (made[0].name, made[1].name)
    if op.type == made[0].type:
        return (*made, Elementwise(op.name, op.type, op.agg.op, both, origin=op.origin))
    total = Elementwise(claim(f"{op.name}_total", taken), made[0].type, op.agg.op, both, origin=op.origin)
    return (*made, total, Elementwise(op.name, op.type, "cast", (total.name,), origin=op.origin))


def _moved(domain: FlatDomain, index: str, to: Affine, ranges: Mapping[str, int]) -> FlatDomain:
    """The domain with a form of indexes of these ranges in the place of one index."""
    extents = dict(sorted({**domain.extents, **ranges}.items()))
    accesses = tuple(tuple(f.substitute({index: to}) for f in access) for access in domain.accesses)
    return replace(domain, names=tuple(extents), ranges=tuple(extents.values()), accesses=accesses)
