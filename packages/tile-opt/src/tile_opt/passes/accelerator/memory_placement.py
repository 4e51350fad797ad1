"""memory_placement: a byte offset for every allocation; two share bytes unless they may be live at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tile_ir.stripe.nodes import Block, Direction, Location, Program, Refinement
from tile_ir.stripe.walk import buffers_named
from tile_ir.target import Target

from tile_opt.blocks.buffers import first_fit
from tile_opt.blocks.tree import map_inner, outside_names, rewrite_matching
from tile_opt.kernel.work import nbytes
from tile_opt.passes.accelerator.compute_deps import dependencies
from tile_opt.passes.base import Pass


@dataclass(frozen=True)
class MemoryPlacement(Pass):
    """Place the allocations of blocks with all tags `reqs`, and of blocks within, that lie in a memory of `locs`.

    Offsets are multiples of `alignment` and of the buffer's own; allocations with a tag of `skip_tags` stay. Buffers of users and constants
    are live throughout. Inner blocks use the bytes above those of the blocks around them.
    """

    places: ClassVar[tuple[str, ...]] = ("locs",)
    reqs: tuple[str, ...] = ("program",)
    locs: tuple[str, ...] = ("DRAM",)
    alignment: int = 4
    skip_tags: tuple[str, ...] = ()

    def apply(self, program: Program, target: Target) -> Program:
        seen = outside_names(program)
        return rewrite_matching(
            program, self.reqs, lambda b, parents: self._placed(b, {}, frozenset() if parents else seen)
        )

    def _placed(self, block: Block, base: Mapping[Location, int], seen: frozenset[str] = frozenset()) -> Block:
        """`seen` are buffers of the user's: they share their bytes with none."""
        mine = [r for r in block.refs if self._wanted(r)]
        offsets, tops = place(block, mine, self.alignment, base, seen)
        refs = tuple(replace(r, offset=offsets[r.into]) if r.into in offsets else r for r in block.refs)
        return map_inner(replace(block, refs=refs), lambda inner: self._placed(inner, tops))

    def _wanted(self, ref: Refinement) -> bool:
        return ref.dir is Direction.ALLOC and ref.loc.unit in self.locs and not ref.tags.intersection(self.skip_tags)


def place(
    block: Block,
    allocs: Sequence[Refinement],
    alignment: int,
    base: Mapping[Location, int],
    seen: frozenset[str] = frozenset(),
) -> tuple[dict[str, int], dict[Location, int]]:
    """Offsets by name, and the first free byte of each memory above everything placed."""
    users = {r.into: [k for k, s in enumerate(block.body) if r.into in buffers_named(s)] for r in allocs}
    after = [waits for _, waits in dependencies(block, {})] if len(allocs) > 1 else []
    offsets: dict[str, int] = {}
    tops = dict(base)
    done: list[Refinement] = []
    for ref in sorted(allocs, key=lambda r: (-size_of(r), r.into)):
        blocked = [
            (offsets[o.into], offsets[o.into] + size_of(o))
            for o in done
            if o.loc == ref.loc and (seen & {ref.into, o.into} or _together(ref, o, users, after))
        ]
        align = max(alignment, ref.type.layout.align)
        offset = first_fit(size_of(ref), blocked, align, base.get(ref.loc, 0))
        offsets[ref.into] = offset
        tops[ref.loc] = max(tops.get(ref.loc, 0), offset + size_of(ref))
        done.append(ref)
    return offsets, tops


def size_of(ref: Refinement) -> int:
    """Bytes of an allocation with all its versions."""
    return nbytes(ref.type) * ref.versions


def _together(a: Refinement, b: Refinement, users: Mapping[str, list[int]], after: Sequence[set[int]]) -> bool:
    """False when every user of one waits, directly or not, for every user of the other."""
    first, second = users[a.into], users[b.into]
    return not (_precedes(first, second, after) or _precedes(second, first, after))


def _precedes(first: Sequence[int], second: Sequence[int], after: Sequence[set[int]]) -> bool:
    return all(a in after[b] for a in first for b in second)
