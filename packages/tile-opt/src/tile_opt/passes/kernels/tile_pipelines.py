"""tile_pipelines: fuses producers and consumers (stencils, attention) on CPUs tile by tile, so that intermediates stay in a cache.

A blur of two passes, or some steps of a stencil, writes each temporary to memory and reads it back. Here the kernels of
such a chain become the parts of one kernel (`kernel.pipeline`): for a tile of the result each part computes the rows that
the next one needs, into a box that stays in a cache. Rows at the edges of boxes are computed twice (overlapped tiles).
What a forecast says of time decides whether, and how large the tiles are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import ClassVar

from tile_ir.frozen import frozen
from tile_ir.stripe.hashing import structural_hash
from tile_ir.stripe.nodes import Block, Program
from tile_ir.target import Target

from tile_opt.blocks.buffers import (
    in_the_way,
    with_joined,
)
from tile_opt.kernel.alike import structure
from tile_opt.kernel.inlining import is_operand
from tile_opt.kernel.pipeline import close_pipeline
from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.tiles import Tiled, TiledLoop, numbers, private_bytes, tiled
from tile_opt.kernel.view import KernelView, close_kernel, open_kernel
from tile_opt.kernel.windows import Window, dimension, is_free, windows
from tile_opt.kernel.work import op_cost, view_carries, view_is_heavy
from tile_opt.model.fusion import Forecast, forecast, forecast_tiled
from tile_opt.passes.choosing import Choice, Choices, ChoosingPass, Chosen, results
from tile_opt.passes.joining import Kernels
from tile_opt.plan.space.cpu.matrix import is_on_tiles
from tile_opt.plan.space.cpu.tiles import fastest_cycles

ALIKE = 1.01
"""Times the shortest that tiles may be expected to take: of those the smallest leave most of a cache to what they read."""
LITTLE = 1.2
"""Times the least that such tiles move."""
MARGIN = 0.95
"""One kernel must be expected to take less than this share of what its parts take one after the other."""
ROOMY = 1.2
"""The same where what they exchange is more than the last cache holds: memory that nobody takes is a gain, too, and how fast it is
while others use it nobody knows."""
SHOWING = 1.1
"""The same where that is more than the second cache holds: work hides what moves there, forecasts say, but never all of it."""
FAR_MORE = 4
"""Powers of two between bytes of which one is far more than the other."""
HALOS = 2
"""Rows of the least tile along a loop, in those that neighbouring tiles compute twice."""


@dataclass(frozen=True)
class TilePipelines(ChoosingPass):
    """Tile chains of at most `most` kernels; a tile's boxes take at most `share` of the second cache.

    Boxes of which not one row is that small take at most the share `far` of what each core has of the last cache.
    Where that pays there are at least `per_core` tiles for every core.
    """

    most: int = 8
    share: float = 0.5
    far: float = 0.25
    per_core: int = 4

    def chains(self, program: Program, target: Target) -> Chains:
        """The kernels of a program, and what is known of their chains."""
        return Chains(self, target, program)

    def choose(self, program: Program, target: Target) -> Choices:
        chains = self.chains(program, target)
        for last in sorted(range(len(chains.kernels)), key=chains.rank, reverse=True):
            made = chains.ending(last)
            if made is not None:
                chains.kernels[last] = chains.closed(made)
                chains.views[last] = None
        return Choices(with_joined(program, chains.kernels), tuple(chains.choices))


@frozen
class Timed:
    """Kernels as one, and the seconds that it is expected to take."""

    seconds: float
    kernels: Tiled
    cycles: float = 0.0
    """Of a core at work, where choices need them apart from what memory takes."""
    moving: float = 0.0
    """Seconds that bytes move, hidden behind work or not."""


class Chains(Kernels):
    """The kernels of a program, and who writes and reads each buffer."""

    alike: ClassVar[float] = ALIKE

    def __init__(self, options: TilePipelines, target: Target, program: Program) -> None:
        super().__init__(program, lambda kernel: _off_tiles(kernel, target))
        self.options = options
        self.target = target
        self.machine = target.machine
        self.alone: dict[str, Forecast] = {}
        """Of kernels by themselves, by their structure: layers of a network are alike, and each kind of them is weighed once."""
        self.together: dict[str, Forecast] = {}
        """Of several as one, by the structure of that."""
        self.cycles: dict[str, float | None] = {}
        """Of the parts' fastest register tiles."""
        self.weighed: dict[object, tuple[tuple[int, ...], Timed | None]] = {}
        """Kernels that were weighed as one, by what they are and exchange: the first such, and they in the fastest tiles."""

    def rank(self, last: int) -> tuple[int, int]:
        """Chains that exchange far more than others are made first, then those that end later."""
        view = self.views[last]
        read = 0 if view is None else max((view.type_of(b).nbytes for b in view.reads() & self.temps), default=0)
        return read.bit_length() // FAR_MORE, last

    def ending(self, last: int) -> Tiled | None:
        """The kernels that pay as one with kernel number `last`, which leave the program; None where none does."""
        view = self.views[last]
        if view is None or self.kernels[last] is None or view_carries(view):
            return None
        if next(self._producers([last]), None) is None:
            return None
        members, seconds = [last], self._seconds([last])
        while len(members) < self.options.most:
            larger = self._larger(members, seconds)
            if larger is None:
                break
            members, seconds = larger
        made = self._made(members) if len(members) > 1 else None
        for k in members[:-1]:
            self.kernels[k] = None
        return made

    def _larger(self, members: list[int], together: float) -> tuple[list[int], float] | None:
        """One more producer, and what all take then; the first that pays."""
        for producer in self._producers(members):
            both = sorted((producer, *members))
            alone = self._seconds([producer]) + together
            least = self._margin(producer) * alone
            seconds = self._together(both) if self.unsaved(both) < least else None
            if seconds is None:
                continue
            paid = seconds < least
            names = results((self._view(producer),)), results(map(self._view, members))
            self.choices.append(Choice(Chosen.TILED if paid else Chosen.APART, *names, seconds, alone))
            if paid:
                return both, seconds
        return None

    def _together(self, members: Sequence[int]) -> float | None:
        """Seconds in the fastest tiles, found once for all members that are alike: programs repeat their layers and steps."""
        _, made = self._weighed(members)
        return None if made is None else made.seconds

    def _made(self, members: Sequence[int]) -> Tiled | None:
        """The members in the fastest tiles."""
        first, made = self._weighed(members)
        if first != (*members,):
            made = self._fastest(members)
        return None if made is None else made.kernels

    def _weighed(self, members: Sequence[int]) -> tuple[tuple[int, ...], Timed | None]:
        key = self._exchange(members)
        if key not in self.weighed:
            self.weighed[key] = (*members,), self._fastest(members)
        return self.weighed[key]

    def _exchange(self, members: Sequence[int]) -> object:
        """What the members are, which of their buffers are the same, and which others want."""
        kernels = [kernel for k in members if isinstance(kernel := self.kernels[k], Block)]
        kept = [
            tuple(r.source in wanted for r in kernel.refs)
            for kernel, wanted in zip(kernels, (self._kept(k, members) for k in members), strict=True)
        ]
        return structure(kernels), tuple(kept)

    def _producers(self, members: Sequence[int]) -> Iterator[int]:
        """Kernels with results that only members read, the nearest first; no member reads what others want, too."""
        read = {b for k in members for b in self._view(k).reads()} & self.temps
        early = {k for b in read for k in self.users[b]} - set(members)
        for k in sorted(early, reverse=True):
            view = self.views[k]
            if view is None or self.kernels[k] is None or k > members[-1] or view_carries(view):
                continue
            kept = self._kept(k, {k, *members})
            if (
                view.writes() & read
                and not kept & read
                and not self._lays_out(view, members)
                and self._may_move(k, members)
            ):
                yield k

    def _lays_out(self, view: KernelView, members: Sequence[int]) -> bool:
        """It copies an operand of a product, which would do so itself but for the long rows of the copy: tiles would cut them."""
        if any(map(op_cost, view.stages)):
            return False
        stages = ((self._view(k), s) for k in members for s in self._view(k).stages)
        return any(is_operand(v, s, b) for v, s in stages for b in view.writes() & {u.buffer for u in s.uses})

    def _kept(self, k: int, members: Collection[int]) -> frozenset[str]:
        """What a kernel writes that is a result of the program, or that kernels other than `members` read."""
        return frozenset(b for b in self._view(k).writes() if b not in self.temps or not self.users[b] <= set(members))

    def _may_move(self, k: int, members: Sequence[int]) -> bool:
        """No kernel between it and the last member writes what it reads, or touches what it writes."""
        between = (self.kernels[j] for j in range(k + 1, members[-1]) if j not in members)
        reads, writes = self._view(k).reads(), self._view(k).writes()
        return not in_the_way(between, reads, writes, self.wholes)

    def _seconds(self, members: Sequence[int]) -> float:
        return sum(self.alone_for(k).seconds for k in members)

    def _margin(self, producer: int) -> float:
        """How far what is exchanged would go: to memory, to the last cache, or no farther than the second."""
        view, caches = self._view(producer), self.machine.caches
        exchanged = sum(view.type_of(b).nbytes for b in view.writes())
        if not caches or exchanged > caches[-1].bytes:
            return ROOMY
        return SHOWING if exchanged > caches[:2][-1].bytes else MARGIN

    def alone_for(self, k: int) -> Forecast:
        """What kernel number `k` is expected to take by itself."""
        kernel = self.kernels[k]
        assert isinstance(kernel, Block)
        key = structural_hash(kernel)
        if key not in self.alone:
            self.alone[key] = self.by_itself(self._view(k))
        return self.alone[key]

    # --- what differs between machines ----------------------------------------------------------------

    def closed(self, made: Tiled) -> Block:
        """One kernel of them all."""
        return close_pipeline(made.pipeline())

    def by_itself(self, view: KernelView) -> Forecast:
        """What a kernel is expected to take."""
        return forecast(view, self.machine, self._cycles(view))

    def _cycles(self, view: KernelView) -> float | None:
        key = structural_hash(view.block or close_kernel(view))
        if key not in self.cycles:
            self.cycles[key] = fastest_cycles(view, self.target)
        return self.cycles[key]

    def unsaved(self, members: Sequence[int]) -> float:
        """Seconds that no tiles save."""
        return sum(self.alone_for(k).arithmetic for k in members)

    def timed(self, made: Tiled) -> Timed:
        """What it is expected to take as one kernel."""
        key = structural_hash(close_pipeline(made.pipeline()))
        if key not in self.together:
            cycles = ((v.name, self._cycles(v)) for v in made.views)
            known = {name: each for name, each in cycles if each is not None}
            boxes = {b.into for b in made.boxes}
            self.together[key] = forecast_tiled(made.views, boxes, self.machine, known)
        found = self.together[key]
        return Timed(found.seconds, made, moving=found.memory)

    # --- tiles ---------------------------------------------------------------------------------------

    def _fastest(self, members: Sequence[int]) -> Timed | None:
        """The members as one kernel, in the tiles that are expected to be the fastest."""
        views = [self._view(k) for k in members]
        kept = {k: self._kept(member, members) for k, member in enumerate(members[:-1])}
        boxes = {b: k for k, view in enumerate(views[:-1]) for b in view.writes() - kept[k]}
        made = [self.timed(tiles) for tiles in self.tiles(self.seen(views, boxes), boxes, kept)]
        limit = self.alike * min((m.seconds for m in made), default=0.0)
        alike = [m for m in made if m.seconds <= limit]
        return self.preferred(alike) if alike else None

    def seen(self, views: Sequence[KernelView], boxes: Collection[str]) -> Sequence[KernelView]:
        """The members as tiles want to see what they exchange."""
        del boxes
        return views

    def preferred(self, alike: Sequence[Timed]) -> Timed:
        """Of tiles that are expected to take as long: the smallest of those that move least, for not all of that is hidden."""
        least = LITTLE * min(m.moving for m in alike)
        return min((m for m in alike if m.moving <= least), key=lambda m: m.kernels.nbytes)

    def tiles(
        self, views: Sequence[KernelView], boxes: Mapping[str, int], kept: Mapping[int, Collection[str]]
    ) -> Iterator[Tiled]:
        """The members as one kernel, in tiles that may be fast."""
        yield from (tiled(views, boxes, cuts) for cuts in dict.fromkeys(self.cuts(views, boxes, kept)))

    def cuts(
        self, views: Sequence[KernelView], boxes: Mapping[str, int], kept: Mapping[int, Collection[str]]
    ) -> Iterator[tuple[TiledLoop, ...]]:
        """Tiles whose boxes stay in a cache: the first loops in pieces, all others whole."""
        ways = [(loop, found) for loop, found in _tileable(views, boxes) if all_once(views, loop, found, kept)]
        names = numbers(views, [loop for loop, _ in ways])
        wholes = [
            TiledLoop(views[-1].ranges[loop], views[-1].ranges[loop], name, found)
            for (loop, found), name in zip(ways, names, strict=True)
        ]
        near = list(self._within(views, boxes, wholes, self._rooms()))
        yield from near or self._within(views, boxes, wholes, self._far_room())

    def _within(
        self, views: Sequence[KernelView], boxes: Mapping[str, int], wholes: Sequence[TiledLoop], rooms: Iterable[int]
    ) -> Iterator[tuple[TiledLoop, ...]]:
        """Tiles whose boxes take so many bytes."""
        for room, tiles in product(rooms, {self.options.per_core * self.machine.cores, 1}):
            cuts: tuple[TiledLoop, ...] = ()
            for whole in wholes:
                private = private_bytes(views, boxes, (*cuts, whole))
                left = -(-tiles // prod(cut.index.range for cut in cuts))
                cuts = (*cuts, replace(whole, tile=_rows(whole, private, room, left)))
                if private_bytes(views, boxes, cuts) <= room:
                    yield cuts
                    break

    def _rooms(self) -> Iterator[int]:
        """Bytes of boxes to try, by the caches that hold them."""
        caches = self.machine.caches
        if len(caches) > 1:
            yield from (int(caches[1].bytes * self.options.share), caches[1].bytes // 4, caches[0].bytes)

    def _far_room(self) -> Iterator[int]:
        """Bytes of boxes that the last cache holds for each core: memory is farther yet."""
        caches = self.machine.caches
        if len(caches) > 2:
            yield int(caches[-1].bytes * self.options.far) // max(1, self.machine.cores)


def _rows(whole: TiledLoop, private: int, room: int, tiles: int) -> int:
    """Rows of a tile: as many as fit and as leave so many tiles, but not so few that most are computed twice.

    `private` are the bytes of the boxes when no rows are cut. Where nothing is computed twice, tiles divide the loop if they
    may: a last one that is cut short puts a condition on every row of all.
    """
    halo = max(w.high - w.low for w in whole.windows)
    fits = room * (whole.extent + halo) // max(1, private) - halo
    least = HALOS * halo if halo else 1
    rows = min(whole.extent, max(least, min(fits, -(-whole.extent // tiles))))
    even = next((n for n in range(rows, rows // 2, -1) if whole.extent % n == 0), rows)
    return rows if halo else even


def _tileable(views: Sequence[KernelView], boxes: Mapping[str, int]) -> Iterator[tuple[str, tuple[Window, ...]]]:
    """Loops of the last kernel along which all can be tiled, outermost first; memory is walked along the others.

    No contraction's results are computed twice.
    """
    last = views[-1]
    outputs = [u for u in last.uses if u.writes and not last.is_local(u.buffer)]
    for index in last.loops:
        inner = any(flat_stride(last, u, index.name) == 1 for u in outputs)
        if inner or not is_free(last, index.name):
            continue
        found = windows(views, boxes, index.name)
        if found is not None and not any(w.overlaps and view_is_heavy(v) for v, w in zip(views, found, strict=True)):
            yield index.name, found


def all_once(
    views: Sequence[KernelView], loop: str, found: Sequence[Window], kept: Mapping[int, Collection[str]]
) -> bool:
    """Tiles along a loop of the last kernel write every cell of what is kept of its producers once."""
    extent = views[-1].ranges[loop]
    for k, buffers in kept.items():
        view, window = views[k], found[k]
        once = window.low == 0 and window.high + 1 == window.step
        whole = window.step * extent >= view.ranges[window.loop]
        if buffers and not (once and whole and all(dimension(view, b, window.loop) is not None for b in buffers)):
            return False
    return True


def _off_tiles(kernel: Block, target: Target) -> KernelView | None:
    """Instructions on tile registers have plans of their own, which chains have not."""
    view = open_kernel(kernel)
    return None if view is None or is_on_tiles(view, target) else view
