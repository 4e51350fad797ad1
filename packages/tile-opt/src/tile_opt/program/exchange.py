"""Weighted sums of what a product gives, by a product of weighted sums: a gradient's row needs no scores but its own.

``R[s] = sum over t of w[s, t] * G[s, t]`` with ``G[s, t] = sum over d of a[s, d] * b[t, d]`` asks for all of G. The other
sum may come first: ``R[s] = sum over d of a[s, d] * U[s, d]`` with ``U[s, d] = sum over t of w[s, t] * b[t, d]``, which is
what attention gives, walking rows piece by piece (`kernel.rows_in_steps`).
"""

from __future__ import annotations

from collections.abc import Mapping

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, Op, TensorType
from tile_ir.stripe.affine import Affine, names_in

from tile_opt.analysis import FlatDomain
from tile_opt.program.cascade import Groups, Made, OverRows, Weighted, product_of, quotient, rows_of
from tile_opt.program.chunks import reduced
from tile_opt.program.trees import Call, Leaf, Tree, as_dtype, computed, leaves, substituted, unwidened


@frozen
class ExchangeSums(OverRows):
    """Sum products of rows of more than `kept` elements, weighted by exponentials, over the row first; 0 leaves all as it is."""

    def made(self, groups: Groups) -> Made:
        made: dict[str, tuple[Op, ...]] = {}
        kept = {leaf.tensor for m in groups.members() if m.values for f in m.scores for leaf in leaves(f)}
        kept |= {
            str(x.tensor)
            for op in groups.program.ops
            if isinstance(op, Contraction) and op.name in kept
            for x in op.loads
        }
        for member in groups.members():
            product = RowProduct.of(member, groups)
            # Somebody weighs the same product in any case, for values.
            if product is not None and product.scores not in kept:
                sums, total = product.exchanged(groups.pairs.taken)
                # In front of all that asks for rows again.
                first = member.pair.first
                made[first.name] = (*made.get(first.name, (first,)), sums)
                made[member.pair.op.name] = (total,)
        return made


@frozen
class RowProduct:
    """The product that a row is weighted with, by the indexes of the weighted sum and one of its own."""

    member: Weighted
    depth: str
    size: int
    row: Tree
    """The factor that the sum does not move."""
    other: Tree
    scores: str
    """The product."""
    dtype: DType
    """What the product's results were rounded to."""

    @staticmethod
    def of(member: Weighted, groups: Groups) -> RowProduct | None:
        """None where something else is in the sum, or both factors move with it."""
        if len(member.inside) != 1 or not isinstance(leaf := unwidened(member.inside[0]), Leaf):
            return None
        cells = names_in(member.pair.domain.output)
        if not cells <= {*rows_of(member)} or not cells <= names_in(leaf.forms):
            return None  # a sum of its own for each row, of what is as large as the scores
        op = groups.pairs.contractions.get(leaf.tensor)
        domain = groups.pairs.plain(op) if op is not None and op.agg is Aggregation.SUM else None
        if op is None or domain is None or len(own := reduced(domain)) != 1:
            return None
        ((inner, size),) = own.items()
        depth = claim(inner, set(member.pair.domain.names))
        at = {f.names[0]: form for f, form in zip(domain.output, leaf.forms, strict=True) if f.terms}
        factors = _factors(groups, op, domain, at | {inner: Affine.var(depth)})
        moved = [f for f in factors if _named(f, member.index)]
        still = [f for f in factors if not _named(f, member.index)]
        if len(moved) != 1 or len(still) != 1 or not all(_named(f, depth) for f in factors):
            return None
        return RowProduct(member, depth, size, still[0], moved[0], op.name, op.type.dtype)

    def exchanged(self, taken: set[str]) -> tuple[Contraction, Contraction]:
        """The weighted sums of the other factor, and the sum of these with the row's own."""
        pair, acc = self.member.pair, self.member.pair.op.acc
        sizes = pair.domain.extents | {self.depth: self.size}
        cells = [f.names[0] for f in pair.domain.output if f.terms]
        at = (*map(Affine.var, cells), Affine.var(self.depth))
        type = TensorType(acc, tuple(sizes[n] for f in at for n in f.names))
        # One factor of each weighted product is rounded as before: the weight now.
        weight = self.member.weight
        rounded = as_dtype(weight, self.dtype) if self.dtype.bytes < weight.dtype.bytes else weight
        summand = product_of([as_dtype(f, acc) for f in (rounded, self.other)])
        sums = computed(sizes, claim(f"{pair.op.name}_sums", taken), type, at, summand, pair.op)
        term = quotient((self.row, Leaf(sums.name, at, acc), *self.member.outside), self.member.divisors, acc)
        return sums, computed(sizes, pair.op.name, pair.op.type, pair.domain.output, term, pair.op)


def _factors(groups: Groups, op: Contraction, domain: FlatDomain, names: Mapping[str, Affine]) -> tuple[Tree, ...]:
    """Both factors of a product of two, nothing else."""
    match unwidened(groups.pairs.trees.summand(op, domain)):
        case Call("mul", (a, b)):
            return substituted(a, names), substituted(b, names)
        case _:
            return ()


def _named(tree: Tree, index: str) -> bool:
    return any(index in f.names for leaf in leaves(tree) for f in leaf.forms)
