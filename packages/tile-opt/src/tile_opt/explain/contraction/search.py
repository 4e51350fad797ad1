"""A best-first tile search."""

from __future__ import annotations

import heapq

from tile_ir.frozen import frozen
from tile_ir.target import HardwareSettings

from tile_opt.explain.contraction.cost import TileCost, tile_cost
from tile_opt.explain.contraction.flat import FlatKernel

Tile = tuple[int, ...]


@frozen
class Search:
    """Every tile that was evaluated, in order, and the best one."""

    evaluated: tuple[TileCost, ...]
    winner: TileCost

    def best(self, count: int) -> tuple[TileCost, ...]:
        """The `count` best tiles: highest score first, later ones first among equals."""
        ranked = sorted(enumerate(self.evaluated), key=lambda item: (item[1].score, item[0]), reverse=True)
        return tuple(cost for _, cost in ranked[:count])


def search(flat: FlatKernel, settings: HardwareSettings, *, fast: bool = True) -> Search:
    """Grow tiles from all ones by doubling one index at a time, best score first.

    In fast mode the search stops when the best open tile is worse than the one evaluated last; otherwise it
    covers everything reachable.
    """
    start: Tile = (1,) * len(flat.ranges)
    first = tile_cost(flat, start, settings)
    evaluated = [first]
    seen: set[Tile] = {start}
    # heapq pops the smallest: negated score, then the lexicographically largest tile.
    work = [(-first.score, tuple(-t for t in start))]
    current = first.score
    while work:
        negated, key = heapq.heappop(work)
        if fast and -negated < current:
            break
        current = -negated
        tile = tuple(-k for k in key)
        for cost in _neighbours(flat, settings, tile, seen):
            current = cost.score
            evaluated.append(cost)
            if cost.score > 0:
                heapq.heappush(work, (-cost.score, tuple(-t for t in cost.tile)))
    ranked = max(enumerate(evaluated), key=lambda item: (item[1].score, item[0]))
    return Search(tuple(evaluated), ranked[1])


def _neighbours(flat: FlatKernel, settings: HardwareSettings, tile: Tile, seen: set[Tile]) -> list[TileCost]:
    found: list[TileCost] = []
    for k, extent in enumerate(flat.ranges):
        grown = (*tile[:k], min(2 * tile[k], extent), *tile[k + 1 :])
        if grown not in seen:
            seen.add(grown)
            found.append(tile_cost(flat, grown, settings))
    return found
