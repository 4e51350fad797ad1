"""Contractions on matrix instructions whose reduction several groups share: few results, such as gradients of weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from math import prod
from typing import Any

from tile_ir.frozen import replace
from tile_ir.stripe.nodes import Bind

from tile_opt.kernel.instructions import allowed, match_of
from tile_opt.kernel.view import KernelView
from tile_opt.plan.builders.tensor_plans import LEVELS
from tile_opt.plan.builders.tensor_shares import is_joined, joining_seconds, most_ways, results_of
from tile_opt.plan.plan import Across, Plan, Reduction, Staging
from tile_opt.plan.space.gpu.copied import BANDWIDTH
from tile_opt.plan.space.tensor.tile import Tile
from tile_opt.plan.space.tensor.tiles import tiles_of
from tile_opt.plan.steps.groups.share_reduction import SharedReduction, even_share, share_reduction

EACH = (1, 2)
"""Groups that a core may get."""
CLEARLY = 0.9
"""Share of the steps of the busiest core up to which it pays that groups share two loops: there are more partial results."""
COMBINES = 1.7
"""Launches that a kernel takes which puts partial results together (an H200: 6.8 to 7.8 µs)."""
LONGER = 1.05
"""Times longer than predicted that shares take of which there are as few as a last group puts together (an H200: 0.97 to 1.2)."""


@dataclass(frozen=True)
class Shared:
    """A tile of the partial kernel, whose results another kernel combines."""

    tile: Tile
    ways: Mapping[str, int]
    """Of each loop that is shared."""
    parts: SharedReduction
    launches: float = 1.0
    """That a kernel of its own is counted as which puts the partial results together; `COMBINES` beside tiles that need none."""

    @property
    def seconds(self) -> float:
        """Predicted: the partial results, which are written and read again, and one more launch or the last groups."""
        machine = self.tile.target.machine
        memory = machine.memory.all_cores
        written = self.parts.buffer.type.nbytes / memory.write / 1e9 / BANDWIDTH
        if self.joined:
            return LONGER * self.tile.seconds + written + joining_seconds(self.tile.cells * self.parts.ways, machine)
        read = self.parts.buffer.type.nbytes / memory.read / 1e9 / BANDWIDTH
        return self.tile.seconds + written + read + self.launches * machine.launch.kernel

    @property
    def joined(self) -> bool:
        """The last group of each tile puts the partial results together, not a kernel of its own."""
        return is_joined(self.tile.cells, self.tile.groups // self.parts.ways, self.parts.ways, self.tile.target)

    @property
    def is_short(self) -> bool:
        """Its products take no longer than a kernel that combines: cores that have none are worth less than that."""
        launch = self.tile.target.machine.launch.kernel
        return self.joined and self.tile.seconds < (1 + COMBINES) * launch

    @property
    def may_be_built(self) -> bool:
        return self.tile.may_be_built

    def _stays(self, staging: Staging) -> bool:
        """Partial results that lie as the lanes have them need no local memory on their way."""
        return self.joined and staging.level == LEVELS.index(Bind.SUBGROUP)

    @property
    def through(self) -> bool:
        """Factors go through registers."""
        return self.tile.through

    def plan(self) -> Plan:
        """The plan of the kernel that is not shared yet."""
        inner, shares = self.tile.plan(), self.parts.shares
        grid, *rest = inner.levels
        covers = tuple(c for c in grid.covers if c.loop not in shares)
        shared = {n: Reduction(n, Across.GROUPS, ways) for n, ways in self.ways.items()}
        said = " and ".join(f"{n} shared by {ways} groups" for n, ways in self.ways.items())
        return replace(
            inner,
            levels=(replace(grid, covers=covers), *rest),
            stagings=tuple(self.parts.whole(s) for s in inner.stagings if not self._stays(s)),
            reductions=tuple(shared.get(r.loop, r) for r in inner.reductions),
            edges=tuple((n, e) for n, e in inner.edges if n not in shares),
            reason=f"{inner.reason}, {said}",
        )


def shared(view: KernelView, found: Sequence[Tile]) -> Iterator[Shared]:
    """Ways to give all cores work where the tile that is best alone, and the one that is best on all cores, have too few groups.

    The smallest is one, too, where no loop has steps enough for all cores.
    """
    if all(map(_is_on_all_cores, found)):
        return
    alone = _first(found, lambda t: t.seconds)
    spread = _first(found, lambda t: t.cycles)
    if alone is None or spread is None:
        return
    enough = any(map(_is_enough, (alone, spread)))
    smallest = None if enough else _first(found, lambda t: (-t.groups, -t.share))
    chosen = [alone, spread, *(() if smallest is None else (smallest,))]
    for tile in {id(t): t for t in chosen}.values():
        yield from _spread(view, tile)


def _first(found: Sequence[Tile], order: Callable[[Tile], Any]) -> Tile | None:
    """Of those that may be built."""
    return next((tile for tile in sorted(found, key=order) if tile.may_be_built), None)


def _is_on_all_cores(tile: Tile) -> bool:
    return tile.groups >= tile.target.settings.cores


def _is_enough(tile: Tile) -> bool:
    """Some loop has steps for groups on all cores."""
    return tile.groups * max(_steps(tile).values()) >= tile.target.settings.cores


def _steps(tile: Tile) -> dict[str, int]:
    """Of every loop of the reduction."""
    depth = tile.loops["k"]
    return {i.name: -(-i.range // (tile.deep if i.name == depth else 1)) for i in tile.match.main.loops}


def _spread(view: KernelView, best: Tile) -> Iterator[Shared]:
    if _is_on_all_cores(best):
        return
    cores = max(1, best.target.settings.cores)
    wanted = [-(-each * cores // best.groups) for each in EACH]
    joined = most_ways(best.cells, best.target)
    for loops in _divided(best, min(wanted)):
        ways = _distinct(best, loops, wanted)
        found = [t for w in ways for t in _ways(view, best, w)]
        fewer = [w for w in _distinct(best, loops, (joined, joined // 2)) if w not in ways]
        found += [t for w in fewer for t in _ways(view, best, w) if t.is_short]
        needed = not any(t.joined and t.may_be_built for t in found)
        yield from found if needed else (replace(t, launches=COMBINES) for t in found)


def _divided(best: Tile, most: int) -> Iterator[tuple[str, ...]]:
    """What groups may share: each loop; and two of them where that leaves clearly less to the busiest core."""
    steps = _steps(best)
    yield from ((loop,) for loop in steps)
    alone = min(_load(best, w) for loop in steps for w in ({}, *_whole_shares(best, (loop,), most)))
    for loops in combinations(steps, 2):
        if any(_load(best, w) < CLEARLY * alone for w in _whole_shares(best, loops, most)):
            yield loops


def _distinct(best: Tile, loops: Sequence[str], most: Iterable[int]) -> list[dict[str, int]]:
    """Ways for at most so many groups of a tile, none twice."""
    found = [w for n in most for w in _even_shares(best, loops, n)]
    return [w for k, w in enumerate(found) if w not in found[:k]]


def _even_shares(best: Tile, loops: Sequence[str], most: int) -> Iterator[dict[str, int]]:
    """As many shares of a loop as there may be; and those that leave the fewest steps to the busiest core, where these are clearly fewer."""
    ways = _whole_shares(best, loops, most)
    if not ways:
        return
    even = min(ways, key=lambda w: (_load(best, w), prod(w.values())))
    largest = ways[-1]
    if len(loops) == 1:
        yield largest
    if len(loops) > 1 or _load(best, even) < CLEARLY * _load(best, largest):
        yield even


def _whole_shares(best: Tile, loops: Sequence[str], most: int) -> list[dict[str, int]]:
    """All ways, at least two of each loop, of which none is empty where all but the last have as many steps."""
    steps = _steps(best)
    counts = ({-(-steps[n] // size) for size in range(-(-steps[n] // max(1, most)), steps[n])} for n in loops)
    return [dict(zip(loops, w, strict=True)) for w in product(*map(sorted, counts)) if prod(w) <= most]


def _load(best: Tile, ways: Mapping[str, int]) -> int:
    """Steps of the busiest core, if cores had as many groups as each other, about."""
    groups = best.groups * prod(ways.values())
    each = prod(-(-count // ways.get(n, 1)) for n, count in _steps(best).items())
    return -(-groups // max(1, best.target.settings.cores)) * each


def _ways(view: KernelView, best: Tile, ways: Mapping[str, int]) -> Iterator[Shared]:
    """Tiles of shares of loops, in whole steps."""
    sizes = {
        n: even_share(view.ranges[n], count, best.deep if n == best.loops["k"] else 1) for n, count in ways.items()
    }
    yield from _tiles(view, best, sizes, ways)


def _tiles(view: KernelView, best: Tile, sizes: Mapping[str, int], ways: Mapping[str, int]) -> Iterator[Shared]:
    parts = share_reduction(view, best.match.main, sizes, results_of(best.match))
    match = match_of(parts.partial, best.instruction, best.loops)
    if match is None or not allowed(match, best.target):
        return
    for tile in tiles_of(
        parts.partial, match, best.target, through=best.through, rounded=best.rounded, boxes=best.boxes, cells=best.cells
    ):  # fmt: skip
        found = Shared(tile, ways, parts)
        yield replace(found, tile=replace(tile, shared=True)) if found.joined else found
