"""False sharing: cache lines that two cores write, each a part, travel from core to core.

Groups are dealt out in runs: every core has a piece of each row of the result. Where pieces begin within a line, the cores
on both sides write it at about the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import ceil, gcd, prod

from tile_ir.frozen import frozen
from tile_ir.machine import Machine
from tile_ir.stripe.affine import Quasi

from tile_opt.model.caches import dealt
from tile_opt.model.footprint import box
from tile_opt.model.scheduled import Access, Buffer, Loop, Tree

AT_ONCE = 3
"""Lines that the stores of one core fetch from other cores at once."""


def contended(tree: Tree, machine: Machine, cores: int) -> float:
    """Seconds that each of so many cores waits for lines which another core wrote a part of."""
    found = dealt(tree, cores)
    if found is None:
        return 0.0
    buffers: dict[Buffer, list[_Written]] = {}
    for written in _written(tree, found[0]):
        buffers.setdefault(written.access.buffer, []).append(written)
    lines = sum(_ends(every, *found, machine.caches[0].line) for every in buffers.values())
    between = next((c.latency for c in machine.caches if c.shared > 1), machine.cycles(machine.memory.latency * 1e-9))
    return lines * between / AT_ONCE / (machine.clock_ghz * 1e9)


@frozen
class _Written:
    access: Access
    guard: tuple[Quasi, ...]
    """What chooses the groups that have this code."""


def _written(tree: Tree, split: Loop) -> Iterator[_Written]:
    """What groups write in memory of all cores, each group at a place of its own."""
    own = [i for i in tree.block.indexes if i.value is None]
    (name,) = (i.name for i, loop in zip(own, tree.loops, strict=True) if loop is split)
    for part in tree.inner or [tree]:
        guard = () if part is tree else tuple(form for form in part.block.guard if name in form.names)
        for leaf in part.walk():
            for access in leaf.accesses.values():
                private = access.buffer.in_registers or split.name in access.buffer.around
                if access.writes and not private and (guard or access.stride(split.name)) and not leaf.passing(access):
                    yield _Written(access, guard)


def _ends(written: list[_Written], split: Loop, pieces: int, line: int) -> float:
    """Lines at both ends of a core's pieces of all rows of a buffer that a neighbour writes too."""
    step = max(w.access.stride(split.name) or 0 for w in written) or _apart(written)
    piece = step * ceil(split.extent / pieces)
    return max(_of_rows(w.access, split, step, gcd(line, piece), line) for w in written)


def _apart(written: list[_Written]) -> int:
    """Bytes between neighbouring groups that have code of their own."""
    starts: dict[tuple[Quasi, ...], int] = {}
    for w in written:
        starts[w.guard] = min(starts.get(w.guard, w.access.offset), w.access.offset)
    return min((b - a for a, b in pairwise(sorted(starts.values())) if b > a), default=0)


def _of_rows(access: Access, split: Loop, step: int, aligned: int, line: int) -> float:
    """The lines of rows further apart than neighbouring groups, of which `aligned` bytes divide the pieces.

    Rows that share a line share its way from core to core, too.
    """
    rows = [(s, n) for s, n in box(access, {split.name}, access.dtype.bytes).rows if s > step > 0]
    aligned = gcd(aligned, access.offset, *(stride for stride, _ in rows))
    lines = prod(count * min(1.0, stride / line) for stride, count in rows)
    return 2 * lines * (line - aligned) / line if rows else 0.0
