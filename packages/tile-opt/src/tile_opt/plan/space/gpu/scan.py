"""Plans for ordered loops whose carried value takes in elements: the items of a group share the cells of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tile_ir.frozen import frozen
from tile_ir.powers import power_of_two
from tile_ir.stripe.nodes import Bind, Scope
from tile_ir.target import Target

from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.model.contraction import SECTOR
from tile_opt.plan.plan import Across, Cover, Level, Plan, Reduction, Staging
from tile_opt.plan.steps.groups.carries import moving_uses, shareable

LEAST = 64
"""Cells of a row from which items share it where rows are the neighbours in memory."""
LEAST_ALONG = 8
"""Cells of neighbours from which a row goes through local memory: items that each walk one read all of a line again for every cell."""
RUN = 32
"""Cells of a run that goes through local memory, and items that copy it side by side."""
STRAIGHT_RUN = 16
"""Cells of a run that an item reads from where they are."""
GROUP = 128
"""Items of a group whose rows go through local memory."""
FULL = 0.6
"""Share of a row's tiles that is cells of it, from which longer tiles are better."""
WIDEST_GROUP = 512
"""Items of a group that reads few rows from where they are: larger ones have no registers to keep their cells in."""
NEIGHBOURS = 32
"""Rows of a group that are neighbours in memory, where there are groups for every compute unit; twice as many where two are left for each."""
BUSY_UNITS = 0.9
"""Groups for each compute unit, below which narrower ones are better."""
BUSY = 1024
"""Rows that keep a compute unit busy, an item each."""


def plans(view: KernelView, target: Target) -> Iterator[Plan]:
    """Legal plans, best first."""
    scan = shareable(view)
    if scan is None:
        return
    moving, loop = moving_uses(view, scan), scan.loops[0]
    if all(flat_stride(view, u, loop.name) == 1 for u in moving):
        yield from _Along(view, scan, target).plans(moving) if loop.range >= LEAST_ALONG else ()
    elif loop.range >= LEAST:
        yield from _across(view, scan, target, moving)


@frozen
class _Along:
    """Rows of neighbours in memory."""

    view: KernelView
    scan: Stage
    target: Target

    def plans(self, moving: tuple[Use, ...]) -> Iterator[Plan]:
        """Fewer items where the first have no room in local memory."""
        width = sum(self.view.type_of(u.buffer).dtype.bytes for u in moving)
        items = min(GROUP, self.target.settings.threads)
        while items >= RUN:
            if items * (self._run + 4) * width + 8 * items <= self.target.settings.max_mem:
                yield self._plan(moving, items)
            items //= 2

    def _plan(self, moving: tuple[Use, ...], items: int) -> Plan:
        loop = self.scan.loops[0]
        run = self._run
        runs = self._runs(items) if self.view.loops else max(run, self._runs(items))
        rows = items // runs if self.view.loops else 1
        row = max(self.view.loops, key=lambda i: i.range).name if self.view.loops else ""
        stagings = tuple(
            Staging(u.buffer, 1, "LOCAL", scope=Scope.GROUP, pad=max(1, 4 // self.view.type_of(u.buffer).dtype.bytes))
            for u in moving
        )
        reason = f"{runs} items share a row, {runs * run} cells at a time through local memory"
        return _made(self.view, loop.name, row, (rows, runs, run), stagings, reason)

    @property
    def _run(self) -> int:
        """Cells of a run: a short row is one."""
        return min(RUN, power_of_two(self.scan.loops[0].range))

    def _runs(self, items: int) -> int:
        """Runs of a row: all of it where there are items enough, else as many as leave little of the last tile over."""
        extent, run = self.scan.loops[0].range, self._run
        found = [n for n in (items >> k for k in range(items.bit_length())) if n * run < 2 * extent]
        if found[0] * run >= extent:
            return found[0]
        return max(found, key=lambda n: min(FULL, extent / (-(-extent // (n * run)) * n * run)))


def _across(view: KernelView, scan: Stage, target: Target, moving: tuple[Use, ...]) -> Iterator[Plan]:
    """Rows that lie side by side in memory, as long as they are too few for an item each."""
    beside = [i for i in view.loops if all(abs(flat_stride(view, u, i.name)) == 1 for u in moving)]
    count = prod(i.range for i in view.loops)
    if not beside or count >= BUSY * target.settings.cores:
        return
    row, most = beside[0], target.settings.threads
    many = count >= 4 * BUSY_UNITS * target.settings.cores * NEIGHBOURS
    near = 2 * NEIGHBOURS if many else NEIGHBOURS
    few = 2 * target.settings.cores * near
    if count < few and target.machine.occupancy:
        most = min(WIDEST_GROUP, target.machine.occupancy.group_items)
    rows = min(near, power_of_two(row.range))
    least = SECTOR // min(view.type_of(u.buffer).dtype.bytes for u in moving)
    while rows > least and count < BUSY_UNITS * target.settings.cores * rows:
        rows //= 2
    runs = max(1, most // rows)
    while runs > 1 and runs * STRAIGHT_RUN >= 2 * scan.loops[0].range:
        runs //= 2
    if runs > 1:
        reason = f"{runs} items share each of {rows} rows side by side"
        yield _made(view, scan.loops[0].name, row.name, (rows, runs, STRAIGHT_RUN), (), reason)


def _made(
    view: KernelView, cell: str, row: str, shares: tuple[int, int, int], stagings: tuple[Staging, ...], reason: str
) -> Plan:
    rows, runs, length = shares
    grid = Level(Bind.GRID, tuple(Cover(i.name, rows if i.name == row else 1) for i in view.loops))
    group = Level(Bind.GROUP, (*((Cover(row, 1),) if row else ()), Cover(cell, length)))
    serial = Level(Bind.NONE, (Cover(cell, runs * length),), ordered=True)
    return Plan((grid, serial, group), stagings, (Reduction(cell, Across.SCAN, runs),), reason=reason)
