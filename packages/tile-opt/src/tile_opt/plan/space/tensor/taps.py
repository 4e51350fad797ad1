"""Steps of several taps of a convolution: what neighbours share of a factor is copied once for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from math import prod

from tile_ir.frozen import replace

from tile_opt.plan.space.tensor.tile import TEAM_VERSIONS, Tile

MOST = 8
"""Tiles of one tap a step, the best ones, that are tried with several."""
STRAIGHT = 96
"""Instructions of a sub-group in such a step, at most: all of them are straight code, some of it several times."""


def tapped(found: Iterable[Tile]) -> Iterator[Tile]:
    """The best of some tiles, in steps of several taps."""
    ranked = sorted((t for t in found if t.most == TEAM_VERSIONS and not t.rounded), key=lambda t: t.seconds)
    for tile in islice((t for t in ranked if _windows(t) and t.may_be_built), MOST):
        for other in _with_taps(tile):
            if _straight(other) <= STRAIGHT and other.fits:
                yield other
                yield from other.with_more_beside()


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
