"""How often contributions with one key contribute to a point."""

from __future__ import annotations

from typing import Any

from tile_opt.proof.keys import Keyed
from tile_opt.proof.sites import Unsupported
from tile_opt.proof.spaces import Relation, Set, integer, isl

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
