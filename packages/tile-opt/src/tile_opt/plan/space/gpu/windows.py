"""Plans for contractions whose reductions are short: windows of the operands in the registers of items, nothing shared.

Depthwise convolutions and stencils, few input channels, few channels in a group. Items lie in the order of the results in
memory, so that neighbours load and store side by side whatever the sizes; an item's cells lie along other loops: where a
window slides, and where an operand is used again. What an item touches of an operand it loads once, unconditionally.
Where windows slide along memory, cells may be neighbours there as well, in whole vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Generic, TypeVar

from tile_ir.frozen import replace
from tile_ir.stripe.affine import names_in
from tile_ir.stripe.nodes import Bind
from tile_ir.target import Target

from tile_opt.kernel.strides import flat_stride
from tile_opt.model.contraction import Contraction
from tile_opt.model.direct_cost import DirectCost, DirectTile, slides_along, vector_fits
from tile_opt.model.group_cost import Cost
from tile_opt.plan.plan import Across, Cover, Edge, Level, Plan, Reduction, Staging

SHORT = 128
"""Points of the reduction that an item may do by itself, without staging anything, where windows share what is loaded."""
LONG = 1024
"""The same where all of the reduction are windows that slide."""
PLAIN = 32
"""The same where none do."""
RUNS = (2, 4, 7, 8, 16)
COLUMNS = (2, 4, 8, 16)
"""Cells along loops where an operand is used again."""
WHOLE = (1, 2)
"""Vectors of cells along memory where windows slide along it."""
LONG_ROW = 12
"""Elements of windows that nothing but neighbours in memory share, from which items keep them: of 7 float16 they took 1.5 times as long."""
STEPS = (32, 16, 8)
"""Iterations of a window too long for straight-line code that an item does in one step, at most."""
CELLS = 64
"""Most cells of an item, in words."""
BODY = 1024
"""Instructions of arithmetic in straight-line code."""
GROUPS = (128, 256, 64)
"""Items of a group: the first is tried with all cells, the others with the best of them."""
ACROSS = (0, 64, 32)
"""Most items along the results' own loop, so that others lie where windows overlap; 0 for as many as there are."""
FINALISTS = 6


T = TypeVar("T")


@dataclass(frozen=True)
class Ranked(Generic[T]):
    """A tile and what it costs."""

    tile: T
    cost: Cost


