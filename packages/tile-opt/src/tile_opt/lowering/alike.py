"""Kernels that differ in the parts of buffers alone which they touch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from tile_ir.stripe.hashing import structural_hash
from tile_ir.stripe.nodes import Block, Direction, Refinement


def alike_parts(main: Block, least: int) -> frozenset[str]:
    """Names of parts that at least so many kernels each touch in the same place of one structure.

    A part that is written is in one piece, and not read. A kernel that writes one touches nothing else of the buffer but such parts.
    """
    parts = {r.into: r for r in main.refs if r.source not in ("", r.into) and not r.const}
    families: defaultdict[str, list[Block]] = defaultdict(list)
    for kernel in main.body if len(parts) >= least else ():
        if isinstance(kernel, Block) and any(r.source in parts for r in kernel.refs):
            families[structural_hash(kernel)].append(kernel)
    alike = [k for family in families.values() if len(family) >= least for k in family]
    found = {r.source for kernel in alike for r in kernel.refs} & parts.keys()
    others = (k for k in main.body if isinstance(k, Block))
    return frozenset(found.difference(*(_in_the_way(kernel, parts, found) for kernel in others)))


def _in_the_way(kernel: Block, parts: Mapping[str, Refinement], found: set[str]) -> set[str]:
    """Of the parts `found` those that a kernel touches along with more of the same buffer, or reads and writes, or writes with gaps."""
    touched: defaultdict[str, list[Refinement]] = defaultdict(list)
    for ref in kernel.refs:
        touched[parts[ref.source].source if ref.source in parts else ref.source].append(ref)
    bad: set[str] = set()
    for refs in touched.values():
        written = [r for r in refs if r.dir is not Direction.IN]
        whole = all(r.source in found for r in refs)
        both = any(r.dir is Direction.INOUT for r in written)
        dense = all(parts[r.source].type.solid == parts[r.source].type.extent for r in written if r.source in parts)
        if written and (both or not (whole and dense)):
            bad |= {r.source for r in refs}
    return bad & found
