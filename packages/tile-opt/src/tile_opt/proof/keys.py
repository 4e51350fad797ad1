"""What contributes to an aggregate: partial aggregates taken apart, and contributions told apart by their operands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tile_ir.ops import Aggregation

from tile_opt.proof.spaces import IN, OUT, Relation, Set, isl, paired, projection, simple
from tile_opt.proof.terms import Aggregate, Apply, Constant, Term, aggregates_in, aggregation, leaves_in, moved, shape


@dataclass(frozen=True, slots=True, eq=False)
class Contribution:
    """From points to what contributes to them, and what it is worth there."""

    reach: Relation
    term: Term


@dataclass(frozen=True, slots=True, eq=False)
class Keyed:
    """A contribution with, from its own points, the points that it contributes to and its key behind those."""

    own: Contribution
    cells: Relation


def contributions(agg: Aggregation, points: Set, term: Term) -> Iterator[Contribution]:
    """All that is merged into an aggregate at some points; identities are nothing."""
    yield from _taken_apart(agg, identity(points), term, True)


def _taken_apart(agg: Aggregation, reach: Relation, term: Term, alone: bool) -> Iterator[Contribution]:
    """`alone`: one contribution reaches each point, so that nothing has to be told apart."""
    match term:
        case Aggregate(kind, parts) if kind is agg:
            inner = reach.range()
            for part in parts:
                for points, worth in part.value:
                    step = part.reach.intersect_domain(inner).intersect_range(points)
                    if not step.is_empty():
                        yield from _followed(agg, reach, step, worth, alone)
        case Apply(name, args) if name == agg.value:
            for arg in args:
                yield from _taken_apart(agg, reach, arg, alone)
        case Constant(value, dtype) if value == agg.identity(dtype):
            pass
        case _:
            yield Contribution(reach, term)


def _followed(agg: Aggregation, reach: Relation, step: Relation, worth: Term, alone: bool) -> Iterator[Contribution]:
    """One level down; where several ways lead to a point they stay apart."""
    if not alone and not step.is_injective():
        pairs = paired(step)
        n, m = step.dim(IN), step.dim(OUT)
        worth = moved(worth, projection(n, m, 0, pairs))
        step = projection(0, n, m, pairs).reverse()
    yield from _taken_apart(agg, simple(reach.apply_range(step)), worth, False)


def grouped(found: Iterator[Contribution]) -> dict[str, list[Contribution]]:
    """Contributions by the shape of their terms."""
    groups: dict[str, list[Contribution]] = {}
    for contribution in found:
        groups.setdefault(shape(contribution.term), []).append(contribution)
    return groups


def keyed(contribution: Contribution, deep: bool) -> Keyed:
    """By the cells of its leaves; with `deep` also by those of the aggregates that it takes."""
    inner = contribution.reach.range()
    key = _key(contribution.term, inner, deep)
    return Keyed(contribution, contribution.reach.reverse().flat_range_product(key))


def _key(term: Term, points: Set, deep: bool) -> Relation:
    key = identity(points).project_out(OUT, 0, points.dim(isl.dim_type.set))
    for leaf in leaves_in(term):
        key = key.flat_range_product(leaf.at.intersect_domain(points))
    if deep:
        for aggregate in aggregates_in(term):
            for ends in _ends(aggregate, points):
                key = key.flat_range_product(ends)
    return key


def _ends(term: Term, points: Set) -> Iterator[Relation]:
    """The first and the last key of what contributes to an aggregate, by shape; -1 for none."""
    agg = aggregation(term)
    assert agg is not None
    for _, group in sorted(grouped(contributions(agg, points, term)).items()):
        each = [c.reach.apply_range(_key(c.term, c.reach.range(), True)) for c in group]
        union = each[0]
        for other in each[1:]:
            union = union.union(other)
        none = isl.Map.from_domain_and_range(points.subtract(union.domain()), _minus_one(union))
        yield union.lexmin().union(none)
        yield union.lexmax().union(none)


def _minus_one(relation: Relation) -> Set:
    universe = isl.Set.universe(relation.get_space().range())
    for n in range(relation.dim(OUT)):
        universe = universe.fix_val(isl.dim_type.set, n, isl.Val.int_from_si(relation.get_ctx(), -1))
    return universe


def identity(points: Set) -> Relation:
    return isl.Map.identity(isl.Space.map_from_set(points.get_space())).intersect_domain(points)
