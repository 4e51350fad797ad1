"""What has elements in the order of a sort of their own."""

from __future__ import annotations

from tile_ir.program.nodes import Argsort, Gather, Lookup, coordinates


def is_in_order(op: Gather, sort: Argsort) -> bool:
    """Whether this is what was sorted, in that order; of its first elements, where the sort gives the places of those."""
    if op.data != sort.arg or op.type.shape != sort.type.shape:
        return False
    cell = coordinates(len(op.type.shape))
    return op.subscripts == (*cell[: sort.axis], Lookup(sort.name, cell), *cell[sort.axis + 1 :])
