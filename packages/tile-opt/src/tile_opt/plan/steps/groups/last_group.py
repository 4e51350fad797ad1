"""Two scheduled kernels as one: what the second does is done by the group of the first that arrives last.

The kernel is ``kernel [tiles] { all groups' block [their loops over the grid]; Sync of the device; the last one's block }``.
Read in order that is what it means: the groups of each tile meet, and the last of them goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tile_ir.frozen import replace
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import ITEMS, Bind, Block, Direction, Index, Refinement, Scope, Statement, Sync
from tile_ir.stripe.walk import blocks_in


def last_group(first: Block, then: Block, tiles: Mapping[str, str]) -> Block:
    """`then`, whose groups are as large as those of `first`, behind all of these that have the same tile.

    `tiles` has the loop of `first` for each loop over the grid of `then`.
    """
    shared = {name: name for name in tiles.values()}
    return Block(
        first.name,
        indexes=tuple(i for i in first.indexes if i.name in shared),
        refs=outside((first, then)),
        body=(_part(first, shared), Sync(Scope.DEVICE, "global"), _part(then, tiles)),
        tags=first.tags | then.tags,
        comment="\n".join(dict.fromkeys(b.comment for b in (first, then) if b.comment)),
        origin=then.origin,
    )


def waits_for_all(block: Block) -> tuple[Block, tuple[Statement, ...]] | None:
    """What all groups do, and what the last one does behind it; None for a kernel in which no group waits for others."""
    match block.body:
        case (Block() as first, Sync(scope=Scope.DEVICE), *then) if all(i.bind is Bind.GRID for i in block.indexes):
            return first, tuple(then)
        case _:
            return None


def apart(block: Block) -> tuple[Block, ...]:
    """The blocks of such a kernel as kernels of their own."""
    tiles = {i.name: i for i in block.indexes}

    def own(index: Index) -> Index:
        passed = index.value.names if index.value is not None else ()
        return replace(tiles[passed[0]], name=index.name) if len(passed) == 1 and passed[0] in tiles else index

    return tuple(replace(b, indexes=tuple(map(own, b.indexes))) for b in block.body if isinstance(b, Block))


def grid(kernel: Block) -> dict[str, int]:
    """A scheduled kernel's loops over the grid."""
    return {i.name: i.range for i in kernel.indexes if i.bind is Bind.GRID and i.range > 1}


def group_size(kernel: Block) -> tuple[int, ...]:
    """Items of a group along each axis."""
    inner = [b.indexes for b in blocks_in(kernel)]
    return tuple(
        max(prod(i.range for i in own if i.bind in ITEMS and i.axis == axis) for own in inner) for axis in range(3)
    )


def _part(kernel: Block, tiles: Mapping[str, str]) -> Block:
    """A kernel inside another, which hands it the loops `tiles`."""
    indexes = tuple(Index(i.name, 1, Affine.var(tiles[i.name])) if i.name in tiles else i for i in kernel.indexes)
    return replace(kernel, indexes=indexes, tags=kernel.tags - {"kernel", "scheduled"}, comment="")


def outside(parts: Sequence[Block]) -> tuple[Refinement, ...]:
    """Main's buffers by their names there, in the direction in which both together use them."""
    found: dict[str, Refinement] = {}
    for ref in (r for p in parts for r in p.refs if r.source):
        known = found.get(ref.source)
        both = ref.dir if known is None or known.dir is ref.dir else Direction.INOUT
        found[ref.source] = replace(known or ref, into=ref.source, dir=both)
    return tuple(found.values())
