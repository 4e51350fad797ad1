"""Work groups: enough of them for every core, each worth its start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from tile_ir.stripe.nodes import Bind

from tile_opt.kernel.work import nbytes
from tile_opt.plan.plan import Cover, Edge, Level, Plan
from tile_opt.plan.space.cpu.facts import Facts

GROUPS_PER_CORE = 64
ROUNDS = 4
"""Groups per core that even out what groups differ in."""
IDLE = 1.1
"""Times a core's even share of the work that the longest core may have."""


def wanted_groups(facts: Facts) -> int:
    """Groups that the kernel's work is worth; 1 for what one core does before the others wake, and for parts of a pipeline."""
    if any(i.bind is Bind.GRID for i in facts.view.loops):
        return 1
    return max(1, min(facts.work // facts.group_ops, GROUPS_PER_CORE * facts.settings.cores))


def cut(
    facts: Facts, order: Sequence[str], sizes: Mapping[str, int], wanted: int, most: bool = False
) -> dict[str, int]:
    """Iterations of each loop that a group covers: whole tiles, outermost loops cut first, until there are `wanted`.

    With `most`, a loop is cut into no more parts than are wanted of it: each costs something.
    """
    groups = 1
    found: dict[str, int] = {}
    for name in order:
        if groups >= wanted:
            break
        tile = sizes.get(name, 1)
        positions = -(-facts.extents[name] // tile)
        parts = -(-wanted // groups)
        chunk = -(-positions // parts) if most else max(1, positions // parts)
        if chunk < positions:
            found[name] = chunk * tile
            groups *= -(-positions // chunk)
    return found


def cut_rows(facts: Facts, loop: str, tile: int, wanted: int) -> int:
    """Iterations of the unrolled loop that a group covers.

    Each group walks the whole vector operand again, so groups are as large as the cache and balance allow.
    """
    positions = -(-facts.extents[loop] // tile)
    step = 2 * facts.settings.cores
    per_tile = max(1, _row_bytes(facts, loop) * tile)
    held = max(1, facts.cache(2).bytes // 3 // per_tile)
    groups = max(-(-positions // held), min(wanted, 2 * step))
    groups = min(positions, -(-groups // step) * step)
    return -(-positions // groups) * tile


def _row_bytes(facts: Facts, loop: str) -> int:
    """Bytes of the operand rows that one iteration of the loop reads."""
    reads = (u for u in facts.memory_uses() if u.reads and loop in facts.names(u))
    return max((nbytes(facts.view.type_of(u.buffer)) // facts.extents[loop] for u in reads), default=1)


def count(facts: Facts, groups: Mapping[str, int]) -> int:
    """How many groups there are where each covers so many iterations of these loops."""
    return prod(-(-facts.extents[n] // size) for n, size in groups.items())


def group_levels(
    groups: Mapping[str, int], order: Iterable[str], sizes: Mapping[str, int] | None = None
) -> list[Level]:
    """The groups, and the loops that lead from tile to tile inside one: those of which it has more than a tile of `sizes`."""
    tiles = {n: (sizes or {}).get(n, 1) for n in order}
    levels = [Level(Bind.GRID, tuple(Cover(n, s) for n, s in groups.items()))] if groups else []
    return levels + [Level(Bind.NONE, (Cover(n, size),)) for n, size in tiles.items() if groups.get(n) != size]


def vectors_plan(facts: Facts, vector: str, lanes: int, unrolled: Sequence[str], reason: str) -> Plan:
    """Vectors along one loop, each of straight-line code for all iterations of the `unrolled` loops."""
    outer = [n for n in facts.shared if n != vector and n not in unrolled]
    groups = cut(facts, [*outer, vector], {vector: lanes}, wanted_groups(facts))
    levels = [*group_levels(groups, outer), Level(Bind.NONE, (Cover(vector, lanes),))]
    levels += [Level(Bind.UNROLL, tuple(Cover(n, 1) for n in unrolled))] if unrolled else []
    levels.append(Level(Bind.VECTOR, (Cover(vector, 1),), lanes=lanes))
    edges = ((vector, Edge.OVERLAP),) if vector not in groups and facts.overlaps(vector) else ()
    return Plan(tuple(levels), edges=edges, reason=reason)


def is_balanced(facts: Facts, groups: Mapping[str, int]) -> bool:
    """No core idles for more than a tenth of the time: groups at the ends of loops may have little to do."""
    cores, number = facts.settings.cores, count(facts, groups)
    share = prod(facts.extents[n] / size for n, size in groups.items()) / cores
    return min(-(-number // cores), share + 1) <= IDLE * share
