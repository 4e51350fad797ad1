"""Scheduled kernels that do not wait for each other as one: their groups run side by side, and begin by one launch.

The kernel is ``kernel { first [its loops over the grid]; second [its own] … }``. Read in order that is what it means: no part
reads or writes what another one writes.
"""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.frozen import replace
from tile_ir.stripe.nodes import Bind, Block

from tile_opt.plan.steps.groups.last_group import outside


def launched_together(parts: Sequence[Block]) -> Block:
    """One kernel of several, whose groups have as many items each."""
    return Block(
        parts[0].name,
        refs=outside(parts),
        body=tuple(replace(p, tags=p.tags - {"kernel", "scheduled"}, comment="") for p in parts),
        tags=frozenset({"kernel", "scheduled"}),
        comment="\n".join(dict.fromkeys(p.comment for p in parts if p.comment)),
        origin=parts[0].origin,
    )


def parts_of_launch(kernel: Block) -> tuple[Block, ...]:
    """The kernels of which one launch begins the groups; none where they are those of one kernel."""
    parts = tuple(s for s in kernel.body if isinstance(s, Block))
    apart = len(parts) > 1 and len(parts) == len(kernel.body) and not kernel.indexes
    return parts if apart and any(i.bind is Bind.GRID and i.range > 1 for p in parts for i in p.indexes) else ()
