"""Unordered points that touch one cell, of which one writes.

Unordered are points of different work groups, threads of one group with no barrier between (one of their sub-group's lanes counts
for these), and lanes of one vector.
Stores that merge in the same way may meet across lanes, which a vector reduces, and where they are atomic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement

from tile_ir.frozen import frozen
from tile_ir.stripe.nodes import Bind, Scope

from tile_opt.proof.flow import before
from tile_opt.proof.sites import GRIDS, THREADS, Access, Flat, Loop, Site
from tile_opt.proof.spaces import DIM, IN, OUT, Relation, Set, Spaces, isl, sample


@frozen
class Race:
    """Two accesses that meet in a cell, and what their points differ in."""

    one: Access
    other: Access
    cell: tuple[int, ...]
    between: str


def races(spaces: Spaces, flat: Flat, kernel: int) -> Iterator[Race]:
    """The races within a kernel."""
    barriers = [b for b in flat.barriers if b.kernel == kernel]
    touched: dict[int, list[Access]] = {}
    for access in flat.accesses:
        if access.site.kernel == kernel:
            touched.setdefault(id(access.buffer), []).append(access)
    for accesses in touched.values():
        for one, other in combinations_with_replacement(accesses, 2):
            if one.writes or other.writes:
                yield from _between(spaces, one, other, barriers)


def _between(spaces: Spaces, one: Access, other: Access, barriers: Sequence[Site]) -> Iterator[Race]:
    for what, find in (("work groups", _groups), ("threads", _threads), ("lanes", _lanes)):
        found = find(spaces, one, other)
        if found is not None and what == "threads" and not found.is_empty():
            found = _unfenced(spaces, one, other, [b for b in barriers if _covers(b, one.buffer.scope)], found)
        if found is not None and not found.is_empty():
            cells = spaces.access(one).intersect_domain(found.domain()).range()
            yield Race(one, other, sample(cells), what)


def _covers(barrier: Site, scope: Scope) -> bool:
    """What was stored to such memory before the barrier is seen behind it."""
    return barrier.fence == "all" or {Scope.GROUP: "local", Scope.DEVICE: "global"}.get(scope) in (None, barrier.fence)


def _groups(spaces: Spaces, one: Access, other: Access) -> Relation | None:
    """Meetings of different work groups."""
    loops = _shared(one, other, GRIDS)
    if not loops or (_merged(one, other) and one.atomic and other.atomic):
        return None
    return _differing(_meetings(spaces, one, other), one, other, [(x, x) for x in loops])


def _threads(spaces: Spaces, one: Access, other: Access) -> Relation | None:
    """Meetings of different threads of one group; blocks with as many threads deal them out alike."""
    a, b = ([x for x in access.site.loops if x.bind in THREADS] for access in (one, other))
    if one.buffer.scope is Scope.SUBGROUP:  # its lanes hold the cells together, and go on together
        a = b = _shared(one, other, THREADS)
    private = set(a) <= set(one.buffer.home) and a == b
    if not a or not b or private or (_merged(one, other) and one.atomic and other.atomic):
        return None
    meeting = _equal(_meetings(spaces, one, other), one, other, _shared(one, other, GRIDS))
    alike = [x.range for x in a] == [x.range for x in b]
    return _differing(meeting, one, other, [*zip(a, b, strict=True)]) if alike else meeting


def _lanes(spaces: Spaces, one: Access, other: Access) -> Relation | None:
    """Meetings of different lanes at one point of the other loops."""
    if one.site is not other.site or _merged(one, other):
        return None
    lanes = [x for x in one.site.loops if x.bind is Bind.VECTOR and x not in one.buffer.home]
    if not lanes:
        return None
    rest = [x for x in one.site.loops if x not in lanes]
    meeting = _equal(_meetings(spaces, one, other), one, other, rest)
    return _differing(meeting, one, other, [(x, x) for x in lanes])


def _shared(one: Access, other: Access, kinds: frozenset[Bind]) -> list[Loop]:
    """The loops of these kinds around both, where the buffer is not one for each of their points."""
    home = one.buffer.home
    return [x for x in one.site.loops if x.bind in kinds and x in other.site.loops and x not in home]


def _merged(one: Access, other: Access) -> bool:
    return one.writes and other.writes and one.agg is not None and one.agg is other.agg


def _meetings(spaces: Spaces, one: Access, other: Access) -> Relation:
    """Points of the one access with those of the other that touch the same cell."""
    return spaces.access(one).apply_range(spaces.access(other).reverse())


def _equal(meeting: Relation, one: Access, other: Access, loops: Sequence[Loop]) -> Relation:
    for loop in loops:
        meeting = meeting.equate(IN, one.site.loops.index(loop), OUT, other.site.loops.index(loop))
    return meeting


def _differing(meeting: Relation, one: Access, other: Access, loops: Sequence[tuple[Loop, Loop]]) -> Relation:
    """Meetings at different values of at least one pair of loops."""
    same = meeting
    for a, b in loops:
        same = same.equate(IN, one.site.loops.index(a), OUT, other.site.loops.index(b))
    return meeting.subtract(same)


def _unfenced(spaces: Spaces, one: Access, other: Access, barriers: Sequence[Site], meeting: Relation) -> Relation:
    """Meetings with no barrier between."""
    for barrier in barriers:
        apart = _apart(barrier)
        if any(_of(s, apart) != _of(barrier, apart) for s in (one.site, other.site)):
            continue
        for a, b, turned in ((one, other, False), (other, one, True)):
            there = _before(spaces, a.site, (a.position,), barrier, (), apart)
            back = _before(spaces, barrier, (), b.site, (b.position,), apart)
            if there is None or back is None:
                continue
            ordered = there.apply_range(back)
            meeting = meeting.subtract(ordered.reverse() if turned else ordered)
            if meeting.is_empty():
                return meeting
    return meeting


def _apart(barrier: Site) -> frozenset[Bind]:
    """Bindings whose points do not wait for one another there: sub-groups, at a barrier of their lanes."""
    return THREADS - {Bind.LANE} if barrier.among is Scope.SUBGROUP else frozenset()


def _of(site: Site, binds: frozenset[Bind]) -> list[Loop]:
    return [x for x in site.loops if x.bind in binds]


def _before(
    spaces: Spaces, one: Site, at: Sequence[int], other: Site, then: Sequence[int], apart: frozenset[Bind]
) -> Relation | None:
    """From points of one site to those of another that run later among the same threads; None where none do."""
    later = before(spaces, one, at, other, then)
    for n, loop in enumerate(one.loops):
        if later is not None and loop.bind in GRIDS | apart and loop in other.loops:
            later = later.equate(IN, n, OUT, other.loops.index(loop))
    return later


def divergent(spaces: Spaces, flat: Flat, kernel: int) -> Iterator[tuple[Site, tuple[int, ...]]]:
    """Barriers that some threads of a group do not reach, and such a thread with the loops around it."""
    for barrier in flat.barriers:
        if barrier.kernel == kernel:
            domain = spaces.domain(barrier)
            missing = _all_threads(barrier, domain).subtract(domain)
            if not missing.is_empty():
                yield barrier, sample(missing)


def _all_threads(barrier: Site, domain: Set) -> Set:
    """The points of a set with each thread's number set free within its range, among those that wait for one another."""
    for n, loop in enumerate(barrier.loops):
        if loop.bind in THREADS - _apart(barrier):
            domain = domain.eliminate(DIM, n, 1).lower_bound_val(DIM, n, isl.Val.zero(domain.get_ctx()))
            domain = domain.upper_bound_val(DIM, n, isl.Val.int_from_si(domain.get_ctx(), loop.range - 1))
    return domain
