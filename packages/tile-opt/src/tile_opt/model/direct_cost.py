"""The time of a contraction on a GPU that reads operands straight from global memory: no local memory, no barriers.

Arithmetic only, some tens of microseconds a tile. Four limits meet in a multiprocessor: instructions that start per
cycle, arithmetic, the path to its first cache in whole sectors, and the latency of what its items wait for when they are
few. Beside them stand the traffic of the caches behind, and everything once through memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from itertools import combinations
from math import prod

from tile_ir.frozen import frozen
from tile_ir.machine import Machine, Occupancy

from tile_opt.kernel.overlaps import left
from tile_opt.kernel.strides import flat_stride, row_starts
from tile_opt.kernel.view import Use
from tile_opt.model.coalescing import PER_TURN, sectors
from tile_opt.model.contraction import SECTOR, Contraction, Operand
from tile_opt.model.group_cost import ADDRESSES, SPARE, Cost, ItemTile, cache_rate, started
from tile_opt.model.group_cost import sectors as by_sectors

ACCESS = 2.5
"""Instructions around one access: its address, kept inside the buffer."""
GUARD = 3
"""Instructions that decide whether one point of a window counts for an item."""
START = 60
"""Instructions of an item before its first load and after its last store."""
EXPOSED = 0.35
"""Share of an access's latency that an item waits for again where loads of one step follow those of another."""
AROUND, SINGLE = 1.4, 1.6
"""Times as long that items take whose cells are a product of two operands' elements, where reduction loops stand around
that, and again where all of them do: 21 tiles of 5 convolutions (1.1 to 1.8, and 2.2)."""
NEAR = 4
"""Cells of an item along a loop, as most have where windows slide."""
COLD = 3.5e-9
"""Seconds until an instruction has come from memory where a kernel begins."""
APART, CROWD = 0.1, 6.0
"""Share of the lesser of arithmetic and traffic that is not hidden behind the other, and sub-groups that hide the rest."""


@frozen
class DirectTile(ItemTile):
    """A tile whose items are in the order of memory, the last loop the fastest."""

    pieces: Mapping[str, int] = field(default_factory=dict[str, int])
    """Loops along which items take turns, in pieces of so many cells; an item's other cells are neighbours."""
    vector: str = ""
    lanes: int = 1
    whole: int = 1
    """Elements along `vector` that are loaded and stored at once, though each cell has arithmetic of its own."""
    outer: tuple[str, ...] = ()
    """Reduction loops around the windows, one iteration at a time; the others are straight-line code."""
    deep: int = 1
    """Iterations of the last of these that are straight-line code together."""

    def step(self, loop: str) -> int:
        """Iterations from one item to the next along a loop."""
        return self.pieces.get(loop, 0) or self.each.get(loop, 1)


