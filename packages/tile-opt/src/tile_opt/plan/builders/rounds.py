"""Rounds of loops around the steps of a reduction: which one comes so many rounds later."""

from __future__ import annotations

from collections.abc import Iterator

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Index


def advanced(loops: tuple[Index, ...], count: int) -> Iterator[tuple[dict[str, Affine], dict[str, tuple[int, int]]]]:
    """The loops' iterations so many rounds later, and the intervals of those now from which these are as the forms say."""
    if not loops:
        yield from [({}, {})] if count == 0 else []
        return
    *outer, loop = loops
    for carry in range(count // loop.range, -(-count // loop.range) + 1):
        by = count - carry * loop.range
        span = max(0, -by), min(loop.range - 1, loop.range - 1 - by)
        if span[0] <= span[1]:
            for values, spans in advanced(tuple(outer), carry):
                yield {**values, loop.name: Affine.var(loop.name) + by}, {**spans, loop.name: span}
