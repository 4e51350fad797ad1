"""Loops that take long ask in each iteration whether somebody wants them to stop: a group's work cannot be interrupted."""

from __future__ import annotations

from collections import defaultdict

from tile_ir.emit.walker import blocks
from tile_ir.semtree.nodes import Block, Const, For, Statement

LONG_STEPS = 10_000_000
"""Iterations, those of inner loops included, from which a loop asks: some ten milliseconds or more."""
USUAL_TRIPS = 32
"""Iterations that a loop counts for whose bounds are not known."""


def polling_loops(body: Block) -> frozenset[int]:
    """The loops (by identity) of so many steps."""
    order: list[tuple[For, int]] = []
    """Each loop with the identity of the one around it, outer ones first."""
    todo: list[tuple[Statement, int]] = [(body, 0)]
    while todo:
        statement, around = todo.pop()
        if isinstance(statement, For):
            order.append((statement, around))
            around = id(statement)
        inner = (statement,) if isinstance(statement, Block) else blocks(statement)
        todo += [(s, around) for block in inner for s in block.body]
    inside: defaultdict[int, int] = defaultdict(int)
    found: set[int] = set()
    for loop, around in reversed(order):
        trips = static_trips(loop)
        steps = (USUAL_TRIPS if trips is None else len(trips)) * max(1, inside[id(loop)])
        inside[around] += steps
        if steps > LONG_STEPS:
            found.add(id(loop))
    return frozenset(found)


def static_trips(node: For) -> range | None:
    """The values of the loop's variable, where its bounds are constants."""
    if isinstance(node.start, Const) and isinstance(node.stop, Const):
        return range(int(node.start.value), int(node.stop.value), node.step)
    return None
