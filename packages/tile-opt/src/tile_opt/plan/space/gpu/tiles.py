"""Plans for contractions on graphics processors: tiles of groups and items, from the machine's own numbers.

An item keeps a tile of cells in registers: lanes and pieces along one loop, a run along another. Items are dealt out
where the operands' boxes grow least, in as many sizes as a group may have. The reduction goes in steps whose boxes fit
local memory; a step may be deeper, take windows whole, or be shared by several groups. Everything is ranked by
`model.group_cost`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from math import inf, prod

from tile_ir.frozen import replace
from tile_ir.stripe.affine import names_in
from tile_ir.target import Target

from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView
from tile_opt.model.contraction import Contraction, contraction
from tile_opt.model.estimate import estimate
from tile_opt.model.group_cost import GroupCost, Tile, sectors
from tile_opt.plan.builders.group_tiles import build_group_tiles
from tile_opt.plan.plan import Across, Plan
from tile_opt.plan.space.gpu.copied import GAIN, copied
from tile_opt.plan.space.gpu.group_plan import GroupPlan
from tile_opt.plan.space.gpu.windows import Ranked, WindowSpace, window_plan

RUNS = (16, 8, 4, 2)
WINDOW_RUNS = (16, 12, 8, 4, 2)
"""The same beside windows; of plain products cells in twelves are slower than they are predicted."""
LONGEST_RUN = 16
RAGGED = 0.15
"""Share of a loop that tiles may reach beyond it."""
PIECE = 4
"""Cells of an item along the vector loop where it has no vectors."""
MANY = 16
"""Cells of an item, at least, where there are enough to do for everyone."""
LINE = 128
"""Bytes that neighbouring items best fetch side by side."""
CELLS = 128
"""Most cells of an item, in words."""
DEPTHS = (8, 16, 32, 64)
WINDOW_DEPTHS = (4, 8, 16)
SHALLOW = (1, 2)
"""The depths of steps, too, that take windows of more than `LARGE_WINDOW` points whole."""
LARGE_WINDOW = 16
WAYS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128)
TEAMS = (1, 2, 4)
FINALISTS = 5
OPTIMISM = 1.2
"""Times longer than `GroupCost` says that staged tiles take beside windows: the median of 15 convolutions measured both ways (quartiles 1.2 and 2.0)."""
FEW = 12
"""Iterations of a reduction for which a copy in local memory does not pay, whether or not anything slides along it."""
NARROW_WINDOW = 64
"""Points of a window that may be whole in a step."""

Timed = tuple[float, Callable[[], Plan]]
"""What a space expects of a plan, and how it is made."""


class TileSpace:
    """The tiles of one contraction on one target.

    Narrow elements that are kept as words are weighed as words: their programs get the tiles of those that have words.
    """

    def __init__(self, work: Contraction, target: Target) -> None:
        self.work, self.target = work.as_kept, target
        machine = target.machine
        self.windows = any(len(d) > 1 for o in work.operands for d in o.dims)
        most = 0 if self.windows else target.settings.static_local_bytes
        self.costs = GroupCost(self.work, machine, max(target.settings.max_mem, most))
        self.subgroup = self.costs.occupancy.subgroup
        self.threads = target.settings.threads

    def best(self) -> list[Ranked[Tile]]:
        """The best tiles, best first."""
        first = self._ranked(self._tiles())
        return self._ranked(t for r in first[:FINALISTS] for t in self._reductions(r.tile))

    def _ranked(self, tiles: Iterator[Tile]) -> list[Ranked[Tile]]:
        """Each with its reduction shared by as many groups as is best, and by one."""
        different = {repr(t): t for t in tiles}.values()
        found: list[Ranked[Tile]] = []
        for tile in different:
            shared = [Ranked(t, c) for t, c in self.costs.shared(tile, self._splits(tile))]
            best = min(shared, key=lambda r: r.cost.seconds, default=None)
            found += [r for r in shared if r is best or r.tile.ways == 1]
        return sorted(found, key=lambda r: r.cost.seconds)

    # --- item tiles -------------------------------------------------------------------------------------

    def _tiles(self) -> Iterator[Tile]:
        for vector in self._vectors():
            for wide, lanes in self._widths(vector):
                for run, tall in self._runs(vector, wide):
                    each = {vector: wide} | ({run: tall} if run else {})
                    yield from self._grown(each, vector, lanes)

    def _vectors(self) -> tuple[str, ...]:
        """Loops that lanes may run along: that of the results, and the longest one along which operands are used again.

        Not those that a constraint cuts: its lanes would go their own ways.
        """
        shared = self.work.shared
        longest = max(self.work.reused, key=self._suits_lanes, default=None)
        near = self.work.contiguous
        if near in self.work.reused and near not in self._tied and shared[near] >= MANY:
            return (near,)
        found = [n for n in (near, longest, list(shared)[-1]) if n is not None]
        whole = [n for n in found if n not in self._tied] or found
        return tuple(dict.fromkeys(whole))[:2]

    def _suits_lanes(self, loop: str) -> tuple[bool, bool, int]:
        """No window, long enough, and near in the results: images of a batch are far apart."""
        out = self.work.results[0]
        return not self.work.partners(loop), self.work.shared[loop] >= MANY, -flat_stride(self.work.view, out, loop)

    @cached_property
    def _tied(self) -> set[str]:
        """Loops that constraints mention."""
        return names_in(self.work.main.constraints)

    def _widths(self, vector: str) -> Iterator[tuple[int, int]]:
        """(cells, lanes) along the vector loop; one too short for a vector, or that a constraint cuts, is unrolled."""
        lanes = max(
            1, min(self.target.settings.vec_size, self.target.machine.vector.bytes // max(4, self.work.dtype.bytes))
        )
        extent = self.work.shared[vector]
        if extent < lanes or lanes == 1 or vector in self._tied:
            yield min(extent, max(PIECE, lanes)), 1
            return
        for wide in (2 * lanes, lanes):
            if wide < extent + lanes:
                yield wide, lanes

    def _runs(self, vector: str, wide: int) -> Iterator[tuple[str | None, int]]:
        """(loop, cells) of the second dimension of an item's tile."""
        least = MANY if prod(self.work.shared.values()) > MANY * self.threads * self.target.machine.cores else 0
        if wide >= least:
            yield None, 1
        for loop in self._run_loops(vector):
            for tall in self._lengths(self.work.shared[loop]):
                if least <= tall * wide and tall * wide * self.work.words <= CELLS:
                    yield loop, tall

    def _run_loops(self, vector: str) -> list[str]:
        """The longest loop without a window, and of those with one the last, or the last two where one is the results' own.

        Loops along which what lanes walk is used again come first: along the others they save no loads.
        """
        others = [n for n in self.work.reused if n != vector]
        walked = [o.loops for o in self.work.operands if vector in o.loops]
        others = [n for n in others if any(n not in loops for loops in walked)] or others
        windows = [n for n in others if self.work.partners(n)]
        plain = sorted((n for n in others if n not in windows), key=lambda n: self.work.shared[n])
        return [*plain[-1:], *windows[-2 if self.work.contiguous in windows else -1 :]]

    def _lengths(self, extent: int) -> list[int]:
        """Runs that leave little of the last one over: powers of two, and what divides the loop."""
        exact = [d for d in range(LONGEST_RUN, 2, -1) if extent % d == 0][:2]
        runs = WINDOW_RUNS if self.windows else RUNS
        even = [r for r in runs if r <= extent and -(-extent // r) * r <= extent * (1 + RAGGED)]
        return sorted({*exact, *even}, reverse=True)

    def _grown(self, each: dict[str, int], vector: str, lanes: int) -> Iterator[Tile]:
        """Items dealt out one doubling (or one whole loop) after the other, where boxes grow least."""
        tile = Tile(dict.fromkeys(self.work.shared, 1), each, vector, lanes, "", 1)
        stepped, deep, whole = self._first_reduction()
        tile = replace(tile, stepped=stepped, deep=deep, whole=whole)
        seen = 0
        while True:
            if tile.count >= self.subgroup and tile.count > seen:
                seen = tile.count
                yield tile
            options = [g for n in self.work.shared for g in self._more(tile, n)]
            if not options:
                if tile.count < self.subgroup:
                    yield tile
                return
            tile = min(options, key=self._appetite)

    def _more(self, tile: Tile, loop: str) -> Iterator[Tile]:
        """The tile with more items along a loop: twice as many, or all that it has."""
        now, each = tile.items[loop], tile.each.get(loop, 1)
        needed = -(-self.work.shared[loop] // each)
        if now >= needed:
            return
        for count in {min(2 * now, needed), needed if needed <= 4 * now else 2 * now}:
            items = tile.items | {loop: count}
            if prod(items.values()) <= self.threads and not (count < needed and count % 2):
                yield replace(tile, items=items)

    def _appetite(self, tile: Tile) -> float:
        """Bytes to fetch per useful cell and iteration of the reduction."""
        steps, sizes = self.costs.steps(tile), self.costs.sizes(tile)
        counts, cells, inner = sizes | steps, prod(sizes.values()), prod(steps.values())
        useful = prod([e / (-(-e // sizes[n]) * sizes[n]) for n, e in self.work.shared.items()])
        fetched = sum(
            [sectors(o.box(counts), o.row(counts, tile.stepped, 0), o.width, LINE) for o in self.work.operands]
        )
        near = self.work.contiguous
        stored = sectors(cells, sizes[near] if near else 1, 4, LINE) / prod(self.work.own.values())
        return (fetched / inner + stored) / useful / cells

    # --- reductions -------------------------------------------------------------------------------------

    def _first_reduction(self) -> tuple[str, int, tuple[str, ...]]:
        """The stepped loop, its depth, and windows that are whole in a step."""
        stepped = self._steppable()[0]
        windows = sorted((n for n in self.work.own if n != stepped), key=lambda n: self.work.own[n])
        whole: list[str] = []
        for name in windows:
            if prod(self.work.own[n] for n in (*whole, name)) <= NARROW_WINDOW:
                whole.append(name)
        points = prod(self.work.own[n] for n in whole)
        deep = min(4 if points > 4 else 8, max(1, NARROW_WINDOW // points))
        return stepped, min(deep, self.work.own[stepped]), tuple(whole)

    def _steppable(self) -> list[str]:
        """Reduction loops, the best to go in steps along first: not those that constraints tie to an output loop."""
        return sorted(self.work.own, key=lambda n: (n in self._tied, -self.work.own[n], n))

    def _reductions(self, tile: Tile) -> Iterator[Tile]:
        """The tile with other steps."""
        yield tile
        if not tile.staged:
            return
        for stepped in self._steppable()[:2]:
            rest = sorted((n for n in self.work.own if n != stepped), key=lambda n: self.work.own[n])
            for k in range(len(rest) + 1):
                if prod(self.work.own[n] for n in rest[:k]) > NARROW_WINDOW:
                    break
                depths = WINDOW_DEPTHS if self.windows else DEPTHS
                depths += SHALLOW if prod(self.work.own[n] for n in rest[:k]) > LARGE_WINDOW else ()
                for deep in sorted({min(d, self.work.own[stepped]) for d in depths}):
                    other = replace(tile, stepped=stepped, deep=deep, whole=tuple(rest[:k]))
                    yield from (self._twice(t) for t in self._teams(other))

    def _twice(self, tile: Tile) -> Tile:
        """The tile with two versions of its copies, where they fit."""
        twice = replace(tile, versions=2)
        return twice if self.costs.box_bytes(twice) <= self.costs.local_bytes else tile

    def _teams(self, tile: Tile) -> Iterator[Tile]:
        """The tile with more and more teams of items that share its steps."""
        whole = not self.windows and not tile.team % self.subgroup and tile.cells * self.work.words <= CELLS // 2
        for teams in TEAMS:
            if teams == 1 or (whole and tile.deep % teams == 0 and tile.team * teams <= self.threads):
                yield replace(tile, teams=teams)

    def _splits(self, tile: Tile) -> Iterator[tuple[int, str]]:
        """Numbers of groups that may share the reduction, each with the loop that they share."""
        yield 1, ""
        if not tile.staged:
            return
        outer = [n for n in self.work.own if n not in (tile.stepped, *tile.whole)]
        for ways in WAYS:
            for loop in (tile.stepped, *outer):
                least = 2 * tile.deep if loop == tile.stepped else 1
                if ways * least <= self.work.own[loop]:
                    yield ways, loop


def plans(view: KernelView, target: Target) -> Iterator[Plan]:
    """Plans for the contraction of `view`, best first; none for kernels of other classes."""
    for _, plan in sorted([*ranked(view, target), *along_rows(view, target)], key=lambda pair: pair[0]):
        yield plan()


def forecast(view: KernelView, target: Target) -> float | None:
    """Seconds of the best plan, at best; None for kernels of other classes."""
    found = ranked(view, target)
    return found[0][0] / OPTIMISM if found else None


def least_seconds(view: KernelView, target: Target) -> float:
    """Less than the forecast: a launch, and what the arithmetic takes at the peak rate; inf where there is no forecast."""
    work, machine = _contraction(view, target), target.machine
    if work is None:
        return inf
    costs, windows = GroupCost(work, machine, 0), WindowSpace(work, target)
    rate = costs.rate * costs.occupancy.subgroup * machine.cores
    seconds = work.points / rate / (machine.clock_ghz * 1e9) + machine.launch.kernel
    # Other tiles than those beside long windows may be taken for faster, which the forecast is divided by.
    return seconds if windows.overlap and windows.are_long else seconds / OPTIMISM


def estimated(view: KernelView, target: Target) -> float | None:
    """Seconds of the best plan by the estimate of its kernel; None where there is none, or where it takes several kernels."""
    work, found = _contraction(view, target), ranked(view, target)
    plan = found[0][1]() if found else None
    if work is None or plan is None or any(r.across is Across.GROUPS for r in plan.reductions):
        return None
    if any(s.level < 0 for s in plan.stagings):
        return None
    return estimate(build_group_tiles(view, work.main, plan), target).seconds


def along_rows(view: KernelView, target: Target) -> list[Timed]:
    """(seconds, plan) of items whose windows slide along rows in memory, best first; apart, as not every model takes them for faster."""
    work = _contraction(view, target)
    if work is None:
        return []
    windows = WindowSpace(work, target)
    return [(f.cost.seconds, partial(window_plan, windows, f)) for f in windows.along_rows()]


def ranked(view: KernelView, target: Target) -> list[Timed]:
    """(seconds, plan), best first; none for kernels of other classes.

    Of a single operand only tiles that hold neighbouring windows: it is used again nowhere else.
    """
    work = _contraction(view, target)
    if work is None:
        return []
    space, windows = TileSpace(work, target), WindowSpace(work, target)
    if len(work.operands) == 1:
        kept = [f for f in windows.best() if windows.slides(f.tile)] or windows.long_rows()
        return [(f.cost.seconds, partial(window_plan, windows, f)) for f in kept]
    near = windows.best() if space.windows or prod(work.own.values()) <= FEW else []
    found: list[Timed] = []
    for r in (ranked := space.best()):
        found.append((OPTIMISM * r.cost.seconds, GroupPlan(work, r.tile, r.cost, space.costs).plan))
    for f in near:
        found.append((f.cost.seconds, partial(window_plan, windows, f)))
    if ranked:
        found += _on_copies(work, target, ranked[0].cost.seconds)
    return sorted(found, key=lambda pair: pair[0])


def _contraction(view: KernelView, target: Target) -> Contraction | None:
    return contraction(view) if target.machine.is_gpu and not target.settings.use_global else None


def _on_copies(work: Contraction, target: Target, seconds: float) -> Iterator[Timed]:
    """(seconds, plan) of tiles of copies of the operands, where making the copies may pay: without them it takes `seconds`."""
    copies = copied(work, target.machine)
    if copies is None or copies.seconds > (GAIN - 1) * seconds:
        return
    space = TileSpace(copies.work, target)
    for r in space.best():
        made = GroupPlan(copies.work, r.tile, r.cost, space.costs)
        yield OPTIMISM * (r.cost.seconds + copies.seconds) / GAIN, lambda m=made: copies.plan(m.plan())
