"""Whether two programs' values are the same, up to the order and grouping of what is aggregated.

Both sides become terms over the same points, so that no name and no layout of the one has to be found in the other.
An aggregate is a relation from each point to its contributions; partial ones, however nested, are one. Two of them are
equal when the same operands contribute, each as often: contributions are told apart by the cells that they take, and
where they take aggregates, by the first and last cell that those do, after which these are compared in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tile_ir.frozen import frozen
from tile_ir.ops import OPS, Aggregation

from tile_opt.proof.describe import described, term_with
from tile_opt.proof.keys import Contribution, Keyed, contributions, grouped, keyed
from tile_opt.proof.sites import Unsupported
from tile_opt.proof.spaces import DIM, IN, OUT, Relation, Set, integer, isl, paired, projection, sample
from tile_opt.proof.terms import Apply, Constant, Leaf, Term, Value, aggregates_in, aggregation, moved

_IDEMPOTENT = (Aggregation.MAX, Aggregation.MIN)
DEEPEST = 12
"""Aggregates of aggregates of …"""


@frozen
class Difference:
    """A point at which two values differ, and how."""

    point: tuple[int, ...]
    message: str


def differ(wanted: Value, found: Value) -> Difference | None:
    """A point at which two values differ; None where they are the same."""
    for left_points, left in wanted:
        for right_points, right in found:
            points = left_points.intersect(right_points)
            if not points.is_empty() and (difference := _terms(points, left, right, 0)) is not None:
                return difference
    return None


def _terms(points: Set, left: Term, right: Term, depth: int) -> Difference | None:
    agg = aggregation(left) or aggregation(right)
    if agg is not None:
        return _aggregates(agg, points, left, right, depth + 1)
    match left, right:
        case Leaf(a, at), Leaf(b, to) if a == b:
            return _cells(points, left, right, at, to)
        case Constant(a, kind), Constant(b, other) if kind is other and repr(float(a)) == repr(float(b)):
            return None
        case Apply(name, args, kind), Apply(other, others, found) if (name, kind) == (other, found):
            return _operands(points, name, args, others, depth)
        case _:
            at = sample(points)
            return Difference(at, f"{described(right, at)} instead of {described(left, at)}")


def _operands(points: Set, name: str, args: Sequence[Term], others: Sequence[Term], depth: int) -> Difference | None:
    def each(those: Sequence[Term]) -> Difference | None:
        found = (_terms(points, a, b, depth) for a, b in zip(args, those, strict=True))
        return next((difference for difference in found if difference is not None), None)

    first = each(others)
    swapped = first is not None and OPS[name].commutative
    return None if swapped and each(others[::-1]) is None else first


def _cells(points: Set, left: Term, right: Term, at: Relation, to: Relation) -> Difference | None:
    missing = at.intersect_domain(points).subtract(to)
    if missing.is_empty():
        return None
    point = sample(missing.domain())
    return Difference(point, f"{described(right, point)} instead of {described(left, point)}")


# --- aggregates ------------------------------------------------------------------------------------


def _aggregates(agg: Aggregation, points: Set, left: Term, right: Term, depth: int) -> Difference | None:
    if depth > DEEPEST:
        raise Unsupported("aggregates of aggregates, nested too deep")
    wanted, found = (grouped(contributions(agg, points, term)) for term in (left, right))
    for form in sorted({*wanted, *found}):
        difference = _contributions(agg, points, wanted.get(form, []), found.get(form, []), depth)
        if difference is not None:
            return difference
    return None


def _contributions(
    agg: Aggregation, points: Set, wanted: list[Contribution], found: list[Contribution], depth: int
) -> Difference | None:
    """Contributions of one shape: the same ones, each as often."""
    nested = any(any(aggregates_in(c.term)) for c in (*wanted, *found))
    left, right = ([keyed(c, False) for c in side] for side in (wanted, found))
    if nested and not (once(left) and once(right)):
        left, right = ([keyed(c, True) for c in side] for side in (wanted, found))
    wrong = _same_operands(points, left, right)
    if wrong is None and agg not in _IDEMPOTENT and not (once(left) and once(right)):
        wrong = _same_numbers(points, left, right)
    if wrong is None and nested:
        wrong = _within(left, right, depth)
    return wrong


def _same_operands(points: Set, left: list[Keyed], right: list[Keyed]) -> Difference | None:
    if len({k.cells.dim(OUT) for k in (*left, *right)}) > 1:
        return Difference(sample(points), "aggregates of other operands are aggregated")
    wanted, found = _all(left), _all(right)
    for what, more, less, side in (
        ("is missing", wanted, found, left),
        ("is there without need", found, wanted, right),
    ):
        rest = more if more is None or less is None else more.subtract(less)
        if rest is not None and not rest.is_empty():
            return _blamed(points, rest, side, what)
    return None


def _all(side: list[Keyed]) -> Set | None:
    """All points with the keys of what contributes to them."""
    found: Set | None = None
    for each in side:
        found = each.cells.range() if found is None else found.union(each.cells.range())
    return found


def _same_numbers(points: Set, left: list[Keyed], right: list[Keyed]) -> Difference | None:
    wanted, found = counted(left), counted(right)
    for cells, times in wanted:
        for others, number in found:
            both = cells.intersect(others) if times != number else None
            if both is not None and not both.is_empty():
                return _blamed(points, both, left, f"contributes {number} times instead of {times}")
    return None


def _blamed(points: Set, keys: Set, side: list[Keyed], what: str) -> Difference:
    """The difference of which one point with a key is the witness."""
    whole, count = sample(keys), points.dim(DIM)
    own = next(k for k in side if not k.cells.range().intersect(keys).is_empty())
    return Difference(whole[:count], f"{term_with(own.own.term, whole[count:])} {what}")


def _within(left: list[Keyed], right: list[Keyed], depth: int) -> Difference | None:
    """Contributions of the same operands have the same aggregates among them."""
    for a in left:
        for b in right:
            pairs = a.cells.apply_range(b.cells.reverse())
            if pairs.is_empty():
                continue
            flat, n, m = paired(pairs), pairs.dim(IN), pairs.dim(OUT)
            one, other = moved(a.own.term, projection(0, n, m, flat)), moved(b.own.term, projection(n, m, 0, flat))
            if (found := _terms(flat, one, other, depth)) is not None:
                return Difference(_outer(a.own, found.point[:n]), found.message)
    return None


def _outer(contribution: Contribution, point: Sequence[int]) -> tuple[int, ...]:
    """A point to which the contribution with these coordinates contributes."""
    reach = contribution.reach
    for n, value in enumerate(point):
        reach = reach.fix_val(OUT, n, isl.Val.int_from_si(reach.get_ctx(), value))
    return sample(reach.domain())


MOST_COUNTED = 1_000
"""Points whose contributions are counted one by one where their number varies."""

Counts = list[tuple[Set, int]]
"""Disjoint sets of points with keys, and how many contributions each has."""


def once(side: list[Keyed]) -> bool:
    """True when every contribution to a point has a key of its own."""
    if not all(each.cells.is_injective() for each in side):
        return False
    ranges = [each.cells.range() for each in side]
    return all(a.is_disjoint(b) for n, a in enumerate(ranges) for b in ranges[:n])


def counted(side: list[Keyed]) -> Counts:
    """How many contributions each point has by key."""
    total: Counts = []
    for each in side:
        for points, number in _counts(each.cells.reverse()):
            total = _added(total, points, number)
    return total


def _added(total: Counts, points: Set, number: int) -> Counts:
    found: Counts = []
    for there, before in total:
        found += [(there.intersect(points), before + number), (there.subtract(points), before)]
        points = points.subtract(there)
    return [(s, n) for s, n in (*found, (points, number)) if not s.is_empty()]


def _counts(relation: Relation) -> Counts:
    """How many images each point of a relation has: one number where the images are a moved copy of one set."""
    if relation.is_single_valued():
        return [(relation.domain(), 1)]
    first = relation.lexmin()
    space = isl.Space.map_from_set(relation.get_space().range())
    steps = first.range_product(relation).apply_range(isl.Map.universe(space).deltas_map())
    shape = steps.range()
    if isl.Map.from_domain_and_range(relation.domain(), shape).is_equal(steps):
        return [(relation.domain(), _size(shape))]
    return _one_by_one(relation)


def _one_by_one(relation: Relation) -> Counts:
    domain = relation.domain()
    if _size(domain) > MOST_COUNTED:
        raise Unsupported("contributions that repeat irregularly")
    found: dict[int, Set] = {}
    points: list[Any] = []
    domain.foreach_point(points.append)
    for point in map(isl.Set.from_point, points):
        number = _size(relation.intersect_domain(point).range())
        found[number] = found[number].union(point) if number in found else point
    return [(s, n) for n, s in found.items()]


def _size(points: Set) -> int:
    return integer(points.count_val())
