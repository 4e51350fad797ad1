"""What items wait for one another that merge into the same cells of memory, wherever data says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tile_ir.machine import Machine
from tile_ir.stripe.nodes import Store

from tile_opt.model.scheduled import Access, Tree

AT_ONCE = 2.5
"""Turns of a local memory that items take longest by chance alone: of as many words as banks, a few fall on one bank."""


def near_turns(access: Access, items: int, banks: int) -> float:
    """Turns of local memory for merges of so many items of a sub-group into any of its cells."""
    cells = max(1, access.buffer.bytes // access.dtype.bytes)
    return items / min(banks, cells) + AT_ONCE


def contention(merges: Iterable[tuple[Access, float]], machine: Machine) -> float:
    """Seconds that the last cache takes for so many merges where they are spread over lines evenly, one line after the other."""
    last = machine.caches[-1]
    cycles = sum(times * last.collision / max(1, a.buffer.bytes / last.line) for a, times in merges)
    return cycles / (machine.clock_ghz * 1e9)


def merges(tree: Tree) -> Iterator[tuple[Tree, Access]]:
    """The blocks that merge indivisibly into the device's memory."""
    for one in tree.walk():
        for name in {s.dst for s in one.block.body if isinstance(s, Store) and s.atomic}:
            access = one.accesses[name]
            if access.agg is not None and access.buffer.unit == "DRAM":
                yield one, access
