"""Plans of contractions on matrix instructions, best first; where results are few, groups share the reduction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from math import inf

from tile_ir.matrix import PANEL_BYTES, MatrixInstruction
from tile_ir.powers import power_of_two
from tile_ir.target import Target

from tile_opt.kernel.instructions import Match, allowed, matches, usable
from tile_opt.kernel.view import KernelView
from tile_opt.model.search import FASTER
from tile_opt.plan.plan import Plan
from tile_opt.plan.space.gpu.tiles import OPTIMISM, estimated, forecast, least_seconds
from tile_opt.plan.space.tensor.copied import copied_tiles, variants
from tile_opt.plan.space.tensor.later import Later, best_first
from tile_opt.plan.space.tensor.ranked import Ranked
from tile_opt.plan.space.tensor.shares import Shared
from tile_opt.plan.space.tensor.tile import Tile
from tile_opt.plan.space.tensor.tiles import tiles_of
from tile_opt.plan.steps.groups.banks import takes_copies

LIKELY = 1.3
"""Times the best prediction up to which a tile may be the best one after all."""
WIDE = 192
"""Columns of instructions that are tried wherever there are more than fit half as many again: groups of another size share out
otherwise what the cores have to do. Others of no power of two are tried only where they leave few behind the end."""
KNOWN = 96, WIDE
"""Those for products without windows. Others of theirs were slower in half of all cases (an H200: 4096x1024x1440 of bfloat16 took 33 µs
by 160, 27 by 192)."""


def plans(view: KernelView, target: Target, *, faster: bool = False) -> Iterator[Plan]:
    """Plans by teams of sub-groups; by single ones or by teams on copies, too, if a good one takes factors through registers or in small pieces.

    None where precision is not to be reduced. With `faster` only those that are predicted to take less than the best plan
    of `gpu_tiles`.
    """
    fitting = _usable(view, target)
    if not fitting:
        return
    ways = [*_ways(view, target, (i for i in fitting if i.team > 1))]
    teams = [*_tiles(view, target, ways)]
    others = (
        ()
        if _has_direct(teams) and not _lacks_columns(view, ways, teams)
        else (*_single(view, target), *copied_tiles(view, ways, target))
    )
    ranked: Iterator[Ranked] = best_first((*teams, *others))
    built = (t for t in ranked if t.may_be_built)
    yield from (tile.plan() for tile in (_faster(view, target, built) if faster else built))


def _usable(view: KernelView, target: Target) -> list[MatrixInstruction]:
    """The target's instructions whose factors may be what the kernel reads."""
    read = {r.type.dtype for r in view.refs}
    return [i for i in usable(target) if i.a.dtype in read]


def _has_direct(teams: Sequence[Ranked | Later[Ranked]]) -> bool:
    """All tiles of teams that may be the best one are direct."""
    first = next((tile for tile in best_first(teams) if tile.may_be_built), None)
    near = takewhile(lambda t: first is not None and t.seconds <= LIKELY * first.seconds, best_first(teams))
    return first is not None and all(_is_direct(tile) or not tile.may_be_built for tile in near)


def _lacks_columns(view: KernelView, ways: Iterable[Match], teams: Iterable[Ranked | Later[Ranked]]) -> bool:
    """Copies alone give a team those columns that leave fewer behind the end than whole panels do."""
    direct = {tile.match.instruction for tile in teams if isinstance(tile, Tile) and not tile.through}
    missing = (m for m in ways if m.instruction not in direct)
    return any(_behind(view, m, m.instruction.sides["n"]) < _behind(view, m, _panel(m)) for m in missing)


def _panel(match: Match) -> int:
    return PANEL_BYTES // match.instruction.a.dtype.bytes


def _behind(view: KernelView, match: Match, columns: int) -> int:
    """Columns of the last of so many that are behind the end."""
    return -view.ranges[dict(match.loops)["n"]] % columns


def _faster(view: KernelView, target: Target, ranked: Iterable[Ranked]) -> Iterator[Ranked]:
    """Those that are predicted to take less than the best plan of `gpu_tiles`; which one that is matters only to those whose time it may have."""
    least, exact = least_seconds(view, target), None
    first = 0.0
    for tile in ranked:
        first = first or tile.seconds
        if tile.seconds >= least:
            exact = exact or _exact(view, target, first)
            if tile.seconds >= exact:
                return
        yield tile


def _exact(view: KernelView, target: Target, seconds: float) -> float:
    """What the best plan of `gpu_tiles` takes at best, inf where it has none; where that is about `seconds`, by the estimate of its kernel."""
    found = forecast(view, target)
    if found is None:
        return inf
    if not found <= seconds < OPTIMISM * found:
        return found
    return max(found, (estimated(view, target) or found) / FASTER)


def _is_direct(tile: Ranked) -> bool:
    """Factors go straight to local memory, in whole pieces, and more than half of the tile's rows, and of its columns, are some."""
    whole = tile if isinstance(tile, Tile) else tile.tile
    whole = whole if isinstance(whole, Tile) else whole.tile
    half_empty = any(2 * whole.view.ranges[n] <= size for n, size in whole.group.items())
    return not (whole.through or whole.narrow_copies or half_empty)


def _suits(view: KernelView, match: Match) -> bool:
    """Columns of no power of two leave fewer behind the end than the next higher and lower ones do."""
    columns, extent = match.instruction.sides["n"], view.ranges[dict(match.loops)["n"]]
    near = power_of_two(columns)
    if columns == near or (columns == WIDE and extent > near // 2):
        return True
    known = columns in KNOWN or len(match.main.loops) > 1
    return known and _behind(view, match, columns) < min(_behind(view, match, n) for n in (near, near // 2))


def _single(view: KernelView, target: Target) -> Iterator[Tile | Later[Tile | Shared]]:
    """Those of single sub-groups."""
    return _tiles(view, target, [*_ways(view, target, (i for i in _usable(view, target) if i.team == 1))])


def _ways(view: KernelView, target: Target, fitting: Iterable[MatrixInstruction]) -> Iterator[Match]:
    """Those of some instructions that are tried."""
    yield from (m for i in fitting for m in matches(view, i) if _suits(view, m) and allowed(m, target))


def _tiles(view: KernelView, target: Target, ways: Iterable[Match]) -> Iterator[Tile | Later[Tile | Shared]]:
    """Tiles of the kernel as it is, in steps of one tap and of several, and those of which groups share the reduction."""
    found = [t for m in ways for t in _of_match(view, m, target)]
    yield from (*found, *variants(view, found))


def _of_match(view: KernelView, match: Match, target: Target) -> Iterator[Tile]:
    """Those whose factors go straight to local memory; and by way of registers where a team cannot have them so, or in small pieces."""
    found = () if takes_copies(match.instruction) else tuple(tiles_of(view, match, target))
    yield from found
    direct = any(tile.may_be_built for tile in found)
    if match.instruction.team > 1 and (not direct or any(t.narrow_copies and t.may_be_built for t in found)):
        yield from tiles_of(view, match, target, through=True)
