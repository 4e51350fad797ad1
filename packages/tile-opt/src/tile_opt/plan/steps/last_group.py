"""Two scheduled kernels as one: what the second does is done by the group of the first that arrives last.

The kernel has no loops of its own: ``kernel { all groups' block; Sync of the device; the last one's block }``. Read in
order that is what it means; the loops over the grid are those of the first block.
"""

from __future__ import annotations

from math import prod

from tile_ir.frozen import replace
from tile_ir.stripe.nodes import Bind, Block, Direction, Refinement, Scope, Statement, Sync
from tile_ir.stripe.walk import blocks_in

ITEMS = (Bind.GROUP, Bind.SUBGROUP, Bind.LANE)


def last_group(first: Block, then: Block) -> Block:
    """`then`, which has one group as large as those of `first`, behind all of these."""
    return Block(
        first.name,
        refs=_outside((first, then)),
        body=(_part(first), Sync(Scope.DEVICE, "global"), _part(then)),
        tags=first.tags | then.tags,
        comment="\n".join(dict.fromkeys(b.comment for b in (first, then) if b.comment)),
        origin=then.origin,
    )


def waits_for_all(block: Block) -> tuple[Block, tuple[Statement, ...]] | None:
    """What all groups do, and what the last one does behind it; None for a kernel in which no group waits for others."""
    match block.body:
        case (Block() as first, Sync(scope=Scope.DEVICE), *then) if not block.indexes:
            return first, tuple(then)
        case _:
            return None


def groups(kernel: Block) -> int:
    """How many groups a scheduled kernel has."""
    return prod(i.range for i in kernel.indexes if i.bind is Bind.GRID)


def group_size(kernel: Block) -> tuple[int, ...]:
    """Items of a group along each axis."""
    inner = [kernel, *blocks_in(kernel)]
    return tuple(
        max(prod(i.range for i in b.indexes if i.bind in ITEMS and i.axis == axis) for b in inner) for axis in range(3)
    )


def _part(kernel: Block) -> Block:
    return replace(kernel, tags=kernel.tags - {"kernel", "scheduled"}, comment="")


def _outside(parts: tuple[Block, ...]) -> tuple[Refinement, ...]:
    """Main's buffers by their names there, in the direction in which both together use them."""
    found: dict[str, Refinement] = {}
    for ref in (r for p in parts for r in p.refs if r.source):
        known = found.get(ref.source)
        both = ref.dir if known is None or known.dir is ref.dir else Direction.INOUT
        found[ref.source] = replace(known or ref, into=ref.source, dir=both)
    return tuple(found.values())
