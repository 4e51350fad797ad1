"""Which stores a load sees: for every point of a load the last store of its cell, and all that merged into it since.

Sites run in one order that their loops and barriers allow: threads of a group advance together, statement by
statement. When no two unordered points touch a cell of which one writes (`races`), every allowed order gives the same.

ISL's own dataflow is not asked: it rests on the points for which a partial maximum has no answer, and loses some of
these where subscripts have quotients, as those of a view under another shape do.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from tile_ir.frozen import frozen
from tile_ir.stripe.affine import Affine

from tile_opt.proof.sites import THREADS, Access, Form, Site, Unsupported
from tile_opt.proof.spaces import Relation, Set, Spaces, isl, simple

Ways = tuple[tuple[Access, Relation], ...]
"""Stores, each with the relation from a load's points to its own."""


@frozen
class Seen:
    """What a load sees."""

    stores: Ways
    """The last stores that replace, from the load's points to theirs."""
    merges: Ways
    """Those that merged into the cell since."""
    unwritten: Set
    """The points that read a cell before any store."""


def flow(spaces: Spaces, load: Access, stores: Sequence[Access]) -> Seen:
    """What `load` sees of `stores` into its buffer."""
    length = 1 + max(len(a.site.time) + 1 for a in (load, *stores))
    earlier = _earlier(spaces, load, stores)
    last = _last(spaces, tuple((s, r) for s, r in earlier if s.agg is None), length)
    merges = _since(spaces, tuple((s, r) for s, r in earlier if s.agg is not None), last)
    unwritten = spaces.access(load).domain()
    for store, relation in earlier:
        unwritten = unwritten.subtract(_reached(spaces, load, store, relation))
    return Seen(_simple(last), _simple(merges), unwritten)


def _reached(spaces: Spaces, load: Access, store: Access, relation: Relation) -> Set:
    """The points of a load that see a store, alone or under later ones.

    Where all of its points come before, what cells it has is asked first: these have a plain form more often than pairs of points.
    """
    if load.site.kernel == store.site.kernel:
        return relation.domain()
    return spaces.access(load).intersect_range(spaces.cells(store)).domain()


def _simple(ways: Ways) -> Ways:
    return tuple((store, simple(relation)) for store, relation in ways)


def _earlier(spaces: Spaces, load: Access, stores: Sequence[Access]) -> Ways:
    """The points of stores that touch a load's cell before it."""
    cells = spaces.access(load)
    found: list[tuple[Access, Relation]] = []
    for store in stores:
        order = before(spaces, store.site, (store.position,), load.site, (load.position,))
        if order is not None:
            relation = cells.apply_range(spaces.access(store).reverse()).intersect(order.reverse())
            if not relation.is_empty():
                found.append((store, relation))
    return tuple(found)


def _last(spaces: Spaces, ways: Ways, length: int) -> Ways:
    """Of each point's stores the last one."""
    apart = all(a.domain().is_disjoint(b.domain()) for (_, a), (_, b) in combinations(ways, 2))
    if apart and all(relation.is_single_valued() for _, relation in ways):
        return ways
    times = [spaces.time(store.site, (store.position,), length) for store, _ in ways]
    each = [relation.apply_range(time) for (_, relation), time in zip(ways, times, strict=True)]
    every = each[0]
    for other in each[1:]:
        every = every.union(other)
    latest = every.lexmax()
    if not every.domain().is_subset(latest.domain()):
        raise Unsupported("stores whose order has no answer")
    found = ((s, latest.apply_range(time.reverse())) for (s, _), time in zip(ways, times, strict=True))
    return tuple((store, relation) for store, relation in found if not relation.is_empty())


def _since(spaces: Spaces, merges: Ways, last: Ways) -> Ways:
    """What merged into a cell after the last store that replaced it."""
    found: list[tuple[Access, Relation]] = []
    for merge, relation in merges:
        for store, replaced in last:
            order = before(spaces, merge.site, (merge.position,), store.site, (store.position,))
            if order is not None:
                relation = relation.subtract(replaced.apply_range(order.reverse()))
        if not relation.is_empty():
            found.append((merge, relation))
    return tuple(found)


def before(spaces: Spaces, one: Site, at: Sequence[int], other: Site, then: Sequence[int]) -> Relation | None:
    """From points of a site to those of another that run later, a statement `at` in the one and `then` in the other.

    None where none do. Threads of a group advance together, so that their numbers order nothing.
    """
    first, second = list[Form](), list[Form]()
    threads = {loop.name for site in (one, other) for loop in site.loops if loop.bind in THREADS}
    for a, b in zip((*one.time, *at), (*other.time, *then), strict=False):
        if isinstance(a, int) and isinstance(b, int):
            if a != b:
                return _ordered(spaces, (one, first), (other, second), at_once=a < b)
        elif a not in threads and b not in threads:
            first.append(_form(a))
            second.append(_form(b))
    return _ordered(spaces, (one, first), (other, second), at_once=False)


def _form(step: int | str) -> Form:
    return (Affine.var(step) if isinstance(step, str) else Affine((), step),)


def _ordered(
    spaces: Spaces, first: tuple[Site, list[Form]], second: tuple[Site, list[Form]], at_once: bool
) -> Relation | None:
    """By their loops; `at_once`: also within the same iterations of these."""
    (one, steps), (other, others) = first, second
    if not steps:
        return isl.Map.from_domain_and_range(spaces.domain(one), spaces.domain(other)) if at_once else None
    times = spaces.forms(one, steps), spaces.forms(other, others)
    return times[0].lex_le_map(times[1]) if at_once else times[0].lex_lt_map(times[1])
