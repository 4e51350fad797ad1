"""Coalescing: the sectors of global memory, and the bank conflicts in local memory, of one access by a sub-group (warp)."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from tile_ir.machine import Machine
from tile_ir.stripe.nodes import ITEMS, Swizzle

from tile_opt.model.meeting import near_turns
from tile_opt.model.scheduled import Access, Loop, Term, Tree

PER_TURN = 128
"""Bytes, side by side, that a core's path to its memories moves per cycle."""


def turns(access: Access, lanes: int, tree: Tree, machine: Machine) -> float:
    """Cycles that one access by a whole sub-group, `lanes` elements by each item, occupies the path to memory."""
    bytes_ = lanes * access.dtype.bytes
    places = _of_sub_group(access, tree, machine)
    local = machine.local
    banks, wide = (local.banks, local.bank_bytes) if local is not None else (32, 4)
    if access.scattered and access.buffer.unit == "LOCAL":
        return near_turns(access, len(places), banks) if access.agg is not None else float(len(places))
    if access.scattered:
        return float(met(access, tree, machine, PER_TURN))
    if access.buffer.unit == "LOCAL":
        return _bank_turns(places, bytes_, banks, wide, access.buffer.swizzle, access.dtype.bytes)
    return float(len(sectors(places, bytes_, PER_TURN)))


def met(access: Access, tree: Tree, machine: Machine, unit: int) -> int:
    """Pieces of so many bytes that a sub-group meets where data says: what it puts into one row lies side by side."""
    places, items = _of_sub_group(access, tree, machine), tuple(i for i in tree.path if i.bind in ITEMS)
    moved = [i for i in items if i.name in access.chosen]
    rows = tuple(Term(1 << 16 * k, i.extent, frozenset((i.name,))) for k, i in enumerate(moved))
    together: dict[int, list[int]] = {}
    for row, place in zip(_places(rows, items, len(places)), places, strict=True):
        together.setdefault(row, []).append(place)
    return sum(len(sectors(tuple(p), access.dtype.bytes, unit)) for p in together.values())


def sent(access: Access, tree: Tree, machine: Machine) -> float:
    """Sectors that a sub-group's stores of one pass send to the last cache: each store its own, whatever others put beside it.

    A vector that may begin at any of its elements goes element by element.
    """
    whole = next((i for i in (tree.vector,) if i is not None and _aligned(access, i)), None)
    lanes = 1 if whole is None else whole.lanes
    times = prod(-(-i.extent // (lanes if i is whole else 1)) for i in tree.static if access.moved_by(i.name))
    places = _of_sub_group(access, tree, machine)
    sector = machine.caches[0].sector or machine.caches[0].line
    if access.scattered:
        return times * float(met(access, tree, machine, sector) if access.agg is not None else len(places))
    return times * float(len(sectors(places, lanes * access.dtype.bytes, sector)))


def _aligned(access: Access, vector: Loop) -> bool:
    """Lanes are neighbours in memory, and begin at multiples of all of them."""
    bytes_ = vector.lanes * access.dtype.bytes
    return access.stride(vector.name) == access.dtype.bytes and access.alignment(vector, bytes_) == bytes_


def sectors(places: tuple[int, ...], bytes_: int, sector: int) -> set[int]:
    """Numbers of the sectors that accesses of so many bytes at these places touch."""
    return {n for at in places for n in range(at // sector, (at + bytes_ - 1) // sector + 1)}


@lru_cache(1 << 12)
def _bank_turns(
    places: tuple[int, ...], bytes_: int, banks: int, wide: int, swizzle: Swizzle | None, element: int
) -> float:
    """Turns of a local memory: in each, a bank gives one word; items that want the same word share it."""
    at_once = max(1, banks * wide // max(bytes_, wide))
    total = 0
    for first in range(0, len(places), at_once):
        words: dict[int, set[int]] = {}
        for place in places[first : first + at_once]:
            start = _swizzled(place // element, swizzle) * element
            for word in range(start // wide, (start + bytes_ - 1) // wide + 1):
                words.setdefault(word % banks, set()).add(word)
        total += max(map(len, words.values()))
    return float(total)


def _swizzled(offset: int, swizzle: Swizzle | None) -> int:
    if swizzle is None:
        return offset
    return offset ^ ((offset >> swizzle.shift & (1 << swizzle.bits) - 1) << swizzle.base)


def _of_sub_group(access: Access, tree: Tree, machine: Machine) -> tuple[int, ...]:
    """Byte offsets at which the items of a group's first sub-group are."""
    assert machine.occupancy is not None
    loops = tuple(i for i in tree.path if i.bind in ITEMS)
    return _places(access.terms, loops, min(machine.occupancy.subgroup, max(1, tree.items)))


@lru_cache(1 << 12)
def _places(terms: tuple[Term, ...], loops: tuple[Loop, ...], count: int) -> tuple[int, ...]:
    """Byte offsets of the first `count` items of a group, numbered as the lanes of sub-groups are."""
    order = sorted(range(len(loops)), key=lambda n: (loops[n].axis, -n))
    found: list[int] = []
    for item in range(count):
        values: dict[str, int] = {}
        rest = item
        for n in order:
            rest, values[loops[n].name] = divmod(rest, loops[n].extent)
        found.append(sum(t.at(values) for t in terms if not t.loops.isdisjoint(values)))
    return tuple(found)
