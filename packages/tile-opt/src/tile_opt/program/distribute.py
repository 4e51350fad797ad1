"""Sums of weighted rows to which a number of the row is added, as two sums of the row: the gradient of attention's queries in one reading.

``dQ[s, d] = sum over t of w[s, t] * (G[s, t] / z[s] + r[s]) * K[t, d]`` waits for r, and r is a sum of the same weighted rows,
``r[s] = a[s] * (sum over t of w[s, t] * G[s, t])``. But what the row adds to each element it may add to the sum:

    dQ[s, d] = (sum over t of w * G * K) / z[s]  +  r[s] * (sum over t of w * K)

Then all sums of a row take the same weights in one reading, which carries them from piece to piece (`kernel.rows_in_steps`). Weighted
elements are rounded before they are multiplied with K, so that they are those of ``G - c`` with c what the first few elements of the row
have in common, and r is ``r + c / z``: it would be rounded with each, and taken away afterwards. Any c would do.
Where a tensor is added to what weighs them, c is 0: it may leave those few out, which may be of any size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import inf, prod

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Contraction, IndexOf, Literal, Op, TensorType
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
from tile_opt.program.chunks import LOWEST
from tile_opt.program.exchange import RowProduct
from tile_opt.program.trees import Call, Leaf, Tree, as_dtype, call, computed, leaves, substituted, unwidened

FEW = 8
"""Elements that show what all have in common, beside what these differ by."""


@frozen
class Distribute(OverRows):
    """Where results of a row are at most `deep`, so that items have room for both sums; 0 leaves all as it is."""

    deep: int = 0

    def made(self, groups: Groups) -> Made:
        rows = {m.pair.op.name: m for m in groups.members()} if self.deep else {}
        found = [_Added.of(member, rows, groups, self.deep) for member in groups.members(masks=True)] if rows else []
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
    common: bool
    """The first few elements show what all have in common."""

    @staticmethod
    def of(member: Weighted, rows: Mapping[str, Weighted], groups: Groups, deep: int) -> _Added | None:
        """None where nothing is added, or what is no sum of the same elements by the same weights; or where results are many."""
        ranges = member.pair.domain.extents
        columns = names_in(member.pair.domain.output) - {*rows_of(member)}
        if not columns or prod(ranges[n] for n in columns) > deep:
            return None
        for number, factor in enumerate(member.inside):
            rest = tuple(f for k, f in enumerate(member.inside) if k != number)
            for fn, moved, still in _sides(factor):
                total = rows.get(still.tensor)
                found = total is not None and _is_sum(total, member, moved) and RowProduct.of(total, groups)
                if found:
                    return _Added(member, fn, moved, still, rest, _all_count(member, groups))
        return None

    def apart(self, taken: set[str]) -> tuple[Op, ...]:
        """Both sums, and what is made of them."""
        member, acc = self.member, self.member.pair.op.acc
        over, under = factors_of(self.moved, rounded=True)
        inside, outside = ([f for f in over if member.moves(f) is moves] for moves in (True, False))
        added, front = as_dtype(self.still, acc), tuple[Contraction, ...]()
        if self.common:
            ends = _common(member, inside[0], taken)
            at_common = Leaf(ends[-1].name, tuple(map(Affine.var, rows_of(member))), acc)
            elements, *inside = _below(member, inside[0], at_common, taken)
            added = call(self.fn, (added, quotient((at_common, *outside), under, acc)), acc)
            front = *ends, elements
        alone, moved = self._sums("alone", (), taken), self._sums("moved", inside, taken)
        at_alone, at_moved = (Leaf(s.name, member.pair.domain.output, acc) for s in (alone, moved))
        both = call(self.fn, (quotient((at_moved, *outside), under, acc), product_of((at_alone, added))), acc)
        return *front, alone, moved, self._finished(quotient((both, *member.outside), member.divisors, acc))

    def _sums(self, name: str, inside: Iterable[Tree], taken: set[str]) -> Contraction:
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


def _all_count(member: Weighted, groups: Groups) -> bool:
    """Products and places alone are what the element of a row is weighed by, where it is not left out."""
    places = {op.name for op in groups.program.ops if isinstance(op, IndexOf)}
    return {leaf.tensor for leaf in _chosen(member.pair.inner)} <= groups.products | places


def _chosen(tree: Tree) -> Iterator[Leaf]:
    """The leaves, but those that choose between others."""
    match tree:
        case Leaf():
            yield tree
        case Call("cond", (_, *args)) | Call(args=args):
            for arg in args:
                yield from _chosen(arg)
        case _:
            return


def _common(member: Weighted, element: Tree, taken: set[str]) -> tuple[Contraction, ...]:
    """What the first few elements of a row have in common, that of the row last: the middle between the least and the most of them.

    It is at most twice as far from 0 as the closest of them, and 0 between two signs: a few may be of any size.
    """
    acc, at = member.pair.op.acc, tuple(map(Affine.var, rows_of(member)))
    least, most = ends = tuple(_end(member, element, agg, taken) for agg in (Aggregation.MIN, Aggregation.MAX))
    zero, half, two, lowest = (Literal(x, acc) for x in (0.0, 0.5, 2.0, LOWEST[acc]))
    low, high = (Leaf(end.name, at, acc) for end in ends)
    # Where none counts, both are infinite.
    low, high = call("min", (low, Literal(-LOWEST[acc], acc)), acc), call("max", (high, lowest), acc)
    middle = call("add", (product_of((low, half)), product_of((high, half))), acc)
    above, below = (product_of((call(fn, (end, zero), acc), two)) for fn, end in (("max", low), ("min", high)))
    value = call("min", (call("max", (middle, below), acc), above), acc)
    name, extents = claim(f"{member.pair.op.name}_common", taken), member.pair.domain.extents
    common = computed(extents, name, least.type, at, value, origin=member.pair.op.origin)
    return least, most, common


def _end(member: Weighted, element: Tree, agg: Aggregation, taken: set[str]) -> Contraction:
    """The least or the most of the first few elements of each row that are not left out."""
    op, inner, ranges = member.pair.op, member.pair.inner, member.pair.domain.extents
    rows, few = rows_of(member), min(FEW, ranges[member.index])
    value = as_dtype(unwidened(element), op.acc)
    if len([*_chosen(inner)]) < len([*leaves(inner)]):
        counts = call("cmp_gt", (inner, Literal(-inf, inner.dtype)), DType.BOOL)
        value = call("cond", (counts, value, Literal(agg.identity(op.acc), op.acc)), op.acc)
    type = TensorType(op.acc, tuple(ranges[n] for n in rows))
    name = claim(f"{op.name}_{'least' if agg is Aggregation.MIN else 'most'}", taken)
    return computed(ranges | {member.index: few}, name, type, tuple(map(Affine.var, rows)), value, replace(op, agg=agg))


def _is_sum(total: Weighted, member: Weighted, moved: Tree) -> bool:
    """The number of a row is a sum of what it is added to, below the same largest element."""
    if total.pair.first.name != member.pair.first.name or total.values or not total.scores:
        return False
    mine, theirs = ((*rows_of(m), m.index) for m in (member, total))
    names = {old: Affine.var(new) for old, new in zip(theirs, mine, strict=True)}
    over = {_bare(f) for f in factors_of(moved, rounded=True)[0] if member.moves(f)}
    return {substituted(_bare(f), names) for f in total.scores} == over


def _below(member: Weighted, element: Tree, first: Leaf, taken: set[str]) -> tuple[Contraction, Leaf]:
    """Elements without a number of their row, so that what all of a row have in common is not rounded with each."""
    ranges, names = member.pair.domain.extents, [*rows_of(member), member.index]
    output, type = tuple(map(Affine.var, names)), TensorType(first.dtype, tuple(ranges[n] for n in names))
    value = call("sub", (as_dtype(unwidened(element), first.dtype), first), first.dtype)
    made = computed(
        ranges, claim(f"{member.pair.op.name}_elements", taken), type, output, value, origin=member.pair.op.origin
    )
    return made, Leaf(made.name, output, first.dtype)


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
