"""Plans of contractions on matrix instructions, best first; where results are few, groups share the reduction."""

from __future__ import annotations

from collections.abc import Iterator

from tile_ir.matrix import LANES, MATRIX_INSTRUCTIONS
from tile_ir.target import Target

from tile_opt.kernel.instructions import matches
from tile_opt.kernel.view import KernelView
from tile_opt.plan.plan import Plan
from tile_opt.plan.space.gpu_tiles import forecast
from tile_opt.plan.space.tensor_shares import shared
from tile_opt.plan.space.tensor_tile import tiles_of


def plans(view: KernelView, target: Target, *, faster: bool = False) -> Iterator[Plan]:
    """Plans by teams of sub-groups, if any fit, else by single ones, best first; none where precision is not to be reduced.

    With `faster` only those that are predicted to take less than the best plan of `gpu_tiles`.
    """
    if not target.options.reduced_precision or target.machine.subgroup != LANES:
        return
    for team in (True, False):
        named = [MATRIX_INSTRUCTIONS[name] for name in target.matrix]
        chosen = (i for i in named if (i.team > 1) is team)
        found = [t for i in chosen for m in matches(view, i) for t in tiles_of(view, m, target)]
        if found:
            exact = forecast(view, target) if faster else None
            ranked = sorted([*found, *shared(view, found)], key=lambda tile: tile.seconds)
            yield from (tile.plan() for tile in ranked if exact is None or tile.seconds < exact)
            return