class WindowSpace:
    """The tiles of one contraction on one target whose items share nothing."""

    def __init__(self, work: Contraction, target: Target) -> None:
        self.work, self.target = work, target
        self.costs = DirectCost(work, target.machine)
        self.threads = target.settings.threads

    def best(self) -> list[Ranked[DirectTile]]:
        """The best tiles, best first; none where reductions are long."""
        return self._best(self._tiles(GROUPS[0]))

    def along_rows(self) -> list[Ranked[DirectTile]]:
        """The same of tiles with neighbouring cells in memory where windows slide along it: whole vectors around them are loaded."""
        return self._best(self._row_tiles(GROUPS[0]))

    def long_rows(self) -> list[Ranked[DirectTile]]:
        """Those of them whose windows are long, and straight-line code, all of them or as much as a step is."""
        long = prod(self.work.own.values()) >= LONG_ROW
        return [f for f in self.along_rows() if not f.tile.outer or f.tile.deep > 1] if long else []

    @property
    def overlap(self) -> bool:
        """Windows of neighbouring results do."""
        return any(self.work.partners(n) for n in self.work.shared)

    @property
    def are_long(self) -> bool:
        """Items had too much to do by themselves."""
        alone = all(any(n in self.work.partners(m) for m in self.work.shared) for n in self.work.own)
        return self.costs.least > ((LONG if alone else SHORT) if self.overlap else PLAIN)

    def slides(self, tile: DirectTile) -> bool:
        """Windows of an item's cells overlap."""
        return any(self.work.partners(n) for n, count in tile.each.items() if count > 1)

    def _best(self, tiles: Iterator[DirectTile]) -> list[Ranked[DirectTile]]:
        if self.are_long:
            return []
        first = self._ranked(tiles)
        groups = [(g, across) for g in GROUPS if g <= self.threads for across in ACROSS]
        return self._ranked(self._dealt(r.tile, *g) for r in first[:FINALISTS] for g in groups)

    def _ranked(self, tiles: Iterator[DirectTile]) -> list[Ranked[DirectTile]]:
        different = {repr(t): t for t in tiles}.values()
        found = [Ranked(t, c) for t in different if (c := self.costs.cost(t)) is not None]
        return sorted(found, key=lambda f: f.cost.seconds)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Shared loops in the order of the results in memory, the slowest first."""
        out, view = self.costs.out, self.work.view
        return tuple(sorted(self.work.shared, key=lambda n: -abs(flat_stride(view, out, n))))

    def _tiles(self, items: int) -> Iterator[DirectTile]:
        near = self.order[-1]
        for lanes in self._lanes():
            for each in self._cells({near: lanes} if lanes > 1 else {}):
                pieces = {n: lanes for n in each if n == near and each[n] > lanes}
                tile = DirectTile({}, each, pieces, near if lanes > 1 else "", lanes)
                yield self._dealt(self._bounded(tile), items, 0)

    @cached_property
    def _width(self) -> int:
        """Elements of the widest access, of results and of all operands."""
        widths = (*(o.width for o in self.work.operands), self.work.view.type_of(self.costs.out.buffer).dtype.bytes)
        return self.target.machine.vector.bytes // max(widths)

    def _lanes(self) -> Iterator[int]:
        """Widths of accesses along the results."""
        yield 1
        near, work, lanes = self.order[-1], self.work, self._width
        plain = not work.partners(near) and all(near not in c.names for c in work.main.constraints)
        uses = [*(o.use for o in work.operands), self.costs.out]
        if lanes > 1 and plain and all(vector_fits(work, u, near, lanes) for u in uses):
            yield lanes

    def _row_tiles(self, items: int) -> Iterator[DirectTile]:
        near, work, lanes = self.order[-1], self.work, self._width
        moved = [o for o in work.operands if near in o.loops]
        if lanes == 1 or work.shared[near] % lanes or not all(slides_along(work, o.use, near, lanes) for o in moved):
            return
        if work.partners(near) and vector_fits(work, self.costs.out, near, lanes):
            for cells in (n * lanes for n in WHOLE if n * lanes <= work.shared[near]):
                for each in self._cells({near: cells}):
                    yield self._dealt(self._bounded(DirectTile({}, each, {}, near, whole=lanes)), items, 0)

    def _cells(self, base: dict[str, int]) -> Iterator[dict[str, int]]:
        for run in self._runs():
            for column in self._columns(base.get(self.order[-1], 1)):
                each = base | run | column
                if prod(each.values()) * self.work.words <= CELLS:
                    yield each

    def _runs(self) -> Iterator[dict[str, int]]:
        """Cells along one loop, not that of neighbouring items, on which a window slides."""
        yield {}
        for loop in self.order[:-1]:
            extent = self.work.shared[loop]
            if self.work.partners(loop):
                yield from ({loop: n} for n in RUNS if n <= extent and self._fits(n, extent))

    def _columns(self, lanes: int) -> Iterator[dict[str, int]]:
        """Cells along one loop, or two, on which an operand does not depend: it serves all of them."""
        yield {}
        for loop in self.order:
            extent, near = self.work.shared[loop], loop == self.order[-1]
            if self.work.partners(loop) or all(loop in o.loops for o in self.work.operands):
                continue
            for n in COLUMNS:
                count = n * lanes if near else n
                if count <= extent and (near or self._fits(n, extent)):
                    yield {loop: count}

    @staticmethod
    def _fits(run: int, extent: int) -> bool:
        """Few cells of the last run lie over the end."""
        return -(-extent // run) * run <= 1.15 * extent

    def _bounded(self, tile: DirectTile) -> DirectTile:
        """Reduction loops around the windows where all of them make too much code, or too many registers."""
        slides = {p for n in tile.each for p in self.work.partners(n)}
        windows = {p for n in self.work.shared for p in self.work.partners(n)}
        order = sorted(self.work.own, key=lambda n: (n in slides, n in windows, -self.work.own[n]))
        around = [replace(tile, outer=tuple(order[:k])) for k in range(len(order) + 1)]
        if slides.issuperset(order[-1:]):
            around[-1:] = (replace(around[-1], deep=n) for n in self._steps(order[-1]))
        return next(filter(self._fits_item, around), tile)

    def _steps(self, loop: str) -> Iterator[int]:
        """Iterations of a long window that may be straight-line code, the most first: whole vectors, and about as many in each step."""
        extent, lanes = self.work.own[loop], self.target.machine.vector.bytes // 4
        yield from (n for most in STEPS if (n := -(-extent // -(-extent // most) // lanes) * lanes) < extent)
        yield 1

    def _fits_item(self, tile: DirectTile) -> bool:
        """Its code is not too long, nor are its registers too many."""
        short = self.costs.points(tile) * self.work.slots <= BODY
        return short and self.costs.registers(tile) <= self.costs.occupancy.item_registers // 2

    def _dealt(self, tile: DirectTile, wanted: int, across: int) -> DirectTile:
        """The tile with about so many items, filled up in the order of memory, `across` along the results' own loop."""
        items: dict[str, int] = {}
        left = wanted
        for loop in reversed(self.order):
            needed = -(-self.work.shared[loop] // tile.each.get(loop, 1))
            most = min(left, across or left) if loop == self.order[-1] else left
            rounds = -(-needed // min(needed, most))
            items[loop] = -(-needed // rounds)
            # Items beyond a part of the results' own loop are no neighbours in memory, but share windows.
            left = left // items[loop] if rounds == 1 or loop == self.order[-1] else 1
        return replace(tile, items=dict(reversed(items.items())))


def window_plan(space: WindowSpace, found: Ranked[DirectTile]) -> Plan:
    """The plan that a tile stands for."""
    tile, work = found.tile, space.work
    order = space.order
    levels = [
        Level(Bind.GRID, tuple(Cover(n, tile.size(n)) for n in order)),
        Level(Bind.GROUP, tuple(Cover(n, tile.each.get(n, 1), tile.pieces.get(n, 0)) for n in order)),
    ]
    if tile.outer:
        sizes = [1] * len(tile.outer[1:]) + [tile.deep]
        levels.append(Level(Bind.NONE, tuple(map(Cover, tile.outer, sizes))))
    buffers = dict.fromkeys(o.use.buffer for o in work.operands)
    kept = {o.use.buffer: o.kept.value if o.converts else "" for o in work.operands}
    stagings = tuple(Staging(b, len(levels) - 1, "REG", dtype=kept[b]) for b in buffers)
    straight = [n for n in work.own if n in space.costs.inner(tile)]
    straight += [n for n in order if tile.each.get(n, 1) > (tile.lanes if n == tile.vector else 1)]
    if straight:
        levels.append(Level(Bind.UNROLL, tuple(Cover(n, tile.lanes if n == tile.vector else 1) for n in straight)))
    if tile.lanes > 1:
        levels.append(Level(Bind.VECTOR, (Cover(tile.vector, 1),), tile.lanes))
    reductions = tuple(Reduction(n, Across.SERIAL) for n in work.own)
    return Plan(tuple(levels), stagings, reductions, tuple(_edges(work, tile)), reason=_reason(found))


def _edges(work: Contraction, tile: DirectTile) -> Iterator[tuple[str, Edge]]:
    """Ends of loops, and of images, are found by every item for itself; by groups where each element would be asked for."""
    cut = names_in(work.main.constraints)
    for n, extent in work.shared.items():
        if n in cut or extent % tile.size(n):
            yield n, Edge.PEEL if tile.whole > 1 and n == tile.vector else Edge.MASK


def _reason(found: Ranked[DirectTile]) -> str:
    tile, cost = found.tile, found.cost
    cells = " x ".join(f"{n}" for n in tile.each.values()) or "1"
    return (
        f"{cost.groups} groups of {tile.team} items with {cells} cells, windows in registers: {cost.share:.0%} of peak, "
        f"{cost.resident} at once, bound by {cost.limit}"
    )
