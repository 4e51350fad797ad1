"""What a tile of a contraction costs on the multiprocessors of a machine, from the machine's own numbers.

Arithmetic only, a few microseconds a tile: it ranks the tiles of a space before the best few are built and estimated.
Two limits meet in a multiprocessor: instructions that start per cycle, and words that local memory delivers to the
lanes, in which every item loads its own fragments even where lanes load the same. Beside them stand barriers and
latency, which other groups of the multiprocessor hide, and the traffic of the caches behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, gcd, prod

from tile_ir.machine import LocalMemory, Machine, Occupancy

from tile_opt.model.contraction import SECTOR, Contraction, Counts, Operand

BODY = 1024
"""Instructions of arithmetic in straight-line code."""
SPARE = 4
"""Registers of an item that stay free: what the compiler adds must not spill."""
ADDRESSES = 22
"""Registers for addresses, counters and what is under way."""
SHARPNESS = 4
"""How little the two limits disturb each other while one of them is far from reached."""
SUSTAINED = 0.9
"""Share of issue slots that long straight-line code fills: register banks and dispatch take the rest."""
APART = 0.5
"""Share of the lesser limits' time that is not hidden behind the greatest by a group alone on its multiprocessor."""
COPY = 5
"""Instructions around one access of a copy: its address, load and store."""
LOOP = 20
"""Instructions' worth of time between one straight-line body and the next: the first loads of a body wait."""
MEETING = 0.3
"""Share of a barrier's cycles in which other groups find nothing to do either."""
DRAIN = 40
"""Cycles around a barrier in which some sub-groups have finished and others have not begun."""


def sectors(elements: int, row: int, width: int, unit: int = SECTOR) -> float:
    """Bytes of the sectors that hold so many elements in rows of neighbours: those at the ends are fetched for a part."""
    whole = row * width
    ends = 0 if whole % unit == 0 else unit - width
    return elements * width * (whole + ends) / whole


@dataclass(frozen=True)
class Tile:
    """A group's tile: items and iterations of each for the shared loops, and how the reduction goes in steps."""

    items: dict[str, int]
    each: dict[str, int]
    vector: str
    """The loop whose iterations are the lanes of an item's registers; "" for none."""
    lanes: int
    stepped: str
    deep: int
    whole: tuple[str, ...] = ()
    """Reduction loops that run completely in each step; the others are around the steps, one iteration at a time."""
    staged: bool = True
    ahead: bool = True
    versions: int = 1
    ways: int = 1
    """Groups that share the reduction of each output tile."""
    split: str = ""
    """The reduction loop that they share."""
    straight: int = BODY
    """Instructions of arithmetic in straight-line code, at most."""

    @property
    def count(self) -> int:
        return prod(self.items.values())

    @property
    def cells(self) -> int:
        return prod(self.each.values())

    def size(self, loop: str) -> int:
        """Iterations of a shared loop in a group's tile."""
        return self.items.get(loop, 1) * self.each.get(loop, 1)


@dataclass(frozen=True)
class Cost:
    """Seconds of a tile, and what they come from."""

    seconds: float
    share: float
    """Arithmetic over the machine's peak."""
    limit: str
    """What bounds it: "arithmetic", "local memory", "cache", "memory" or "latency"."""
    registers: int
    resident: int
    groups: int
    parts: dict[str, float] = field(default_factory=dict[str, float])


