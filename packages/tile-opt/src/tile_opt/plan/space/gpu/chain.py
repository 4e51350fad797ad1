"""Plans for kernels whose items keep boxes of temporaries: all that an item does is straight-line code."""

from __future__ import annotations

from collections.abc import Iterator

from tile_ir.powers import power_of_two
from tile_ir.stripe.nodes import Bind
from tile_ir.target import Target

from tile_opt.kernel.item_chain import ITEMS
from tile_opt.kernel.view import KernelView
from tile_opt.plan.plan import Cover, Level, Plan
from tile_opt.plan.space.facts import Facts
from tile_opt.plan.space.gpu.rows import prepared

GROUP = 128
"""Items of a group: what each keeps leaves room for few at once, and they end more evenly."""


def plans(view: KernelView, target: Target) -> Iterator[Plan]:
    """The plan of a chain of kernels."""
    if ITEMS not in view.tags:
        return
    facts = Facts(prepared(view))
    left, items = min(GROUP, target.settings.threads), dict[str, int]()
    for loop in reversed(facts.shared):
        items[loop] = min(left, power_of_two(facts.extent(loop)))
        left //= items[loop]
    own = [n for n in facts.loops if n not in facts.shared]
    levels = (
        Level(Bind.GRID, tuple(Cover(n, items[n]) for n in facts.shared)),
        Level(Bind.GROUP, tuple(Cover(n, 1) for n in facts.shared)),
        Level(Bind.UNROLL, tuple(Cover(n, 1) for n in own)),
    )
    yield Plan(levels, reason="an item keeps its boxes of what it hands on")
