"""item_chains: fuses chains of stencils on GPUs into one kernel; items keep intermediates in registers, or groups in local memory.

The same chains as those of `tile_pipelines`, for machines with many items: a tile is what one item computes of the
result, a run of cells along a loop on which a window slides. Its part of each temporary, the rows at the edges
included, lies in its registers, so that nothing waits for others and no temporary goes through memory. A blur of two passes
computes the first pass along a column for a run of rows, and the second from registers.

Or a tile is what a group computes (`plan.builders.group_chain`): longer windows, of which less is computed twice. Its part of each
temporary lies in local memory, for which its items wait once a pass; each holds windows around several of its cells.

Or a group walks along a strip (`plan.builders.walking_chain`): long windows, where only rows above and below are handed on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, prod
from typing import ClassVar

from tile_ir.powers import power_of_two
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import Bind, Block, Program
from tile_ir.target import Target

from tile_opt.kernel.dimensions import with_same_dimensions
from tile_opt.kernel.item_chain import GROUP, item_chain
from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.tiles import PRIVATE, Tiled, TiledLoop, numbers, private_bytes, tiled
from tile_opt.kernel.view import KernelView, Stage, Use, close_kernel
from tile_opt.kernel.windows import Window, is_free, windows
from tile_opt.kernel.work import nbytes, op_cost, view_is_heavy
from tile_opt.model.fusion import Forecast, forecast
from tile_opt.passes.kernels.tile_pipelines import Chains, TilePipelines, Timed, all_once
from tile_opt.plan.space.gpu.chain import STEP, lanes_of
from tile_opt.plan.space.gpu.chain_cost import BODY, cost

RUNS = (8, 16, 32, 4)
"""Cells of an item along the loop on which windows slide; the first of those that take about as long is taken: short runs
are many, and items that wait for memory have others beside them."""
WIDE, TALL = (128, 64), (32, 64, 128)
"""Cells of a group's tile along memory, and rows of them."""
STRIP, TURNS = 256, (4, 6, 8, 12)
"""Cells along memory of a strip along which a group walks, and strips for each multiprocessor."""
FEWER = 0.75
"""Share of the cycles of items with boxes of their own, below which groups are faster though memory bounds both."""
KEPT = 512
"""Bytes of what an item has of temporaries, and for each cell of its tile."""
SINGLE = 128
"""Points of an item that has one cell of the result, where no window slides: it waits for longer sums, which several items share,
for longer than another kernel takes to begin."""
LOAD = 1.3
"""Cycles in which a load of a sub-group, of neighbours, takes the path to the nearest cache."""
APART = 32
"""The same of items whose elements are no neighbours."""

FAR = 2.2
"""Times as long as windows take that slide over rows which other groups load: of planes of 256 x 256, 5 taps 2.4 and 9 taps 1.9."""


@dataclass(frozen=True)
class ItemChains(TilePipelines):
    """Join chains of at most `most` kernels, a tile for each item, where that is expected to be faster."""

    most: int = 4

    def chains(self, program: Program, target: Target) -> Chains:
        return _ItemChains(self, target, program)