class GroupCost:
    """Costs of tiles of one contraction on one machine."""

    def __init__(self, work: Contraction, machine: Machine, local_bytes: int) -> None:
        self.work, self.machine = work, machine
        self.local_bytes = local_bytes
        """Bytes of local memory that one group may declare."""
        self.occupancy = machine.occupancy or Occupancy()
        self.local = machine.local or LocalMemory()
        self.own = work.own
        ports = machine.ports
        self.rate = max(0.25, ports.fma if ports.fma >= 1 else ports.fma * self.occupancy.slots)
        self.issue = max(self.rate, min(ports.issue, self.occupancy.slots))
        self.delivered = self.local.banks * self.local.bank_bytes / 4 / self.occupancy.subgroup
        self.memory = self._memory_seconds()
        self.stored = min(4 * work.words, 4)

    def _memory_seconds(self) -> float:
        """Everything once through the device's memory."""
        everything = self.work.shared | self.own
        bytes = sum(o.box(everything) * o.width for o in self.work.operands)
        bytes += prod(self.work.shared.values()) * self.work.words * 4
        return bytes / (self.machine.memory.all_cores.read * 1e9)

    # --- parts of a tile --------------------------------------------------------------------------------

    def inner(self, tile: Tile) -> dict[str, int]:
        """Iterations of the reduction loops within one step."""
        if not tile.staged:
            return dict(self.own)
        return {tile.stepped: tile.deep} | {n: self.own[n] for n in tile.whole}

    def unrolled(self, tile: Tile) -> dict[str, int]:
        """Iterations of reduction loops in straight-line code, innermost last: windows that slide, then the step.

        Of a step that is too long for all of it, what divides it.
        """
        inner = self.inner(tile)
        slides = [p for n in tile.each if tile.each[n] > 1 for p in self.work.partners(n)]
        order = sorted(inner, key=lambda n: (n not in slides, n != tile.stepped, inner[n]))
        room = tile.straight / max(1.0, tile.cells * self.work.slots)
        found: dict[str, int] = {}
        for name in order:
            count = next(n for n in (inner[name], 8, 4, 2, 1) if n == 1 or (n <= room and inner[name] % n == 0))
            if count == inner[name] or (count > 1 and name == tile.stepped):
                found = {name: count} | found
                room /= count
        return found

    def box_bytes(self, tile: Tile) -> int:
        """Bytes of local memory, without padding."""
        counts = self._group(tile)
        return tile.versions * sum(o.box(counts) * o.kept.bytes for o in self.work.operands)

    def _group(self, tile: Tile) -> dict[str, int]:
        return {n: tile.size(n) for n in self.work.shared} | self.inner(tile)

    def registers(self, tile: Tile, body: Counts) -> int:
        """32-bit registers of an item."""
        # Of what is loaded, the next fragments wait beside those in use: a window's along its innermost loop.
        last = [n for n in body if n != tile.stepped][-1:]
        windows = (dict(body), {n: body[n] for n in last})
        whole, near = (
            sum(o.distinct(tile.each | w) * max(1, o.kept.bytes // 4) for o in self.work.operands) for w in windows
        )
        fragments = min(whole, 2 * near)
        held = 0
        if tile.staged:
            group = self._group(tile)
            held = sum(ceil(o.box(group) / tile.count) * max(1, o.kept.bytes // 4) for o in self.work.operands)
        return tile.cells * self.work.words + fragments + held + ADDRESSES

    def resident(self, tile: Tile, registers: int) -> int:
        """Groups that a multiprocessor holds at once."""
        occ = self.occupancy
        items = -(-tile.count // occ.subgroup) * occ.subgroup
        most = min(occ.groups, occ.items // items, occ.registers // (-(-registers // 8) * 8 * items))
        if tile.staged:
            most = min(most, self.local.bytes // (self.box_bytes(tile) + 1024))
        return max(0, most)

    # --- the cost ---------------------------------------------------------------------------------------

    def cost(self, tile: Tile) -> Cost | None:
        """None where the tile does not fit."""
        inner, body = self.inner(tile), self.unrolled(tile)
        registers = self.registers(tile, body)
        resident = self.resident(tile, registers)
        if registers > self.occupancy.item_registers - SPARE or not resident:
            return None
        if tile.staged and self.box_bytes(tile) > self.local_bytes:
            return None
        tiles = prod(-(-e // tile.size(n)) for n, e in self.work.shared.items())
        groups = tiles * tile.ways
        steps = self._steps(tile)
        arithmetic, delivery, stall = self._step(tile, inner, body)
        cycles = self._on_one_core(-(-groups // self.machine.cores), resident, tile, steps, arithmetic, delivery, stall)
        parts = {
            "arithmetic": cycles / (self.machine.clock_ghz * 1e9),
            "cache": self._traffic(tile, steps) * groups / self._cache_rate(),
            "memory": self.memory,
        }
        combine = 0.0
        if tile.ways > 1:
            moved = (2 * tile.ways + 1) * prod(self.work.shared.values()) * self.work.words * 4
            combine = moved / (self.machine.memory.all_cores.read * 1e9) + 2 * self.machine.launch.kernel
        limit = max(parts, key=lambda n: parts[n])
        beside = (sum(parts.values()) - parts[limit]) * APART / resident
        seconds = parts[limit] + beside + combine + self.machine.launch.kernel
        peak = self.machine.cores * self.rate * self.occupancy.subgroup * self.machine.clock_ghz * 1e9
        share = self.work.points * self.work.slots / peak / seconds
        if limit == "arithmetic" and delivery > arithmetic:
            limit = "local memory"
        return Cost(seconds, share, limit, registers, resident, groups, parts | {"combine": combine})

    def _steps(self, tile: Tile) -> float:
        """Steps of one group, the outer reduction loops included."""
        if not tile.staged:
            return 1.0 / tile.ways
        outer = prod(e for n, e in self.own.items() if n != tile.stepped and n not in tile.whole)
        return outer * (self.own[tile.stepped] / tile.deep) / tile.ways

    def _step(self, tile: Tile, inner: Counts, body: Counts) -> tuple[float, float, float]:
        """Cycles of one step of one group on a multiprocessor of its own: arithmetic, local memory, waiting."""
        occ = self.occupancy
        subgroups = -(-tile.count // occ.subgroup)
        bodies = prod(inner.values()) / prod(body.values())
        points = tile.cells * prod(inner.values())
        loads, words = self._loads(tile, body)
        copies, stored = self._copies(tile)
        issued = points * self.work.slots + loads * bodies + copies + (LOOP * bodies if bodies > 1 else 0)
        # Sub-groups fewer than the schedulers leave some of them idle.
        busy = subgroups * max(points * self.work.slots / self.rate, issued / self.issue) / SUSTAINED
        busy *= max(1.0, occ.slots / subgroups)
        busy += MEETING * 2 / tile.versions * self.machine.launch.barrier if tile.staged else 0.0
        delivered = subgroups * (words * bodies + stored) / self.delivered
        waiting = 2.0 / tile.versions * self.machine.launch.barrier + 2 * self.local.latency + DRAIN
        if not tile.staged:
            waiting = bodies * self._near_latency() / 2
        elif not tile.ahead:
            waiting += self.machine.memory.latency * self.machine.clock_ghz
        return busy, delivered, waiting

    def _near_latency(self) -> float:
        return self.machine.caches[0].latency * 2 if self.machine.caches else 100

    def _loads(self, tile: Tile, body: Counts) -> tuple[float, float]:
        """Instructions and words of one item's loads in one straight-line body."""
        instructions = words = 0.0
        for o in self.work.operands:
            elements = o.distinct(tile.each | dict(body))
            width = max(1.0, o.kept.bytes / 4)
            side_by_side = self._vectors(o, tile) if tile.staged else self._memory_vectors(o, tile)
            instructions += elements / side_by_side
            words += elements * width * (1 if tile.staged or side_by_side > 1 else 1.5)
        return instructions, words

    def _vectors(self, o: Operand, tile: Tile) -> float:
        """Elements of one load of a fragment: those of a run lie side by side in the copy, unless they skip."""
        runs = [n for n in tile.each if tile.each[n] > 1 and n in o.loops]
        steps = [c for d in o.dims for n, c in d if n in runs]
        if not runs or max(steps) > 1:
            return 1
        longest = max(tile.each[n] for n in runs)
        if any(self.work.partners(n) for n in runs):
            return min(2, longest)
        return next(n for n in (4, 2, 1) if longest % n == 0)

    def _memory_vectors(self, o: Operand, tile: Tile) -> float:
        """Elements of one load straight from memory: lanes where the vector loop is contiguous."""
        closest = {n for d, s in zip(o.dims, o.strides, strict=True) if s == 1 for n, c in d if c == 1}
        return tile.lanes if tile.vector in closest else 1

    def _copies(self, tile: Tile) -> tuple[float, float]:
        """Instructions and words of one item's share of a step's copies."""
        if not tile.staged:
            return 0.0, 0.0
        group = self._group(tile)
        instructions = words = 0.0
        for o in self.work.operands:
            share = o.box(group) / tile.count
            row = o.row(group)
            even = gcd(row, o.aligned)
            lanes = next((n for n in (16 // o.width, 8 // o.width, 4 // o.width) if n and even % n == 0), 1)
            instructions += ceil(share / max(1, lanes)) * COPY + share
            words += share * max(1.0, o.kept.bytes / 4)
        return instructions, words

    def _on_one_core(
        self, count: int, resident: int, tile: Tile, steps: float, arithmetic: float, delivery: float, stall: float
    ) -> float:
        """Cycles of `count` groups that follow one another on one multiprocessor, `resident` of them at once."""
        busy = (arithmetic**SHARPNESS + delivery**SHARPNESS) ** (1 / SHARPNESS)
        latency = self.machine.memory.latency * self.machine.clock_ghz

        # Nothing is fetched ahead across the loops around the steps.
        around = steps / (self.own[tile.stepped] / tile.deep) if tile.staged else 1.0

        def rounds(together: int) -> float:
            one = max(together * busy, busy + stall)
            if tile.staged and tile.ahead:
                one = max(one, latency * 0.8)
            return steps * one + (1 + around) * latency / together + latency

        full, rest = divmod(count, resident)
        return full * rounds(resident) + (rounds(rest) if rest else 0.0)

    def _traffic(self, tile: Tile, steps: float) -> float:
        """Bytes that one group fetches, by whole sectors."""
        group = self._group(tile)
        bytes = sum(sectors(o.box(group), o.row(group, tile.stepped), o.width) for o in self.work.operands) * steps
        near = self.work.contiguous
        return bytes + sectors(
            prod(tile.size(n) for n in self.work.shared), tile.size(near) if near else 1, self.stored
        )

    def _cache_rate(self) -> float:
        """Bytes per second that all multiprocessors get from the last cache."""
        last = self.machine.caches[-1]
        return last.bandwidth * self.machine.cores * self.machine.clock_ghz * 1e9
