"""The time of a tiled contraction on a GPU: occupancy, issue slots, memory traffic and latency of one tile choice.

Arithmetic only, a few microseconds a tile: it ranks the tiles of a space before the best few are built and estimated.
Two limits meet in a multiprocessor: instructions that start per cycle, and words that local memory delivers to the
lanes, in which every item loads its own fragments even where lanes load the same. Beside them stand barriers and
latency, which other groups of the multiprocessor hide, and the traffic of the caches behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from functools import cached_property
from math import ceil, gcd, log2, prod

from tile_ir.frozen import frozen, replace
from tile_ir.machine import LocalMemory, Machine, Occupancy

from tile_opt.kernel.strides import flat_stride, row_starts
from tile_opt.model.conditions import Conditions
from tile_opt.model.contraction import SECTOR, Contraction, Counts, Operand
from tile_opt.model.group_step import Step
from tile_opt.model.occupancy import ALONE, LONELY, LOOP, resident, rounds

BODY = 1024
"""Instructions of arithmetic in straight-line code."""
SPARE = 4
"""Registers of an item that stay free: what the compiler adds must not spill."""
ADDRESSES = 22
"""Registers for addresses, counters and what is under way."""
LIMITS = 16
"""The same for what constraints ask."""
SUSTAINED = 0.94
"""Share of the issue rate that straight-line code reaches: register banks and dispatch take the rest."""
SCATTERED = 4.5
"""Times its bytes that a store costs whose lanes write one element each out of a few."""
GATHERED = 2
"""One part in so many of a group's local memory may be for its results."""
BESIDE = 2
"""How little arithmetic, caches and memory disturb each other."""
HIDDEN = 0.8
"""Share of the results' time that groups of later rounds hide."""
CACHED = 0.8
"""Share of the last cache's bandwidth that copies reach."""
HANDOFF = 1.5
"""Launches that a kernel costs which waits for the one before."""
SHARED = 1.0
"""Times as long that groups take which share a reduction: their ends and starts, and results that leave the caches."""
CROWDED = 0.14
"""Power of an item's registers with which steps take longer: what waits in them is in the way of what is computed."""
UNCROWDED = 80
"""Registers with which they do not."""
UNEVEN = {1: 1.1, 2: 1.04}
"""Times as long that steps take whose items have long runs of cells that are no multiple of `PIECE`, by the pieces that they
are multiples of: 46 tiles of products."""
PIECE = 4
"""Elements that an item loads at once where they are neighbours."""
TEAM = 1.05
"""Times as long that steps take for each doubling of the teams that share them."""
CUT = 1.65
"""Times as long that steps take where every cell of an item asks at every tap whether it lies inside."""
DRIVEN_OUT = 1.06
"""Times as long again where those results are more than half of what the last cache holds."""
AHEAD = 0.6
"""Share of the latency of memory that a step takes at least, where the next one is fetched meanwhile."""
COPY = 5
"""Instructions around one access of a copy: its address, load and store."""
STEP = 15
"""The same between one step and the next."""


def sectors(elements: int, row: int, width: int, unit: int = SECTOR) -> float:
    """Bytes of the sectors that hold so many elements in rows of neighbours: those at the ends are fetched for a part."""
    whole = row * width
    ends = 0 if whole % unit == 0 else unit - width
    return elements * width * (whole + ends) / whole


def started(machine: Machine) -> tuple[float, float]:
    """Multiplications, and instructions, that a multiprocessor starts per cycle."""
    ports, slots = machine.ports, (machine.occupancy or Occupancy()).slots
    rate = max(0.25, ports.fma if ports.fma >= 1 else ports.fma * slots)
    return rate, max(rate, min(ports.issue, slots))


def cache_rate(machine: Machine, share: float = 1.0) -> float:
    """Bytes per second that all multiprocessors get from the last cache, where they get such a share of its bandwidth."""
    return share * machine.caches[-1].bandwidth * machine.cores * machine.clock_ghz * 1e9


def beside(parts: Iterable[float]) -> float:
    """Seconds of what goes on at the same time and disturbs each other little."""
    return sum(p**BESIDE for p in parts) ** (1 / BESIDE)


@frozen
class ItemTile:
    """A group's tile of the shared loops: items, and iterations of each."""

    items: dict[str, int]
    each: dict[str, int]

    @property
    def team(self) -> int:
        """Items that have the tile together."""
        return prod(self.items.values())

    @property
    def cells(self) -> int:
        """Of an item."""
        return prod(self.each.values())

    def size(self, loop: str) -> int:
        """Iterations of a shared loop in a group's tile."""
        return self.items.get(loop, 1) * self.each.get(loop, 1)


