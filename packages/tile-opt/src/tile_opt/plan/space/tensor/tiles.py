"""Which tiles of contractions on matrix instructions a target holds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from tile_ir.machine import Occupancy
from tile_ir.matrix import LANES, PANEL_BYTES
from tile_ir.target import Target

from tile_opt.kernel.instructions import Match
from tile_opt.kernel.view import KernelView
from tile_opt.plan.builders.tensor_checks import may_fit
from tile_opt.plan.space.tensor.beside import loops_beside
from tile_opt.plan.space.tensor.teams import FEW, item_registers, teams_of
from tile_opt.plan.space.tensor.tile import MANY, ROWS, WARPS, Tile
from tile_opt.plan.space.tensor.way import Way

STEP_DEPTH = 24
"""What every step of a team waits, in iterations of a sum, about, where a core has several groups."""
TILES = ((4, 8), (4, 4), (2, 4), (1, 2))
"""Instructions of a sub-group along rows and columns."""
COLUMNS = 2
NARROW = ((4, COLUMNS), (2, COLUMNS), (1, COLUMNS))
"""The same where each sub-group has all columns, those of so many instructions."""


def tiles_of(
    view: KernelView, match: Match, target: Target, *, through: bool = False, rounded: bool = False, boxes: bool = False,
    cells: int = 0,
) -> Iterator[Tile]:  # fmt: skip
    """Every tile that the target holds, or those of so many results, whether or not they may be built; factors of teams may go
    through registers, into local memory or the first out of it.
    """
    if match.instruction.team > 1:
        yield from _team_tiles(Way(view, match, target), through, rounded, boxes, cells)
        return
    depth = view.ranges[dict(match.loops)["k"]]
    side = match.instruction.sides["k"]
    # Two instructions deep where that wastes little.
    deep = 2 * side if depth % (2 * side) == 0 or depth > MANY * side else side
    few = match.instruction.sides["n"] < view.ranges[dict(match.loops)["n"]] <= COLUMNS * match.instruction.sides["n"]
    shapes = [*((*each, WARPS) for each in TILES), *((*each, ROWS) for each in NARROW if few)]
    way = Way(view, match, target)
    for (tall, wide, warps), other in product(shapes, (None, *loops_beside(view, match))):
        tile = Tile(way, tall, wide, deep, other, warps)
        if _is_held(tile, cells):
            yield tile


def _team_tiles(way: Way, through: bool, rounded: bool, boxes: bool, cells: int) -> Iterator[Tile]:
    """Every tile of teams of sub-groups, each of which has one instruction's rows of all columns."""
    view, match = way.view, way.match
    left, right = match.factors
    brought = () if not boxes else (right,) if rounded else (left, right)
    if not may_fit(view, match, through=through, rounded=rounded, brought=brought):
        return
    for deep, teams in _steps(view, match, boxes):
        for other in (None, *loops_beside(view, match)):
            warps = teams * match.instruction.team, 1
            tile = Tile(way, 1, 1, deep, other, warps, through, rounded, boxes=boxes)
            if _is_held(tile, cells):
                yield tile
                yield from tile.with_more_beside()


def _is_held(tile: Tile, cells: int) -> bool:
    """The target holds the tile, which has so many results if any are asked for."""
    return tile.has_rows and _has_room(tile) and cells in (0, tile.cells) and tile.fits


def _has_room(tile: Tile) -> bool:
    """A group has no more items than others do; or no more than it may have and a core has registers for, and most cores have one.

    Single sub-groups are few, whose items hold all sums in registers.
    """
    items, target = prod(tile.warps) * LANES, tile.target
    if tile.instruction.team == 1:
        occupancy = target.machine.occupancy or Occupancy()
        each = item_registers(tile.instruction, tile.tall, tile.wide)
        return items <= target.settings.threads and each <= occupancy.item_registers
    most = target.machine.occupancy.group_items if target.machine.occupancy else 0
    many = items <= most and 2 * tile.groups > target.settings.cores and tile.in_registers > 0
    return items <= target.settings.threads or many


def _steps(view: KernelView, match: Match, boxes: bool) -> Iterator[tuple[int, int]]:
    """Iterations of a team's steps, and teams; many only go through whole panels."""
    panel, *less = _depths(view, match, boxes)
    yield from ((panel, teams) for teams in teams_of(match.instruction))
    yield from product(less, FEW)


def _depths(view: KernelView, match: Match, boxes: bool) -> Iterator[int]:
    """Iterations of a team's steps: of a whole panel, as tensor copies bring them; and those that take least with what every step waits."""
    extent, line = view.ranges[dict(match.loops)["k"]], PANEL_BYTES // match.instruction.a.dtype.bytes
    yield line
    if boxes:
        return
    side = match.instruction.sides["k"]
    fitting = min(range(side, line + 1, side), key=lambda n: (-(-extent // n) * (n + STEP_DEPTH), -n))
    if fitting < line:
        yield fitting
