"""Contractions on matrix instructions whose reduction several groups share: few results, such as gradients of weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from tile_ir.frozen import replace

from tile_opt.kernel.instructions import matches
from tile_opt.kernel.view import KernelView
from tile_opt.plan.plan import Across, Plan, Reduction
from tile_opt.plan.space.gpu.copied import BANDWIDTH
from tile_opt.plan.space.tensor.tile import Tile, tiles_of
from tile_opt.plan.steps.groups.share_reduction import SharedReduction, even_share, share_reduction

EACH = (1, 2)
"""Groups that a core may get."""


@dataclass(frozen=True)
class Shared:
    """A tile of the partial kernel, whose results another kernel combines."""

    tile: Tile
    loop: str
    ways: int
    parts: SharedReduction

    @property
    def seconds(self) -> float:
        """Predicted: the partial results, which are written and read again, and one more launch."""
        machine = self.tile.target.machine
        memory = machine.memory.all_cores
        moved = self.parts.buffer.type.nbytes * (1 / memory.write + 1 / memory.read) / 1e9
        return self.tile.seconds + moved / BANDWIDTH + machine.launch.kernel

    @property
    def through(self) -> bool:
        """Factors go through registers."""
        return self.tile.through

    def plan(self) -> Plan:
        """The plan of the kernel that is not shared yet."""
        inner, shares = self.tile.plan(), self.parts.shares
        grid, *rest = inner.levels
        covers = tuple(c for c in grid.covers if c.loop != shares)
        shared = Reduction(self.loop, Across.GROUPS, self.ways)
        return replace(
            inner,
            levels=(replace(grid, covers=covers), *rest),
            stagings=tuple(map(self.parts.whole, inner.stagings)),
            reductions=tuple(shared if r.loop == self.loop else r for r in inner.reductions),
            edges=tuple((n, e) for n, e in inner.edges if n != shares),
            reason=f"{inner.reason}, {self.loop} shared by {self.ways} groups",
        )


def shared(view: KernelView, found: Sequence[Tile]) -> Iterator[Shared]:
    """Ways to give all cores work where the tile that is best alone, and the one that is best on all cores, have too few groups.

    The smallest is one, too, where no loop has steps enough for all cores.
    """
    alone = min(found, key=lambda t: t.seconds)
    spread = min(found, key=lambda t: t.cycles)
    smallest = max(found, key=lambda t: (t.groups, t.share))
    chosen = [alone, spread, *(() if any(map(_is_enough, (alone, spread))) else (smallest,))]
    for tile in {id(t): t for t in chosen}.values():
        yield from _spread(view, tile)


def _is_enough(tile: Tile) -> bool:
    """Some loop has steps for groups on all cores."""
    depth, cores = tile.loops["k"], tile.target.settings.cores
    steps = (-(-i.range // (tile.deep if i.name == depth else 1)) for i in tile.match.main.loops)
    return tile.groups * max(steps) >= cores


def _spread(view: KernelView, best: Tile) -> Iterator[Shared]:
    cores = max(1, best.target.settings.cores)
    if best.groups >= cores:
        return
    for loop in (i.name for i in best.match.main.loops):
        deep = best.deep if loop == best.loops["k"] else 1
        sizes = {even_share(view.ranges[loop], -(-each * cores // best.groups), deep) for each in EACH}
        for size in sorted(sizes):
            ways = -(-view.ranges[loop] // size)
            if ways > 1 and even_share(view.ranges[loop], ways, deep) == size:
                yield from _tiles(view, best, loop, size, ways)


def _tiles(view: KernelView, best: Tile, loop: str, size: int, ways: int) -> Iterator[Shared]:
    parts = share_reduction(view, best.match.main, loop, size)
    for match in matches(parts.partial, best.instruction):
        if match.loops == best.match.loops:
            for tile in tiles_of(parts.partial, match, best.target, through=best.through):
                if prod(tile.group.values()) == prod(best.group.values()):
                    yield Shared(tile, loop, ways, parts)
