"""Steps of several taps of a convolution: what neighbours share of a factor is copied once for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from math import prod

from tile_ir.frozen import replace

from tile_opt.model.group_cost import beside
from tile_opt.plan.space.tensor.later import Later
from tile_opt.plan.space.tensor.tile import TAPPED, TEAM_VERSIONS, Tile

MOST = 8
"""Tiles of one tap a step, the best ones, that are tried with several."""
STRAIGHT = 96
"""Instructions of a sub-group in such a step, at most: all of them are straight code, some of it several times."""


def tapped(found: Iterable[Tile]) -> Iterator[Later[Tile]]:
    """The best of some tiles, in steps of several taps."""
    able = (t for t in found if t.most == TEAM_VERSIONS and not t.rounded and _windows(t))
    ranked = sorted(able, key=lambda t: t.seconds)
    for place, tile in enumerate(ranked):
        for other in _with_taps(tile):
            if _straight(other) <= STRAIGHT:
                yield Later(_least_seconds(other), partial(_if_fits, other, ranked[: place + 1]))


def _if_fits(tile: Tile, ranked: Sequence[Tile]) -> Iterator[Later[Tile]]:
    if tile.fits:
        each = (tile, *tile.with_more_beside())
        yield from (Later(t.seconds, partial(_if_tried, t, ranked)) for t in each)


def _if_tried(tile: Tile, ranked: Sequence[Tile]) -> Iterator[Tile]:
    """The tile, if what it is made of, the last one of these, is one of the best that may be built: that takes the longest to ask."""
    *better, plain = ranked
    if plain.may_be_built and len([*islice((t for t in better if t.may_be_built), MOST)]) < MOST:
        yield tile


def _with_taps(tile: Tile) -> Iterator[Tile]:
    """The tile in steps of all windows along which a group has several rows, and of all that leave a team's rows neighbours."""
    several, rows = {n for n, size in tile.group.items() if size > 1}, tile.loops["m"]
    apart = tile.group[rows] % (tile.instruction.team * tile.instruction.sides["m"]) > 0
    able = {t: along for t, along in _windows(tile).items() if not (apart and rows in along)}
    options = (tuple(t for t, along in able.items() if along & several), tuple(able))
    yield from (replace(tile, taps=taps) for taps in dict.fromkeys(options) if taps)


def _windows(tile: Tile) -> dict[str, set[str]]:
    """Reduction loops that walk the first factor along a subscript which results walk, too, each with the loops of these."""
    left, shared = tile.match.main.use(tile.match.left), {i.name for i in tile.view.loops}
    others = (i.name for i in tile.match.main.loops if i.range > 1 and i.name != tile.loops["k"])
    found = {t: {n for f in left.forms if t in f.names for n in f.names if n in shared} for t in others}
    return {t: along for t, along in found.items() if along}


def _straight(tile: Tile) -> int:
    """Instructions of a sub-group in a step."""
    slices = tile.deep // tile.instruction.sides["k"] * prod(tile.view.ranges[n] for n in tile.taps)
    return slices * tile.tall * tile.wide


def _least_seconds(tile: Tile) -> float:
    """It takes no less, whatever its steps wait for, and wherever its results go."""
    if not tile.traffic:
        return 0.0
    machine, cores = tile.target.machine, max(1, tile.target.settings.cores)
    idle = cores * -(-tile.groups // cores) / tile.groups
    matrix = tile.way.matrix_seconds / tile.useful * idle
    products = beside((matrix, tile.traffic["cache"], tile.traffic["read"]))
    seconds = beside((products, tile.traffic["results"])) + machine.launch.kernel
    return seconds * (TAPPED[len(tile.taps) > 1] if tile.instruction.team > 1 else 1.0)
