"""Steps of a serial loop in which every item has something to do, apart from the last ones, in which some have not.

Items that ask at every access whether it lies inside load one element after the other; in whole steps loads of a step
start together.
"""

from __future__ import annotations

from collections.abc import Iterable

from tile_ir.frozen import replace
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Index

from tile_opt.kernel.view import Stage
from tile_opt.plan.tree import Node, spans

LEAST = 2
"""Whole steps that are worth code of their own."""


def whole_steps(node: Node, around: Iterable[Index]) -> list[Node]:
    """The stage over its whole steps without what they meet anyway, then over the others; `around` are the loops around it.

    The stage as it is where its outermost loop is not one of steps, or where these are few.
    """
    serial = node.loops[0] if isinstance(node, Stage) and node.loops else None
    if not isinstance(node, Stage) or serial is None or serial.bind is not Bind.NONE:
        return [node]
    bounding = [c for c in node.constraints if c.coefficient(serial.name) < 0]
    ranges = spans((*around, *node.loops))
    count = min((_met(c, serial.name, ranges) for c in bounding), default=serial.range)
    if not LEAST <= count < serial.range:
        return [node]
    rest = serial.range - count
    left = Affine.var(serial.name) + count if rest > 1 else Affine((), count)
    loops = (replace(serial, range=rest), *node.loops[1:]) if rest > 1 else node.loops[1:]
    inside = tuple(c for c in node.constraints if c not in bounding)
    whole = replace(node, loops=(replace(serial, range=count), *node.loops[1:]), constraints=inside)
    return [whole, replace(replace(node, loops=()).substitute({serial.name: left}), loops=loops)]


def _met(constraint: Affine, step: str, ranges: dict[str, tuple[int, int]]) -> int:
    """The first steps, of which all meet the constraint whatever the other loops are at."""
    each = -constraint.coefficient(step)
    least = (constraint + Affine.var(step, each)).bounds(ranges)[0]
    return least // each + 1 if least >= 0 else 0
