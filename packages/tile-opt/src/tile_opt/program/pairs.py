"""Pairs of aggregates of the same rows, of which the second depends on the first: how they are found."""

from __future__ import annotations

from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Program
from tile_ir.stripe.affine import Affine

from tile_opt.analysis import FlatDomain, Sets
from tile_opt.program.chunks import Pair, reduced
from tile_opt.program.split_reduction import covering
from tile_opt.program.trees import Leaf, Tree, Trees, matched, unwidened


class Pairs:
    """What a program's contractions aggregate, as expressions."""

    def __init__(self, program: Program, *, copies: bool = False) -> None:
        """With `copies` what is aggregated is read where it was copied from."""
        self.sets = Sets()
        self.types = program.types()
        self.taken = set(self.types)
        self.trees = Trees(program.ops, self.types, copies=copies)
        self.contractions = {op.name: op for op in program.ops if isinstance(op, Contraction)}

    def plain(self, op: Contraction) -> FlatDomain | None:
        """The domain of a contraction that has no constraints and writes every cell; None for others.

        Each index of the result is a subscript of its own.
        """
        domain = covering(op, self.sets)
        if domain is None or domain.constraints:
            return None
        named = [f for f in domain.output if f.terms]
        own = all(f == Affine.var(f.names[0]) for f in named) and len({f.names for f in named}) == len(named)
        return domain if own else None

    def with_first(self, op: Contraction, domain: FlatDomain, row: Leaf, inner: Tree, agg: Aggregation) -> Pair | None:
        """The pair whose other aggregate is `row`, where that aggregates the same elements."""
        first = self.contractions.get(row.tensor)
        other = self.plain(first) if first is not None and first.agg is agg and first.acc.is_float else None
        if first is None or other is None:
            return None
        names = {f.names[0]: at for f, at in zip(other.output, row.forms, strict=True) if f.terms}
        if not matched(unwidened(self.trees.summand(first, other)), unwidened(inner), names):
            return None
        mine, theirs = reduced(domain), {names[n].names: r for n, r in reduced(other).items() if n in names}
        if theirs != {(n,): r for n, r in mine.items()} or len(mine) != len(reduced(other)):
            return None
        return Pair(op, domain, first, other, names, row, inner, None, inner)