@frozen
class Tile(ItemTile):
    """A group's tile, and how the reduction goes in steps."""

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
    teams: int = 1
    """Teams of items that share each step: each has the whole tile, and their results meet in the end."""

    @property
    def count(self) -> int:
        return self.team * self.teams


@frozen
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
        self.conditions = Conditions(work)
        self.local_bytes = local_bytes
        """Bytes of local memory that one group may declare."""
        self.occupancy = machine.occupancy or Occupancy()
        self.local = machine.local or LocalMemory()
        self.own = work.own
        self.rate, self.issue = started(machine)
        self.delivered = self.local.banks * self.local.bank_bytes / 4 / self.occupancy.subgroup
        self.read, self.written = self._read_seconds(), self._written_seconds()
        self.memory = self.read + self.written
        self.stored = min(4 * work.words, 4)

    def _read_seconds(self) -> float:
        """Every operand once through the device's memory."""
        everything = self.work.shared | self.own
        bytes = sum(o.box(everything) * o.delivered * o.width for o in self.work.operands)
        return bytes / (self.machine.memory.all_cores.read * 1e9)

    def _written_seconds(self) -> float:
        """Every result once through the device's memory."""
        bytes = prod(self.work.shared.values()) * self.work.result_width
        return bytes / (self.machine.memory.all_cores.read * 1e9)

    # --- parts of a tile --------------------------------------------------------------------------------

    def sizes(self, tile: Tile) -> dict[str, int]:
        """Iterations of the shared loops in a group's tile."""
        return {n: tile.size(n) for n in self.work.shared}

    def inner(self, tile: Tile) -> dict[str, int]:
        """Iterations of the reduction loops within one step."""
        return self.steps(tile) if tile.staged else dict(self.own)

    def steps(self, tile: Tile) -> dict[str, int]:
        """The same of a tile that is staged, if it is not."""
        return {tile.stepped: tile.deep} | {n: self.own[n] for n in tile.whole}

    def own_inner(self, tile: Tile) -> dict[str, int]:
        """Those of one item's team."""
        inner = self.inner(tile)
        return inner | {tile.stepped: inner[tile.stepped] // tile.teams} if tile.teams > 1 else inner

    def unrolled(self, tile: Tile) -> dict[str, int]:
        """Iterations of reduction loops in straight-line code, innermost last: windows that slide, then the step.

        Of a step that is too long for all of it, what divides it.
        """
        inner = self.own_inner(tile)
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
        return tile.versions * sum(o.box(counts) * o.kept.bytes for o in self.work.operands) + self.result_bytes(tile)

    def result_bytes(self, tile: Tile) -> int:
        """Bytes of local memory for results: those that teams hand over, and those that meet before they are stored."""
        handed = tile.teams // 2 * tile.team * tile.cells * self.work.words * 4
        return handed + (self._given_bytes(tile) if self.gathers(tile) else 0)

    def _given_bytes(self, tile: Tile) -> int:
        """Bytes of the results of a group."""
        return self.work.result_width * tile.team * tile.cells

    def gathers(self, tile: Tile) -> bool:
        """Results meet in local memory before they are stored: those of an item would lie apart in memory."""
        return self._apart(tile) and self._given_bytes(tile) <= self.local_bytes // GATHERED

    def _apart(self, tile: Tile) -> bool:
        """Items store several neighbouring results, one at a time."""
        near = self.work.contiguous
        return near is not None and tile.each.get(near, 1) > 1 and not self._even_results(tile.lanes)

    def _group(self, tile: Tile) -> dict[str, int]:
        return self.sizes(tile) | self.inner(tile)

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
        limits = LIMITS if self.work.main.constraints else 0
        return tile.cells * self.work.words + fragments + held + ADDRESSES + limits

    def resident(self, tile: Tile, registers: int) -> int:
        """Groups that a multiprocessor holds at once."""
        return resident(tile.count, registers, self.box_bytes(tile) if tile.staged else 0, self.machine)

    # --- the cost ---------------------------------------------------------------------------------------

    def cost(self, tile: Tile) -> Cost | None:
        """None where the tile does not fit."""
        return next((c for _, c in self.shared(tile, ((tile.ways, tile.split),))), None)

    def shared(self, tile: Tile, splits: Iterable[tuple[int, str]]) -> Iterator[tuple[Tile, Cost]]:
        """The tile with as many groups to a reduction, and what it costs; nothing where it does not fit."""
        step = self.step(tile)
        if step is not None:
            tiles = self._tiles(tile)
            for ways, split in splits:
                other = replace(tile, ways=ways, split=split)
                yield other, self._cost(other, step, tiles)

    def _tiles(self, tile: Tile) -> int:
        """Of the whole result."""
        return prod([-(-e // tile.size(n)) for n, e in self.work.shared.items()])

    def step(self, tile: Tile) -> Step | None:
        """What one step takes; None where the tile does not fit."""
        inner, body = self.own_inner(tile), self.unrolled(tile)
        registers = self.registers(tile, body)
        resident = self.resident(tile, registers)
        if registers > self.occupancy.item_registers - SPARE or not resident:
            return None
        if tile.staged and self.box_bytes(tile) > self.local_bytes:
            return None
        subgroups = -(-tile.count // self.occupancy.subgroup)
        bodies = prod(inner.values()) / prod(body.values())
        loads, words = self._loads(tile, body)
        copies, stored = self._copies(tile)
        arithmetic = tile.cells * prod(inner.values()) * self.work.slots
        instructions = arithmetic + loads * bodies + copies + (LOOP * bodies if bodies > 1 else 0)
        instructions += LOOP / tile.versions + STEP if tile.staged else 0
        slots = self.occupancy.slots
        issued = max(arithmetic * slots / self.rate, instructions * slots / self.issue) / SUSTAINED
        alone = instructions * ALONE + self._waiting(tile, inner, bodies)
        delivered = subgroups * (words * bodies + stored) / self.delivered
        hindered, meeting = self._hindered(tile, registers), self._meeting(tile)
        near = (self._fetched(tile), self._stored(tile), hindered, meeting)
        return Step(registers, resident, subgroups, issued, alone, delivered, *near)

    def _cost(self, tile: Tile, step: Step, tiles: int) -> Cost:
        groups = tiles * tile.ways
        cycles, rounds = self._rounds(groups, tile, step)
        stored = groups * step.stored / (self.machine.memory.all_cores.write * 1e9)
        cycles *= step.hindered
        parts = {
            "arithmetic": cycles / (self.machine.clock_ghz * 1e9),
            "cache": (step.fetched * self._steps(tile) * groups) / cache_rate(self.machine, CACHED),
            "memory": self.memory,
        }
        limit = max(parts, key=lambda n: parts[n])
        busy = beside(parts.values())
        # The results of the last groups are stored when nothing is left to do beside.
        hidden = (1 - 1 / rounds) * HIDDEN
        parts |= {"results": stored * (1 - hidden), "combine": self._combine(tile)}
        busy *= self._shared(tile)
        seconds = busy + parts["results"] + parts["combine"] + self.machine.launch.kernel
        peak = self.machine.cores * self.rate * self.occupancy.subgroup * self.machine.clock_ghz * 1e9
        share = self.work.points * self.work.slots / peak / seconds
        if limit == "arithmetic" and step.delivered * self.occupancy.slots > step.issued * step.subgroups:
            limit = "local memory"
        return Cost(seconds, share, limit, step.registers, step.resident, groups, parts)

    def peels(self, tile: Tile) -> bool:
        """Enough groups are free of conditions for code of their own."""
        return self.conditions.peels(self.sizes(tile))

    def _hindered(self, tile: Tile, registers: int) -> float:
        """How much longer steps take by what the compiler makes of them, as measured."""
        runs = [n for n in tile.each if tile.each[n] > 1] if not self.peels(tile) else []
        cut = max((self.conditions.asked(n, tile.each[n], tile.size(n)) for n in runs), default=0.0)
        uneven = max((self._uneven(n, count) for n, count in tile.each.items()), default=1.0) if tile.staged else 1.0
        return max(1.0, registers / UNCROWDED) ** CROWDED * TEAM ** log2(tile.teams) * CUT**cut * uneven

    def _uneven(self, loop: str, count: int) -> float:
        return 1.0 if count <= PIECE or self.work.partners(loop) else UNEVEN.get(gcd(count, PIECE), 1.0)

    def traffic(self, tile: Tile) -> dict[str, float]:
        """Seconds of what groups fetch, of operands and of results once through memory, and of storing these, whatever computes the tile."""
        groups = self._tiles(tile)
        cache = self._fetched(tile) * self._steps(tile) * groups / cache_rate(self.machine, CACHED)
        results = groups * self._stored(tile) / (self.machine.memory.all_cores.write * 1e9)
        return {"cache": cache, "read": self.read, "written": self.written, "results": results}

    def _shared(self, tile: Tile) -> float:
        """How much longer groups take that share a reduction; their results may drive the operands out of the cache."""
        if tile.ways == 1:
            return 1.0
        results = tile.ways * prod(self.work.shared.values()) * self.work.words * 4
        return SHARED * (DRIVEN_OUT if 2 * results > self.machine.caches[-1].bytes else 1)

    def _combine(self, tile: Tile) -> float:
        """Seconds of the kernel that combines what groups found that share a reduction."""
        if tile.ways == 1:
            return 0.0
        moved = (tile.ways + 1) * prod(self.work.shared.values()) * self.work.words * 4
        return (
            moved / cache_rate(self.machine, CACHED)
            + self.machine.memory.latency * 1e-9
            + HANDOFF * self.machine.launch.kernel
        )

    def _steps(self, tile: Tile) -> float:
        """Steps of one group, the outer reduction loops included."""
        if not tile.staged:
            return 1.0 / tile.ways
        outer = prod(e for n, e in self.own.items() if n != tile.stepped and n not in tile.whole)
        return outer * (self.own[tile.stepped] / tile.deep) / tile.ways

    def _waiting(self, tile: Tile, inner: Counts, bodies: float) -> float:
        """Cycles of one step in which a sub-group by itself waits for loads and barriers."""
        if not tile.staged:
            return bodies * self._near_latency() / 2
        slides = {p for n in tile.each if tile.each[n] > 1 for p in self.work.partners(n)}
        fragments = prod(c for n, c in inner.items() if n not in slides)
        barriers = 2.0 / tile.versions * self.machine.launch.barrier
        return fragments * self.local.latency + barriers + (0.0 if tile.ahead else self._memory_latency)

    @property
    def _memory_latency(self) -> float:
        """Cycles from a load to its value out of memory."""
        return self.machine.memory.latency * self.machine.clock_ghz

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
        return next(n for n in (4, 2, 1) if longest % n == 0)

    def _memory_vectors(self, o: Operand, tile: Tile) -> float:
        """Elements of one load straight from memory: lanes where the vector loop is contiguous."""
        closest = {n for d, s in zip(o.dims, o.steps, strict=True) if s == 1 for n, c in d if c == 1}
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
            even = gcd(row, o.aligned) if o.delivered == 1 else 1
            lanes = next((n for n in (16 // o.width, 8 // o.width, 4 // o.width) if n and even % n == 0), 1)
            instructions += ceil(share / max(1, lanes)) * COPY + share
            words += share * max(1.0, o.kept.bytes / 4)
        return instructions, words

    def _rounds(self, groups: int, tile: Tile, step: Step) -> tuple[float, float]:
        """Cycles until the multiprocessors have run all groups, as many at once as fit, and the rounds that makes."""
        latency, steps = self._memory_latency, self._steps(tile)

        # Nothing is fetched ahead across the loops around the steps.
        around = steps / (self.own[tile.stepped] / tile.deep) if tile.staged else 1.0

        def cycles(together: int) -> float:
            alone = together == 1 and step.subgroups > self.occupancy.slots
            one = step.cycles(together, self.occupancy.slots) * (LONELY if alone else 1)
            if tile.staged and tile.ahead:
                one = max(one, latency * AHEAD)
            return steps * one + (1 + around) * latency / together + latency + step.meeting

        shares = [*rounds(groups, step.resident, self.machine)]
        return sum(times * cycles(together) for times, together in shares), sum(times for times, _ in shares)

    def _meeting(self, tile: Tile) -> float:
        """Cycles until the results of all teams have met, and those of all items where that is needed."""
        given = 2 * self._given_bytes(tile) / 4 / (self.delivered * self.occupancy.subgroup)
        given = given + 2 * self.local.latency + self.machine.launch.barrier if self.gathers(tile) else 0.0
        handed = 2 * tile.cells * self.work.words * tile.team / (self.delivered * self.occupancy.subgroup)
        return given + (tile.teams - 1).bit_length() * (
            handed + 2 * self.local.latency + 2 * self.machine.launch.barrier
        )

    def _fetched(self, tile: Tile) -> float:
        """Bytes that one group fetches in a step, by whole sectors."""
        group = self._group(tile)
        return sum(sectors(o.box(group) * o.delivered, o.row(group, tile.stepped), o.width) for o in self.work.operands)

    def _stored(self, tile: Tile) -> float:
        """Bytes that the results of one group cost: by whole sectors, and more where lanes leave gaps between theirs."""
        near = self.work.contiguous
        cells = prod(tile.size(n) for n in self.work.shared)
        bytes = sectors(cells, tile.size(near) if near else 1, self.stored)
        return bytes * (SCATTERED if self._scatters(tile) or (self._apart(tile) and not self.gathers(tile)) else 1)

    def _scatters(self, tile: Tile) -> bool:
        """Items have runs along the results' own loop, and lanes along another: what a sub-group stores at once is apart."""
        near = self.work.contiguous
        return near is not None and tile.each.get(near, 1) > 1 and tile.vector != near

    def _even_results(self, lanes: int) -> bool:
        """Whole vectors of results are stored at once."""
        return lanes > 1 and self._starts % lanes == 0

    @cached_property
    def _starts(self) -> int:
        """Elements on multiples of which rows of results begin."""
        view, loops, results = self.work.view, self.work.shared, self.work.results
        return gcd(*(row_starts(view, u, [n for n in loops if flat_stride(view, u, n) != 1]) for u in results))
