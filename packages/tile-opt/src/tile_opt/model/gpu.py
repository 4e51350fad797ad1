"""Schedules for processors with many work items and local memory: sizes of group tiles and item tiles.

Sources: facts "gpu-codegen" sections 2, 3 and 7 (which tiles measured best, and why).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from tile_ir.ops import Aggregation
from tile_ir.stripe.nodes import Op
from tile_ir.target import HardwareSettings

from tile_opt.kernel.segments import interior
from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView, Stage
from tile_opt.kernel.work import is_heavy, merged_use
from tile_opt.model.candidate import Candidate
from tile_opt.plan.gpu_nest import local_bytes
from tile_opt.plan.plans import GroupTile, StagePlan
from tile_opt.plan.staging import LANES


@dataclass(frozen=True, slots=True)
class ItemTile:
    """Items along rows and columns and the outputs of each, with what was measured of it (facts "gpu-codegen" 2)."""

    rows: int
    tall: int
    columns: int
    wide: int
    rate: float
    """Share of peak when every multiprocessor is busy."""
    resident: int
    """Groups that a multiprocessor holds at once."""


ITEM_TILES = (
    ItemTile(8, 16, 16, 8, 1.0, 2),
    ItemTile(8, 8, 16, 8, 0.9, 3),
    ItemTile(8, 8, 32, 4, 0.8, 2),
    ItemTile(8, 8, 16, 4, 0.76, 4),
    ItemTile(8, 4, 16, 4, 0.55, 6),
)


@dataclass(frozen=True, slots=True)
class GpuModel:
    """Chooses a StagePlan for a kernel view; None where staging does not apply."""

    settings: HardwareSettings

    def plan(self, view: KernelView) -> StagePlan | None:
        """A staged schedule for a sum of products with reuse; its edges must not fall on the contiguous loop.

        Its steps are as deep as local memory allows: a large window, whole in each of them, may leave no room at all.
        """
        main = next((s for s in view.stages if s.loops and is_heavy(view, s)), None)
        if main is None or self.settings.use_global or not _sum_of_products(view, main):
            return None
        contiguous = _contiguous(view)
        reduction = _reduction(view, main)
        if contiguous is None or reduction is None:
            return None
        if interior(contiguous, main.constraints, view.ranges) != (0, view.ranges[contiguous]):
            return None
        window = tuple(i.name for i in main.loops if i.name != reduction)
        tiles = self._tiles(view, main, contiguous, window)
        if tiles is None:
            return None
        deep = max(t.each for t in tiles) < 16
        most = 4 if window else 16 if deep else 8
        plans = (StagePlan(tiles, reduction, step, window) for step in _steps(view.ranges[reduction], most))
        return next((p for p in plans if local_bytes(view, p) <= self.settings.max_mem), None)

    def _tiles(
        self, view: KernelView, main: Stage, contiguous: str, window: tuple[str, ...]
    ) -> tuple[GroupTile, ...] | None:
        extents = view.ranges
        across = GroupTile(contiguous, *_split(extents[contiguous], 16, 8), interleaved=True)
        others = [i.name for i in view.loops if i.name != contiguous]
        reused = [n for n in others if not _in_all(main, n)]
        if not reused or across.each < LANES:
            return None
        if window:
            return self._windowed(extents, across, reused)
        return self._square(extents, max(reused, key=lambda n: (extents[n], n)), contiguous, others)

    def _square(
        self, extents: dict[str, int], rows: str, contiguous: str, others: list[str]
    ) -> tuple[GroupTile, ...] | None:
        """The item tile whose predicted share of peak, idle multiprocessors counted, is best."""
        best: tuple[float, tuple[GroupTile, ...] | None] = (0.0, None)
        for share, tiles in self._squares(extents, rows, contiguous, others):
            if share > best[0]:
                best = (share, tiles)
        return best[1]

    def _squares(
        self, extents: dict[str, int], rows: str, contiguous: str, others: list[str]
    ) -> Iterator[tuple[float, tuple[GroupTile, GroupTile]]]:
        """(predicted share of peak, tiles) of every item tile that fits the loops and the group."""
        beside = prod(extents[n] for n in others if n != rows)
        for shape in ITEM_TILES:
            across = GroupTile(contiguous, *_split(extents[contiguous], shape.columns, shape.wide), interleaved=True)
            down = GroupTile(rows, *_split(extents[rows], shape.rows, shape.tall), interleaved=True)
            items = across.items * down.items
            if min(across.each, down.each) < LANES or items > self.settings.threads:
                continue
            groups = beside * -(-extents[contiguous] // across.size) * -(-extents[rows] // down.size)
            slots = max(1, self.settings.cores) * shape.resident
            yield shape.rate * groups / (-(-groups // slots) * slots), (down, across)

    def candidates(self, view: KernelView, plan: StagePlan) -> tuple[Candidate, ...]:
        """The group tiles that were weighed against those of `plan`; none where the shape alone decides."""
        if plan.window or len(plan.tiles) != 2:
            return ()
        down, across = plan.tiles
        others = [i.name for i in view.loops if i.name != across.loop]
        found = self._squares(view.ranges, down.loop, across.loop, others)
        return tuple(
            Candidate(
                tuple((t.loop, t.size) for t in tiles),
                share,
                note=" by ".join(f"{t.items} items x {t.each}" for t in tiles),
            )
            for share, tiles in found
        )

    def _windowed(self, extents: dict[str, int], across: GroupTile, reused: list[str]) -> tuple[GroupTile, ...] | None:
        """A convolution: an item keeps a run along the innermost spatial loop, items spread over the next one."""
        if len(reused) < 2:
            return None
        run, wide = reused[-1], reused[-2]
        each = _largest_divisor(extents[run], 16)
        items = _largest_divisor(extents[wide], max(1, self.settings.threads // 2 // across.items))
        return GroupTile(wide, items, 1), GroupTile(run, 1, each), across


def _sum_of_products(view: KernelView, stage: Stage) -> bool:
    """Adds one product of two loads of a 4-byte float per iteration, into a cell of the kernel's own."""
    out = merged_use(stage)
    if out is None or not view.is_local(out.buffer):
        return False
    ops = [s for s in stage.body if isinstance(s, Op)]
    return out.agg is Aggregation.SUM and len(ops) == 1 and ops[0].name == "mul" and ops[0].dtype.bytes == 4


def _contiguous(view: KernelView) -> str | None:
    outs = [u for s in view.stages for u in s.uses if u.writes and not view.is_local(u.buffer)]
    for loop in reversed(view.loops):
        if all(flat_stride(view, u, loop.name) == 1 for u in outs):
            return loop.name
    return None


def _reduction(view: KernelView, main: Stage) -> str | None:
    """The longest own loop that no constraint mentions."""
    free = [i for i in main.loops if not any(i.name in c.names for c in main.constraints)]
    return max(free, key=lambda i: (i.range, i.name)).name if free else None


def _in_all(stage: Stage, name: str) -> bool:
    return all(name in {n for f in u.forms for n in f.names} for u in stage.uses if u.reads and not u.writes)


def _split(extent: int, items: int, each: int) -> tuple[int, int]:
    """(items, iterations each), shrunk until the tile is no larger than the loop."""
    while each > LANES and items * each > extent:
        each //= 2
    while items > 1 and items * each > extent:
        items //= 2
    return items, each


def _largest_divisor(extent: int, most: int) -> int:
    return max(d for d in range(1, most + 1) if extent % d == 0)


def _steps(extent: int, most: int) -> Iterator[int]:
    """Divisors of the extent, the largest first."""
    return (step for step in range(most, 0, -1) if extent % step == 0)
