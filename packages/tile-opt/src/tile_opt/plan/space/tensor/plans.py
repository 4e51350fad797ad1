"""Plans of contractions on matrix instructions, best first; where results are few, groups share the reduction."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from tile_ir.powers import power_of_two
from tile_ir.target import Target

from tile_opt.kernel.instructions import Match, matches, usable
from tile_opt.kernel.view import KernelView
from tile_opt.model.search import FASTER
from tile_opt.plan.plan import Plan
from tile_opt.plan.space.gpu.tiles import OPTIMISM, estimated, forecast
from tile_opt.plan.space.tensor.copied import CopiedTile, copied_tiles
from tile_opt.plan.space.tensor.shares import Shared, shared
from tile_opt.plan.space.tensor.taps import tapped
from tile_opt.plan.space.tensor.tile import Tile
from tile_opt.plan.space.tensor.tiles import tiles_of
from tile_opt.plan.steps.groups.banks import takes_copies

LIKELY = 1.3
"""Times the best prediction up to which a tile may be the best one after all."""
WIDE = 128
"""Columns of instructions up to which those of no power of two are tried only where they leave few behind the end."""


def plans(view: KernelView, target: Target, *, faster: bool = False) -> Iterator[Plan]:
    """Plans by teams of sub-groups; by single ones or by teams on copies, too, if a good one takes factors through registers or in small pieces.

    None where precision is not to be reduced. With `faster` only those that are predicted to take less than the best plan
    of `gpu_tiles`.
    """
    if not usable(target):
        return
    teams = sorted(_tiles(view, target, team=True), key=_seconds)
    near = LIKELY * next((tile.seconds for tile in teams if tile.may_be_built), 0.0)
    direct = near and all(_is_direct(tile) or not tile.may_be_built for tile in teams if tile.seconds <= near)
    others = () if direct else (*_tiles(view, target, team=False), *_copied(view, target))
    ranked = sorted([*teams, *others], key=_seconds)
    first = next((tile for tile in ranked if tile.may_be_built), None)
    exact = _exact(view, target, first.seconds) if faster and first is not None else None
    taken = ranked if exact is None else takewhile(lambda tile: tile.seconds < exact, ranked)
    yield from (tile.plan() for tile in taken if tile.may_be_built)


def _seconds(tile: CopiedTile | Tile | Shared) -> float:
    return tile.seconds


def _exact(view: KernelView, target: Target, seconds: float) -> float | None:
    """What the best plan of `gpu_tiles` takes at best; where that is about `seconds`, by the estimate of its kernel."""
    found = forecast(view, target)
    if found is None or not found <= seconds < OPTIMISM * found:
        return found
    return max(found, (estimated(view, target) or found) / FASTER)


def _is_direct(tile: Tile | Shared) -> bool:
    """Factors go straight to local memory, in whole pieces, and more than half of the tile's rows, and of its columns, are some."""
    whole = tile.tile if isinstance(tile, Shared) else tile
    return not (whole.through or whole.narrow_copies or whole.is_half_empty)


def _matches(view: KernelView, target: Target, *, team: bool) -> Iterator[Match]:
    return (m for i in usable(target) if (i.team > 1) is team for m in matches(view, i) if _suits(view, m))


def _suits(view: KernelView, match: Match) -> bool:
    """Columns of no power of two leave fewer behind the end than twice the next lower one, or as many as half of it, do.

    Wide ones need not: groups of another size share out otherwise what the cores have to do.
    """
    columns, extent = match.instruction.sides["n"], view.ranges[dict(match.loops)["n"]]
    near = power_of_two(columns)
    if columns == near or min(columns, extent) > WIDE:
        return True
    return -extent % columns < min(-extent % near, -extent % (near // 2))


def _tiles(view: KernelView, target: Target, *, team: bool) -> Iterator[Tile | Shared]:
    """Tiles of the kernel as it is, in steps of one tap and of several, and those of which groups share the reduction."""
    found = [t for m in _matches(view, target, team=team) for t in _of_match(view, m, target)]
    yield from (*found, *tapped(found), *shared(view, found))


def _of_match(view: KernelView, match: Match, target: Target) -> Iterator[Tile]:
    """Those whose factors go straight to local memory; and by way of registers where a team cannot have them so, or in small pieces."""
    found = () if takes_copies(match.instruction) else tuple(tiles_of(view, match, target))
    yield from found
    direct = any(tile.may_be_built for tile in found)
    if match.instruction.team > 1 and (not direct or any(t.narrow_copies and t.may_be_built for t in found)):
        yield from tiles_of(view, match, target, through=True)


def _copied(view: KernelView, target: Target) -> Iterator[CopiedTile | Tile | Shared]:
    return (t for m in _matches(view, target, team=True) for t in copied_tiles(view, m, target))