class _ItemChains(Chains):
    """Chains on a machine with many items."""

    alike: ClassVar[float] = 1.05

    def preferred(self, alike: Sequence[Timed]) -> Timed:
        """The first of `RUNS`, unless groups have far less to do while memory is waited for."""
        own = next((t for t in alike if not _is_shared(t.kernels)), None)
        shared = min((t for t in alike if _is_shared(t.kernels)), key=lambda t: t.seconds, default=own)
        assert shared is not None
        return shared if own is None or shared.cycles < FEWER * own.cycles else own

    def seen(self, views: Sequence[KernelView], boxes: Collection[str]) -> Sequence[KernelView]:
        return with_same_dimensions(views, boxes)

    def closed(self, made: Tiled) -> Block:
        return close_kernel(item_chain(made))

    def by_itself(self, view: KernelView) -> Forecast:
        return forecast(view, self.machine)

    def unsaved(self, members: Sequence[int]) -> float:
        """Registers save loads, which take most of the time of short sums."""
        del members
        return 0.0

    def timed(self, made: Tiled) -> Timed:
        machine = self.machine
        outside = {r.into: nbytes(r.type) for v in made.views for r in v.refs if r.loc not in (PRIVATE, GROUP)}
        cycles, streams = self._share(made)
        memory = sum(outside.values()) / (machine.memory.all_cores.read * streams * 1e9)
        busy = cycles / (machine.clock_ghz * 1e9)
        return Timed(Forecast(busy, memory, machine.launch.kernel).seconds, made, cycles)

    def _share(self, made: Tiled) -> tuple[float, float]:
        """Cycles of a multiprocessor, for its share of the tiles, and the share of the memory's bandwidth that it gets."""
        machine, tiles = self.machine, prod(i.range for i in made.loops)
        if _is_shared(made):
            found = cost(item_chain(made), self.target)
            return (inf, 1.0) if found is None else (-(-tiles // machine.cores) * found.cycles, found.streams)
        turns = -(-tiles // (machine.cores * machine.subgroup))
        return turns * sum(_cycles(v, s, machine.ports.issue) for v in made.views for s in v.stages), 1.0

    def tiles(
        self, views: Sequence[KernelView], boxes: Mapping[str, int], kept: Mapping[int, Collection[str]]
    ) -> Iterator[Tiled]:
        """Of items, and of groups that hold boxes in local memory."""
        ways = _ways(views, boxes, kept)
        yield from (tiled(views, boxes, cuts) for cuts in dict.fromkeys(self._own_cuts(views, boxes, ways)))
        shared = (*self._shared_cuts(views, boxes, ways), *self._walking_cuts(views, ways))
        yield from (tiled(views, boxes, cuts, GROUP) for cuts in shared)

    def _own_cuts(
        self, views: Sequence[KernelView], boxes: Mapping[str, int], ways: Mapping[str, tuple[Window, ...]]
    ) -> Iterator[tuple[TiledLoop, ...]]:
        """A run of cells along one loop on which windows slide, and one cell along all others; one in all where none slides."""
        last = views[-1]
        if (
            ways
            and not any(map(_slides, ways.values()))
            and _fits(views, boxes, single := _cut(views, ways, {}), SINGLE)
        ):
            yield single
        for along in (n for n, w in ways.items() if _slides(w) and not _is_near(last, n)):
            for run in RUNS:
                cuts = _cut(views, ways, {along: min(run, last.ranges[along])})
                if _fits(views, boxes, cuts):
                    yield cuts

    def _shared_cuts(
        self, views: Sequence[KernelView], boxes: Mapping[str, int], ways: Mapping[str, tuple[Window, ...]]
    ) -> Iterator[tuple[TiledLoop, ...]]:
        """Rows of a length along memory, or whose boxes have it: some of them, along the loop on which windows slide farthest."""
        last = views[-1]
        near = next((n for n in ways if _is_near(last, n)), None)
        if near is None or len(ways) < 2 or not any(map(_slides, ways.values())):
            return
        far = max((n for n in ways if n != near), key=lambda n: (max(w.high - w.low for w in ways[n]), last.ranges[n]))
        lanes = min(map(lanes_of, views))
        whole = {**ways, near: tuple(w.in_vectors(lanes) for w in ways[near])}
        widths = [min(wide, power_of_two(last.ranges[near])) for wide in WIDE]
        fitting = [min(w.tile(wide) for w in whole[near]) // lanes * lanes for wide in widths]
        for wide, tall in product(dict.fromkeys(n for n in (*fitting, *widths) if n > 0), TALL):
            cuts = _cut(views, whole, {near: wide, far: min(tall, power_of_two(last.ranges[far]))})
            if private_bytes(views, boxes, cuts) <= self.target.settings.max_mem:
                yield cuts

    def _walking_cuts(
        self, views: Sequence[KernelView], ways: Mapping[str, tuple[Window, ...]]
    ) -> Iterator[tuple[TiledLoop, ...]]:
        """Strips of a width along memory, some rows long: where nothing but rows above and below is handed on."""
        last = views[-1]
        near = next((n for n in ways if _is_near(last, n)), None)
        sliding = [n for n in ways if _slides(ways[n])]
        if near is None or near in sliding or len(sliding) != 1 or any(w.step > 1 for w in ways[sliding[0]]):
            return
        (far,) = sliding
        wide = min(STRIP, power_of_two(last.ranges[near]))
        beside = prod(-(-last.ranges[n] // (wide if n == near else 1)) for n in ways if n != far)
        strips = dict.fromkeys(max(1, turns * self.machine.cores // beside) for turns in TURNS)
        reach = max(w.high - w.low for w in ways[far])
        for rows in dict.fromkeys(-(-last.ranges[far] // count) for count in strips):
            yield _cut(views, ways, {near: wide, far: rows + -(rows + reach) % STEP})


def _is_shared(made: Tiled) -> bool:
    """Groups hold its boxes."""
    return any(b.loc == GROUP for b in made.boxes)


def _ways(
    views: Sequence[KernelView], boxes: Mapping[str, int], kept: Mapping[int, Collection[str]]
) -> dict[str, tuple[Window, ...]]:
    """What tiles along each loop of the last kernel need of all; empty where one of them cannot be cut."""
    last = views[-1]
    found = {i.name: windows(views, boxes, i.name) for i in last.loops if is_free(last, i.name)}
    ways = {n: w for n, w in found.items() if w is not None and all_once(views, n, w, kept)}
    return {} if len(ways) < len(last.loops) or any(map(view_is_heavy, views)) else ways


def _cut(
    views: Sequence[KernelView], ways: Mapping[str, tuple[Window, ...]], sizes: Mapping[str, int]
) -> tuple[TiledLoop, ...]:
    """Tiles of these sizes, of one along other loops."""
    last, names = views[-1], dict(zip(ways, numbers(views, list(ways)), strict=True))
    return tuple(TiledLoop(last.ranges[n], sizes.get(n, 1), names[n], w) for n, w in ways.items())


def _fits(views: Sequence[KernelView], boxes: Mapping[str, int], cuts: Sequence[TiledLoop], most: int = BODY) -> bool:
    """An item has registers for its tile, and its straight-line code has at most so many points."""
    held, points = private_bytes(views, boxes, cuts), 0
    for k, view in enumerate(views):
        counts = {cut.windows[k].loop: cut.windows[k].count(cut.tile) for cut in cuts}
        cells = prod(counts.get(i.name, i.range) for i in view.loops)
        held += cells * sum(nbytes(a.type) for a in view.allocs)
        points += cells * sum(prod(i.range for i in s.loops) for s in view.stages)
    return held <= KEPT and points <= most


def _slides(found: Sequence[Window]) -> bool:
    return any(w.high > w.low for w in found)


def _is_near(view: KernelView, loop: str) -> bool:
    """Results are neighbours in memory along the loop: items are, too."""
    return any(flat_stride(view, u, loop) == 1 for u in view.uses if u.writes)


def _cycles(view: KernelView, stage: Stage, issue: float) -> float:
    """Of a sub-group, for an item's part of a stage."""
    ranges = {i.name: i.range for i in (*view.loops, *stage.loops) if i.bind is not Bind.GRID}
    moved = (u for u in stage.uses if not _is_kept(view, u))
    loads = sum(_turns(view, u) * prod(ranges.get(n, 1) for n in names_in(u.forms)) for u in moved)
    return LOAD * loads + prod(ranges.values()) * op_cost(stage) / issue


def _is_kept(view: KernelView, use: Use) -> bool:
    """It is in a register: the item's part of a temporary, or a cell's own."""
    return view.is_local(use.buffer) or any(r.into == use.buffer and r.loc == PRIVATE for r in view.refs)


def _turns(view: KernelView, use: Use) -> float:
    near = [i.name for i in view.loops if i.bind is Bind.GRID][-1:]
    turns = 1 if all(flat_stride(view, use, n) in (0, 1) for n in near) else APART
    return turns * (FAR if any(_is_far(view, form, near) for form in use.forms) else 1.0)


def _is_far(view: KernelView, form: Affine, near: Sequence[str]) -> bool:
    """A window slides along a loop of which an item has one cell, and its neighbours in memory have the same."""
    single = {i.name for i in view.loops if i.bind is Bind.GRID} - {*near}
    own = {i.name for i in view.loops if i.bind is not Bind.GRID and i.range > 1}
    names = {*form.names}
    return bool(names & single) and not names & own and not names <= {i.name for i in view.loops}
