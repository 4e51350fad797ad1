"""Conditions that leave out lanes of a vector, and what it takes to make their masks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block

from tile_opt.model.scheduled import STATIC, Loop, Tree

MOVED = 1 << 20
"""Iterations that a loop around the block is taken to have: nothing is known of where it stands."""
Point = tuple[tuple[str, int], ...]
"""Values of loops that are straight-line code, by name."""


def constrained(tree: Tree, *loops: Loop) -> bool:
    """Conditions that differ between the iterations of one of `loops`, the tree's own."""
    names = _names(tree, *loops)
    return any(not names.isdisjoint(form.names) for form in tree.block.constraints)


def masks_of(tree: Tree, vector: Loop) -> tuple[int, int]:
    """Vectors of conditions' left sides, and masks, that each pass of straight-line code makes anew.

    Those that no loop of code moves are made before, and those that always hold never.
    """
    lanes, moving = _names(tree, vector), _names(tree, *(i for i in tree.loops if i.bind is Bind.NONE))
    forms = [f for f in tree.block.constraints if not lanes.isdisjoint(f.names) and not moving.isdisjoint(f.names)]
    cut = [set(_cut(form, tree.block)) for form in forms if isinstance(form, Affine)]
    return sum(map(len, cut)), len(set[Point]().union(*cut))


def _cut(form: Affine, block: Block) -> Iterator[Point]:
    """The first lanes of straight-line code for which a form may be below 0, wherever the loops around it stand."""
    ranges = {i.name: i for i in block.indexes if i.value is None}
    straight = [(ranges[n], c) for n, c in form.terms if n in ranges and ranges[n].bind in STATIC]
    moving = [(ranges[n].range if n in ranges else MOVED, c) for n, c in form.terms]
    least = form.const + sum(min(0, c * (size - 1)) for size, c in moving)
    for point in product(*(range(0, i.range, i.lanes) for i, _ in straight)):
        at = sum(
            c * x + min(0, c * (i.lanes - 1)) - min(0, c * (i.range - 1))
            for x, (i, c) in zip(point, straight, strict=True)
        )
        if least + at < 0:
            yield tuple((i.name, x) for x, (i, _) in zip(point, straight, strict=True))


def _names(tree: Tree, *loops: Loop) -> set[str]:
    """What the block calls loops of its own."""
    own = (i.name for i in tree.block.indexes if i.value is None)
    return {name for name, loop in zip(own, tree.loops, strict=True) if loop in loops}
