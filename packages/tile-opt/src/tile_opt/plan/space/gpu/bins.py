"""Plans for scatters into so few cells that a group has them all in its memory."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tile_ir.powers import power_of_two
from tile_ir.stripe.nodes import Bind, Scope
from tile_ir.target import Target

from tile_opt.kernel.view import KernelView
from tile_opt.model.contraction import SECTOR
from tile_opt.plan.builders.group_bins import Scattered
from tile_opt.plan.plan import Cover, Level, Plan, Staging
from tile_opt.plan.space.facts import Facts
from tile_opt.plan.space.gpu.row_shares import FEW_STEPS, IDLE

NEIGHBOURS = 64
"""Bytes of a row that a group takes: with fewer cells it merges fewer."""
EACH = 4
"""Values of a group for each of its cells, at least."""


def most_local(target: Target) -> int:
    """Bytes of cells that a group may have."""
    return max(target.settings.max_mem, target.settings.static_local_bytes)


def plans(view: KernelView, target: Target) -> Iterator[Plan]:
    """The plan, where it applies."""
    found = Scattered.of(view)
    if found is None or target.settings.use_global or not target.machine.is_gpu:
        return
    rows = [i.name for i in view.loops if i.name not in found.shown]
    if rows:
        plan = _Bins(view, target, found, rows).plan()
        if plan is not None:
            yield plan


class _Bins:
    def __init__(self, view: KernelView, target: Target, found: Scattered, rows: list[str]) -> None:
        self.view, self.target, self.found, self.rows = view, target, found, rows
        self.facts = Facts(view)
        self.most = most_local(target)
        self.bytes = view.type_of(found.use.buffer).dtype.bytes

    def plan(self) -> Plan | None:
        """None where cells do not fit."""
        wide, tile = self._shown()
        cells = prod(self.found.cells(tile))
        if cells * self.bytes > self.most or self._is_torn(wide, tile):
            return None
        row = max(self.rows, key=self.facts.extent)
        threads = self._threads(tile)
        lanes = 1 if wide else self.facts.lanes(row, 4 * self.target.settings.vec_size)
        count = threads // max(1, tile[wide]) if wide else threads
        span = count * lanes
        groups = self._groups(cells, threads, tile, span, row)
        steps = -(-self.facts.extent(row) // (groups * span))
        each = min(range(min(steps, FEW_STEPS), 0, -1), key=lambda n: max(-(-steps // n) * n, steps * (1 + IDLE)))
        steps = -(-steps // each) * each
        grid = (
            *(Cover(n, tile[n]) for n in self.found.shown),
            *(Cover(n, 1) for n in self.rows if n != row),
            Cover(row, steps * span),
        )
        deal = (Cover(row, steps * lanes, lanes), *((Cover(wide, 1),) if wide else ()))
        levels = [Level(Bind.GRID, grid), Level(Bind.GROUP, deal)]
        levels += [Level(Bind.NONE, (Cover(row, each * lanes),))] if steps > each else []
        levels += [Level(Bind.UNROLL, (Cover(row, lanes),))] if each > 1 else []
        levels += [Level(Bind.VECTOR, (Cover(row, 1),), lanes=lanes)] if lanes > 1 else []
        staging = Staging(self.found.use.buffer, 0, "LOCAL", scope=Scope.GROUP)
        return Plan(tuple(levels), (staging,), reason=f"{cells} cells in local memory")

    def _shown(self) -> tuple[str, dict[str, int]]:
        """The loop of the result along which neighbours read neighbours, if there is one; a group's iterations of each loop."""
        tile = dict.fromkeys(self.facts.loops, 1)
        along = self.facts.along
        if along not in self.found.shown:
            return "", tile
        room = self.most // (self.bytes * prod(self.found.cells(tile)))
        read = max(self.facts.bytes(u) for _, u in self.facts.accesses if u.reads and self.facts.stride(u, along) == 1)
        size = min(power_of_two(self.facts.extent(along)), NEIGHBOURS // read, power_of_two(room // 2 + 1))
        return along, {**tile, along: size}

    def _is_torn(self, wide: str, tile: dict[str, int]) -> bool:
        """A group would have a part of what memory hands out together."""
        return bool(wide) and tile[wide] < self.facts.extent(wide) and tile[wide] * self.bytes < SECTOR

    def _threads(self, tile: dict[str, int]) -> int:
        """As many as a group may have, so that few of them merge; fewer where values are few."""
        occupancy = self.target.machine.occupancy
        most = max(self.target.settings.threads, occupancy.group_items if occupancy else 0)
        values = prod(tile[n] if n in self.found.shown else self.facts.extent(n) for n in self.facts.loops)
        while most > self.target.settings.threads and values < most * EACH * self.target.settings.cores:
            most //= 2
        return most

    def _groups(self, cells: int, threads: int, tile: dict[str, int], span: int, row: str) -> int:
        """Groups that share the rows."""
        occupancy, machine = self.target.machine.occupancy, self.target.machine
        at_once = machine.cores * max(1, (occupancy.items if occupancy else threads) // threads)
        others = prod(-(-self.facts.extent(n) // tile[n]) for n in self.facts.loops if n != row)
        wanted = max(1, at_once // others)
        values = self.facts.extent(row) * prod(tile[n] for n in self.found.shown)
        return max(1, min(wanted, values // (EACH * cells), -(-self.facts.extent(row) // span)))
