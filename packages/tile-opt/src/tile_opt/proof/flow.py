"""Which stores a load sees: for every point of a load the last store of its cell, and all that merged into it since.

Sites run in one order that their loops and barriers allow: threads of a group advance together, statement by
statement. When no two unordered points touch a cell of which one writes (`races`), every allowed order gives the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tile_opt.proof.sites import Access, Buffer
from tile_opt.proof.spaces import Relation, Set, Spaces, isl, named, pieces, simple, unnamed


@dataclass(frozen=True, slots=True)
class Seen:
    """What a load sees."""

    stores: tuple[tuple[Access, Relation], ...]
    """The last stores that replace, from the load's points to theirs."""
    merges: tuple[tuple[Access, Relation], ...]
    """Those that merged into the cell since."""
    unwritten: Set
    """The points that read a cell before any store."""


def flows(spaces: Spaces, buffer: Buffer, loads: Sequence[Access], stores: Sequence[Access]) -> dict[Access, Seen]:
    """What each of `loads` of the buffer sees of `stores` into it."""
    length = 2 + max(len(a.site.time) + 1 for a in (*loads, *stores))
    sinks, order = _union(spaces, loads, "r"), _times(spaces, loads, "r", length)
    if not stores:
        return {load: Seen((), (), spaces.access(load).domain()) for load in loads}
    order = order.union(_times(spaces, stores, "w", length))
    problem = isl.UnionAccessInfo.from_sink(sinks)
    for agg, given in ((False, problem.set_must_source), (True, None)):
        of_kind = [(n, s) for n, s in enumerate(stores) if (s.agg is not None) is agg]
        if of_kind:
            given = given or problem.set_may_source
            problem = given(_numbered(spaces, of_kind, "w"))
    flow = problem.set_schedule_map(order).compute_flow()
    return _sorted(spaces, flow, loads, stores)


def _sorted(spaces: Spaces, flow: Relation, loads: Sequence[Access], stores: Sequence[Access]) -> dict[Access, Seen]:
    found: list[list[tuple[Access, Relation]]] = [[] for _ in loads]
    for relation in pieces(flow.get_may_dependence()):
        store = stores[int(relation.get_tuple_name(isl.dim_type.in_)[1:])]
        load = int(relation.get_tuple_name(isl.dim_type.out)[1:])
        found[load].append((store, simple(unnamed(relation.reverse()))))
    result: dict[Access, Seen] = {}
    for load, each in zip(loads, found, strict=True):
        seen = spaces.access(load).domain()
        for _, relation in each:
            seen = seen.subtract(relation.domain())
        stored = tuple((s, r) for s, r in each if s.agg is None)
        result[load] = Seen(stored, tuple((s, r) for s, r in each if s.agg is not None), seen)
    return result


def _union(spaces: Spaces, accesses: Iterable[Access], letter: str) -> Relation:
    return _numbered(spaces, enumerate(accesses), letter)


def _numbered(spaces: Spaces, accesses: Iterable[tuple[int, Access]], letter: str) -> Relation:
    return _joined(named(spaces.access(access), f"{letter}{n}", "cell") for n, access in accesses)


def _times(spaces: Spaces, accesses: Iterable[Access], letter: str, length: int) -> Relation:
    each = enumerate(accesses)
    return _joined(named(spaces.time(a.site, (a.position,), length), f"{letter}{n}", "time") for n, a in each)


def _joined(relations: Iterable[Relation]) -> Relation:
    first, *rest = relations
    union = isl.UnionMap.from_map(first)
    for relation in rest:
        union = union.union(isl.UnionMap.from_map(relation))
    return union
