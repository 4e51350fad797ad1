"""Sums of weighted rows to which a number of the row is added, as two sums of the row: the gradient of attention's queries in one reading.

``dQ[s, d] = sum over t of w[s, t] * (G[s, t] / z[s] + r[s]) * K[t, d]`` waits for r, and r is a sum of the same weighted rows,
``r[s] = a[s] * (sum over t of w[s, t] * G[s, t])``. But what the row adds to each element it may add to the sum:

    dQ[s, d] = (sum over t of w * G * K) / z[s]  +  r[s] * (sum over t of w * K)

Then all sums of a row take the same weights in one reading, which carries them from piece to piece (`kernel.rows_in_steps`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf, prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.program.nodes import Contraction, Literal, Op
from tile_ir.stripe.affine import Affine, names_in

from tile_opt.program.cascade import (
    Groups,
    Made,
    OverRows,
    Weighted,
    factors_of,
    product_of,
    quotient,
    rows_of,
    shortened,
)
from tile_opt.program.trees import Call, Leaf, Tree, as_dtype, call, computed, substituted, unwidened


@frozen
class Distribute(OverRows):
    """Where results of a row are at most `deep`, so that items have room for both sums; 0 leaves all as it is."""

    deep: int = 0

    def made(self, groups: Groups) -> Made:
        rows = {m.pair.op.name: m for m in groups.members()} if self.deep else {}
        found = [_Added.of(member, rows, self.deep) for member in groups.members(masks=True)] if rows else []
        return {added.member.pair.op.name: added.apart(groups.pairs.taken) for added in found if added is not None}


@frozen
class _Added:
    """A weighted sum of elements to which a number of the row is added, or from which it is subtracted."""

    member: Weighted
    fn: str
    moved: Tree
    """What the number is added to."""
    still: Leaf
    rest: tuple[Tree, ...]
    """What else is inside."""

    @staticmethod
    def of(member: Weighted, rows: Mapping[str, Weighted], deep: int) -> _Added | None:
        """None where nothing is added, or what is no sum of the same elements by the same weights; or where results are many."""
        ranges = member.pair.domain.extents
        columns = names_in(member.pair.domain.output) - {*rows_of(member)}
        if not columns or prod(ranges[n] for n in columns) > deep:
            return None
        for number, factor in enumerate(member.inside):
            rest = tuple(f for k, f in enumerate(member.inside) if k != number)
            for fn, moved, still in _sides(factor):
                added = _Added(member, fn, moved, still, rest)
                if added._is_of(rows.get(still.tensor)):
                    return added
        return None

    def _is_of(self, total: Weighted | None) -> bool:
        """The number is a sum of what it is added to."""
        if total is None or total.pair.first.name != self.member.pair.first.name or total.values or not total.scores:
            return False
        mine, theirs = ((*rows_of(m), m.index) for m in (self.member, total))
        names = {old: Affine.var(new) for old, new in zip(theirs, mine, strict=True)}
        return {substituted(_bare(f), names) for f in total.scores} <= {*map(_bare, self._factors[0])}

    @property
    def _factors(self) -> tuple[tuple[Tree, ...], tuple[Tree, ...]]:
        return factors_of(self.moved, rounded=True)

    def apart(self, taken: set[str]) -> tuple[Op, ...]:
        """Both sums, and what is made of them."""
        member, domain, acc = self.member, self.member.pair.domain, self.member.pair.op.acc
        over, under = self._factors
        inside = tuple(f for f in over if member.moves(f))
        sums = alone, moved = self._sums("alone", (), taken), self._sums("moved", inside, taken)
        at_alone, at_moved = (Leaf(s.name, domain.output, acc) for s in sums)
        elements = quotient((at_moved, *(f for f in over if f not in inside)), under, acc)
        both = call(self.fn, (elements, product_of((at_alone, as_dtype(self.still, acc)))), acc)
        return alone, moved, self._finished(quotient((both, *member.outside), member.divisors, acc))

    def _sums(self, name: str, inside: tuple[Tree, ...], taken: set[str]) -> Contraction:
        """The weighted sums of what is `inside`, beside what all elements are multiplied with."""
        member, op = self.member, self.member.pair.op
        type = replace(op.type, dtype=op.acc)
        summand = product_of(as_dtype(f, op.acc) for f in (member.weight, *inside, *self.rest))
        name = claim(f"{op.name}_{name}", taken)
        return computed(member.pair.domain.extents, name, type, member.pair.domain.output, summand, op)

    def _finished(self, value: Tree) -> Contraction:
        """What is made of both; nothing in a row of which a mask leaves nothing."""
        pair, op = self.member.pair, self.member.pair.op
        if self.member.masked:
            row = pair.row
            none = call("cmp_eq", (row, Literal(-inf, row.dtype)), DType.BOOL)
            value = call("cond", (none, Literal(0.0, value.dtype), value), value.dtype)
        return computed(pair.domain.extents, op.name, op.type, pair.domain.output, value, origin=op.origin)


def _sides(tree: Tree) -> Iterator[tuple[str, Tree, Leaf]]:
    """What is added to something, or subtracted from it, and how."""
    match _bare(tree):
        case Call("add" | "sub" as fn, (a, b)):
            sides = ((a, b), (b, a)) if fn == "add" else ((a, b),)
            yield from ((fn, moved, leaf) for moved, still in sides if isinstance(leaf := _bare(still), Leaf))
        case _:
            return


def _bare(tree: Tree) -> Tree:
    """What is rounded to a shorter float, or converted to a wider one."""
    return unwidened(shortened(tree) or tree)