class DirectCost:
    """Costs of tiles of one contraction on one machine."""

    def __init__(self, work: Contraction, machine: Machine) -> None:
        self.work, self.machine = work, machine
        self.occupancy = machine.occupancy or Occupancy()
        self.rate, self.issue = started(machine)
        self.guarded = bool(work.main.constraints)

    @property
    def out(self) -> Use:
        """Where the first result goes."""
        return self.work.results[0]

    @cached_property
    def memory(self) -> float:
        """Seconds of everything once through the device's memory."""
        everything = self.work.shared | self.work.own
        bytes = sum(o.distinct(everything) * o.width for o in self.work.operands)
        bytes += prod(self.work.shared.values()) * self._stored
        return bytes / (self.machine.memory.all_cores.read * 1e9)

    @cached_property
    def _stored(self) -> int:
        return self.work.view.type_of(self.out.buffer).dtype.bytes

    def inner(self, tile: DirectTile) -> dict[str, int]:
        """Reduction loops that are straight-line code."""
        found = {n: e for n, e in self.work.own.items() if n not in tile.outer}
        return found | ({tile.outer[-1]: tile.deep} if tile.deep > 1 else {})

    @property
    def least(self) -> float:
        """Operations of a cell, in those of one point, where a few neighbours share theirs."""
        return prod(self.work.own.values()) * left(
            self.work.main, dict.fromkeys(self.work.shared, NEAR) | self.work.own
        )

    def points(self, tile: DirectTile) -> float:
        """Operations of an item's straight-line code, in those of one point: neighbouring windows share theirs."""
        inner = dict(tile.each) | self.inner(tile)
        straight = {n: 1 if n == tile.vector and tile.lanes > 1 else k for n, k in inner.items()}
        return prod(inner.values()) * left(self.work.main, straight)

    def registers(self, tile: DirectTile) -> int:
        """32-bit registers of an item: its cells, and the elements under way."""
        counts = dict(tile.each) | self.inner(tile)
        held = sum(o.distinct(counts) * max(1, o.kept.bytes // 4) for o in self.work.operands)
        return tile.cells * self.work.words + held + ADDRESSES

    def cost(self, tile: DirectTile) -> Cost | None:
        """None where the tile does not fit."""
        registers, occ = self.registers(tile), self.occupancy
        subgroups = -(-tile.team // occ.subgroup)
        resident = min(
            occ.groups, occ.items // (subgroups * occ.subgroup),
            occ.registers // (-(-registers // 8) * 8 * subgroups * occ.subgroup),
        )  # fmt: skip
        if registers > occ.item_registers - SPARE or resident < 1:
            return None
        groups = prod(-(-e // tile.size(n)) for n, e in self.work.shared.items())
        cycles, own = self._cycles(tile, subgroups)
        mine = -(-groups // self.machine.cores)
        busy = max(mine * cycles, -(-mine // resident) * own) * self._hindered(tile)
        clock = self.machine.clock_ghz * 1e9
        parts = {
            "arithmetic": (busy + self._latency) / clock,
            "cache": self._traffic(tile) * groups / cache_rate(self.machine),
            "memory": self.memory,
        }
        limit = max(parts, key=lambda n: parts[n])
        busy_for, moved = parts["arithmetic"], max(parts["cache"], parts["memory"])
        apart = APART + CROWD / (resident * subgroups)
        seconds = (
            max(busy_for, moved) + apart * min(busy_for, moved) + COLD * self._code(tile) + self.machine.launch.kernel
        )
        peak = self.machine.cores * self.rate * occ.subgroup * clock
        share = self.work.points * self.work.slots / peak / seconds
        return Cost(seconds, share, limit, registers, resident, groups, parts)

    def _hindered(self, tile: DirectTile) -> float:
        """How much longer items take by loops around their windows, as measured."""
        cells = [{n for n in o.loops if tile.each.get(n, 1) > 1} for o in self.work.operands]
        if not tile.outer or not any(a - b and b - a for a, b in combinations(cells, 2)):
            return 1.0
        return AROUND * (1.0 if self.inner(tile) else SINGLE)

    @property
    def _latency(self) -> float:
        """Cycles of an access to memory."""
        return self.machine.memory.latency * self.machine.clock_ghz

    def _cycles(self, tile: DirectTile, subgroups: int) -> tuple[float, float]:
        """Cycles of a group on a multiprocessor: its share of what others need too, and what it takes alone."""
        inner = self.inner(tile)
        repeats = prod(self.work.own[n] for n in tile.outer) / tile.deep
        counts = dict(tile.each) | inner
        points = self.points(tile)
        loads = turns = 0.0
        for o in self.work.operands:
            wide = max(tile.lanes, tile.whole) if tile.vector and self._stride(o.use, tile.vector) == 1 else 1
            each = self._loads(o, counts, wide, tile)
            loads += each
            turns += each * self._turns(o.use, o.width * wide, tile)
        width = max(tile.lanes, tile.whole)
        stores = tile.cells / width
        guards = GUARD * prod(inner.values()) if self.guarded else 0
        arithmetic = repeats * points * self.work.slots
        issued = arithmetic + repeats * (loads * (1 + ACCESS) + guards) + stores * (1 + ACCESS) + START
        path = repeats * turns + stores * self._turns(self.out, self._stored * width, tile)
        together = subgroups * max(arithmetic / self.rate, issued / self.issue, path)
        alone = issued + path + self._latency * (1 + EXPOSED * (repeats - 1))
        return together, alone

    @staticmethod
    def _loads(operand: Operand, counts: Mapping[str, int], wide: int, tile: DirectTile) -> float:
        """Loads of an item; of whole vectors around a window the first and the last one are read in part."""
        found = operand.distinct(counts)
        if tile.whole == 1 or wide == 1:
            return found / wide
        row = operand.row(counts)
        return found / row * -(-(row + wide - 1) // wide)

    def _code(self, tile: DirectTile) -> float:
        """Instructions of the kernel."""
        counts = dict(tile.each) | self.inner(tile)
        points = self.points(tile) * self.work.slots
        moved = sum(o.distinct(counts) for o in self.work.operands) + tile.cells
        return START + (points + moved * (1 + ACCESS)) / tile.lanes

    def _stride(self, use: Use, loop: str) -> int:
        return flat_stride(self.work.view, use, loop)

    def _turns(self, use: Use, bytes: int, tile: DirectTile) -> float:
        """Cycles in which one access of a sub-group takes the path to memory."""
        width = self.work.view.type_of(use.buffer).dtype.bytes
        steps = [
            (n, c, self._stride(use, n) * tile.step(n) * width) for n, c in reversed(list(tile.items.items())) if c > 1
        ]
        places = [0]
        for _, count, step in steps:
            wanted = -(-self.occupancy.subgroup // len(places))
            places = [p + k * step for k in range(min(count, wanted)) for p in places]
        found = sectors(tuple(places[: self.occupancy.subgroup]), bytes, SECTOR)
        return max(1.0, len(found) * SECTOR / PER_TURN)

    def _traffic(self, tile: DirectTile) -> float:
        """Bytes that one group fetches and stores, by whole sectors."""
        group = {n: tile.size(n) for n in self.work.shared} | self.work.own
        read = sum(by_sectors(o.distinct(group), o.row(group), o.width) for o in self.work.operands)
        return read + prod(tile.size(n) for n in self.work.shared) * self._stored


def slides_along(work: Contraction, use: Use, loop: str, lanes: int) -> bool:
    """A window slides along `loop`, in rows of whole vectors."""
    view = work.view
    form = [f for f in use.forms if loop in f.names]
    strides = view.type_of(use.buffer).strides
    others = {n for n in work.shared if n != loop and flat_stride(view, use, n)}
    whole = all(s % lanes == 0 for s in strides if s != 1) and all(
        flat_stride(view, use, n) % lanes == 0 for n in others
    )
    return flat_stride(view, use, loop) == 1 and len(form) == 1 and form[0].coefficient(loop) == 1 and whole


def vector_fits(work: Contraction, use: Use, loop: str, lanes: int) -> bool:
    """Neighbours along `loop` are one aligned piece of memory, or one element."""
    view = work.view
    stride = flat_stride(view, use, loop)
    if stride == 0:
        return True
    form = [f for f in use.forms if loop in f.names]
    whole = all(s % lanes == 0 for s in view.type_of(use.buffer).strides if s != 1)
    starts = row_starts(view, use, (n for n in (*work.shared, *work.own) if n != loop))
    return stride == 1 and len(form) == 1 and whole and starts % lanes == 0
