"""Tiles of contractions on matrix instructions: those of groups and sub-groups, and operands on their way to fragments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tile_ir.frozen import replace
from tile_ir.machine import LocalMemory, Occupancy
from tile_ir.matrix import LANES, PANEL_BYTES, MatrixInstruction
from tile_ir.stripe.nodes import Bind, Scope
from tile_ir.target import Target

from tile_opt.kernel.instructions import Match
from tile_opt.kernel.view import KernelView
from tile_opt.model.group_cost import Tile as Traffic
from tile_opt.model.group_cost import beside
from tile_opt.plan.builders.tensor_checks import problems
from tile_opt.plan.plan import TF32, Across, Cover, Edge, Instruction, Level, Plan, Reduction, Staging
from tile_opt.plan.space.tensor import stores
from tile_opt.plan.space.tensor.beside import shares
from tile_opt.plan.space.tensor.counted import left
from tile_opt.plan.space.tensor.pitches import padded
from tile_opt.plan.space.tensor.results import Results
from tile_opt.plan.space.tensor.teams import crowded, item_registers
from tile_opt.plan.space.tensor.way import Way
from tile_opt.plan.steps.groups.banks import BANK_BYTES, COPY_BYTES, takes_copies
from tile_opt.plan.steps.groups.staging import box_of

TEAM_VERSIONS, ALONE_VERSIONS, THROUGH_VERSIONS = 4, 6, 3
"""Steps of teams in local memory: of what is copied there, the same where no core has a second group (an H200: 512x4096x4096 of
bfloat16 took 36.6 µs by 4, 29.6 by 6 or 8), and of what is put there out of registers."""
ROUNDED, APART = 1.3, 1.9
"""Times longer than predicted that tiles through registers take, of factors that are rounded there, and of rows that follow two loops (an H200)."""
READ, ALONG = 1.06, 1.04
"""Times longer that products take whose first factor items read and round, and where its rows run along the depth (an H200)."""
TAPPED = 1.15, 1.38, 1.4
"""Times longer than predicted that products of teams take in steps of all taps of a window, of several, and where all is one step (an H200)."""
FAR = 2
"""Latencies of memory that a step waits for: of elements one by one through registers, and of tensor copies where a core has one group (an H200: 2.4)."""
PUT = 0.3
"""Share of the time of putting factors into local memory that is not beside products."""
FETCHED, KEPT = 12, 6
"""Instructions of an access and of an element on their way through registers: addresses, limits, places in panels (an H200)."""
AHEAD = 0.5
"""Share of the time that loads take from the last cache which copies ahead take, 16 bytes at once and past the first one."""
TEAM_WAITS = 150
"""Cycles of a step, about, in which a group alone on its core multiplies nothing: it waits, meets and starts anew."""
WARPS, ROWS = (2, 2), (4, 1)
"""Sub-groups along rows and columns of a group's tile; those that have all columns."""
MANY = 8
"""Instructions along the reduction from which on it does not matter when the last step has half of its own."""
MOST_VERSIONS = 3
"""Steps whose operands are in local memory at once."""
BESIDE_TWO = 0.3
"""Share of the time that memory takes for results which two groups of a core hide: what tiles take is compared with what those of items do
without that."""
MOST_BESIDE = 4
"""Groups of a core of which each hides some of what others take."""
NARROW, TEAM_NARROW, WAITED = 4, 7.75, 20
"""Cycles of a sub-group's copy of words, of one beside products of teams (an H200: 2044x3076x2692 took 121 µs, 114 with copies before),
and of elements so small that none runs ahead."""
ALONE = 0.5
"""Share of its rate that a core keeps, about, with the fewest groups that hide nothing of each other's waits."""


@dataclass(frozen=True)
class Tile:
    """A tile on its way to a plan: `tall` by `wide` instructions of each sub-group, in steps `deep`.

    Rows that the instruction's loop has not enough iterations for follow the loop `beside` it.
    """

    way: Way
    tall: int
    wide: int
    deep: int
    beside: str | None = None
    warps: tuple[int, int] = WARPS
    """Sub-groups along rows and columns."""
    through: bool = False
    """Factors go through registers into local memory, which round and turn them."""
    rounded: bool = False
    """Items round what they read of the first factor."""
    most: int = TEAM_VERSIONS
    """Steps under way, at most: with fewer a core may have more groups."""
    boxes: bool = False
    """Tensor copies bring the second factor, and the first one that items do not round, and round them on the way."""
    shared: bool = False
    """Groups have a share of the reduction, of few steps."""
    taps: tuple[str, ...] = ()
    """Windows of the reduction of which every step has all iterations: neighbours' read one box, which holds what they share once."""

    @property
    def view(self) -> KernelView:
        return self.way.view

    @property
    def match(self) -> Match:
        return self.way.match

    @property
    def target(self) -> Target:
        return self.way.target

    @property
    def instruction(self) -> MatrixInstruction:
        return self.way.match.instruction

    @property
    def loops(self) -> dict[str, str]:
        return self.way.loops

    @cached_property
    def _rows(self) -> dict[str, tuple[int, int]]:
        """Of every loop that rows follow: instructions of a group along it, and sub-groups that share them."""
        units, sub_groups = self.warps[0] * self.tall, self.warps[0]
        loop, side = self.loops["m"], self.instruction.sides["m"]
        if self.beside is None:
            return {loop: (units, sub_groups)}
        along = max(
            self._shares, key=lambda n: (self._covered(loop, n * side) * self._covered(self.beside, units // n), n)
        )
        shared = min(sub_groups, units // along)
        return {self.beside: (units // along, shared), loop: (along, sub_groups // shared)}

    @cached_property
    def _shares(self) -> list[int]:
        """Instructions along the rows' own loop, where a second one has the others."""
        return shares(self.view, self.match, self.warps[0] * self.tall, self.beside)

    def _covered(self, loop: str | None, size: int) -> float:
        """The share of groups of so many iterations of a loop that is not behind its end."""
        extent = self.view.ranges[loop] if loop else 1
        return extent / (-(-extent // size) * size)

    @property
    def fits(self) -> bool:
        """Steps take turns in local memory."""
        return self.versions >= min(2, self._turns)

    @property
    def has_rows(self) -> bool:
        """Rows follow a second loop only where that has some of them."""
        return self.beside is None or bool(self._shares)

    @cached_property
    def may_be_built(self) -> bool:
        """Nothing keeps its plan from being built; asked as late as may be, since it takes longer than to rank a tile."""
        plain = self.instruction.team == 1 and self.beside is None and not self.taps
        return plain or not next(problems(self.view, self.match, self.plan()), None)

    def _iterations(self, shared: bool) -> dict[str, int]:
        side, n = self.instruction.sides, self.loops["n"]
        found = {
            loop: units // (sub_groups if shared else 1) * (side["m"] if loop == self.loops["m"] else 1)
            for loop, (units, sub_groups) in self._rows.items()
        }
        return found | {n: self.wide * side["n"] * (1 if shared else self.warps[1])}

    @cached_property
    def warp(self) -> dict[str, int]:
        """Iterations of a sub-group's tile."""
        return self._iterations(shared=True)

    @cached_property
    def group(self) -> dict[str, int]:
        return self._iterations(shared=False)

    @cached_property
    def versions(self) -> int:
        """As many steps under way as the reduction and local memory allow."""
        most = self._most if self.instruction.team > 1 else MOST_VERSIONS
        return min(most, self.local // self._step_bytes, self._turns)

    @cached_property
    def _step_bytes(self) -> int:
        """Of a step in local memory: rows of a team along the depth are whole panels; of others the pitch is padded."""
        width, deep = self.instruction.a.dtype.bytes, self.deep
        if self.instruction.team == 1:
            unit = COPY_BYTES // width
            # Neighbours in memory follow the reduction, or not.
            return width * sum(max(n * (deep + unit), deep * (n + 2 * unit)) for _, n in self._sides)
        along = ((self._along(name) == self.loops["k"], count) for name, count in self._sides)
        return sum(count * (PANEL_BYTES if panel else width * deep) for panel, count in along)

    @property
    def _most(self) -> int:
        """Steps under way, as far as local memory has room: nothing else hides what a group waits for that has its core to itself."""
        if self.through:
            return THROUGH_VERSIONS
        return max(self.most, ALONE_VERSIONS) if self.groups <= max(1, self.target.settings.cores) else self.most

    @property
    def _turns(self) -> int:
        """Places in local memory that all steps take; those through registers put one there that nobody reads."""
        return -(-self.view.ranges[self.loops["k"]] // self.deep) * self._rounds + self.through

    @property
    def cells(self) -> int:
        """Results of a group."""
        return prod(self.group.values())

    @property
    def _rounds(self) -> int:
        """Times that the steps are gone through."""
        return prod(i.range for i in self.match.main.loops if i.name not in (self.loops["k"], *self.taps))

    @property
    def local(self) -> int:
        """Bytes of local memory that a group has for its steps."""
        return self.way.local_bytes - self.results.bytes

    @cached_property
    def results(self) -> Results:
        """What becomes of them."""
        return Results(self.way, self.group, self.warp)

    def with_more_beside(self) -> Iterator[Tile]:
        """The tile with a step less under way, where a core may then have another one of its many groups."""
        most, many = self.versions - 1, self.groups > max(1, self.target.settings.cores) * self.resident
        if most > 2 and many and (fewer := replace(self, most=most)).resident > self.resident:
            yield fewer

    # --- what it is worth -------------------------------------------------------------------------------

    @cached_property
    def seconds(self) -> float:
        """Predicted: instructions, what groups fetch and memory beside each other; then the last results, and the launch."""
        machine, work = self.target.machine, self.way.work
        matrix = self.way.matrix_seconds / self.share * self._starts * self._counted
        if work is None:
            return matrix
        traffic, staged = self.traffic, self.results.staged
        stored = self.results.seconds(traffic["results"], alone=self.resident == 1)
        # Fragments are parts of lines, which disturb what memory reads, too.
        memory = traffic["read"] + (0.0 if staged else traffic["written"])
        products = beside((matrix, traffic["cache"], memory))
        stored *= stores.narrow_pieces(self.results.run) if staged and stored > products else 1.0
        hidden = self._hidden * (products + stored - beside((products, stored)))
        seconds = (products + stored - hidden + machine.launch.kernel) * crowded(self.instruction, self.warps)
        put = self.through and takes_copies(self.instruction)
        seconds *= self._read * (ROUNDED if put else 1.0) * (APART if self.through and self.beside else 1.0)
        steps = 2 if self._turns == 1 else len(self.taps) > 1
        seconds *= TAPPED[steps] if self.taps and self.instruction.team > 1 else 1.0
        return seconds + BESIDE_TWO * traffic["written"]

    @property
    def _hidden(self) -> float:
        """Share of storing that is beside what other groups of a core fetch and multiply, which are in other rounds of it."""
        beside, cores = min(self.resident, MOST_BESIDE), max(1, self.target.settings.cores)
        return (1 - 1 / beside) * max(0.0, 1 - beside * cores / self.groups)

    @cached_property
    def traffic(self) -> dict[str, float]:
        """Seconds of what groups fetch, of memory, and of results, if nothing hinders them; none where nobody knows."""
        work, cost = self.way.work, self.way.cost
        if work is None or cost is None:
            return {}
        ones = dict.fromkeys(work.shared, 1)
        found = cost.traffic(Traffic(ones | self.group, {}, "", 1, self.loops["k"], self.deep, self.taps))
        cache = found["cache"] * self._counted
        return found | {"cache": cache * (AHEAD * self._idle if self.instruction.team > 1 else 1)}

    @cached_property
    def _counted(self) -> float:
        """Share of the time that is left where constraints leave out steps."""
        sizes = self.group | {self.loops["k"]: self.deep}
        return left(self.match, self.view.ranges, sizes, self.target.settings.cores / self.groups)

    @property
    def _read(self) -> float:
        """Times longer because items read the first factor."""
        if not self.rounded:
            return 1.0
        return READ * (ALONG if self._along(self.match.left) == self.loops["k"] else 1.0)

    @cached_property
    def share(self) -> float:
        """Predicted share of the instruction's rate: idle cores, edges, and loads of fragments cost."""
        return self.useful * self._busy(self.groups)

    @cached_property
    def useful(self) -> float:
        """Share of what is computed that is not behind the end of a loop."""
        useful = prod(self.view.ranges[n] / (self._counts[n] * size) for n, size in self.group.items())
        depth = self.view.ranges[self.loops["k"]]
        return useful * (depth / (-(-depth // self.deep) * self.deep))

    @cached_property
    def _counts(self) -> dict[str, int]:
        """Groups along every loop of which one has several iterations."""
        return {n: -(-self.view.ranges[n] // size) for n, size in self.group.items()}

    @cached_property
    def groups(self) -> int:
        return prod(i.range for i in self.view.loops if i.name not in self.group) * prod(self._counts.values())

    def _busy(self, groups: int) -> float:
        """Share of the rate while so many groups run: some cores idle, others hold few groups at last."""
        cores = max(1, self.target.settings.cores)
        waves, rest = divmod(groups, cores * self.resident)
        last = -(-rest // cores)
        if self.instruction.team > 1:
            cycles = waves * self.resident * self._step(self.resident) + last * self._step(max(1, last))
            return self._products * groups / (cores * cycles)
        turns = waves * self.resident + last / (ALONE + (1 - ALONE) * last / self.resident)
        return self.rate * groups / (cores * turns)

    @property
    def _idle(self) -> float:
        """Cores for each one that has groups: it copies no faster where others copy nothing (an H200: 40 to 54 bytes a cycle).

        Where more than half of the cores have one, tiles of half the size would give some of them two: as long.
        """
        spread = self.target.settings.cores / self.groups
        return 1.0 if self.through or spread < 2 else spread

    def _step(self, together: int) -> float:
        """Cycles of a core for a step of a team's group, when it has so many groups: these wait beside each other, and issue one by one."""
        products, puts = self._products, self._puts
        return max(products + TEAM_WAITS / together, puts, (products + puts + TEAM_WAITS) / together)

    @property
    def cycles(self) -> float:
        """Of a core, if groups were so small that all cores had as much to do."""
        depth = self.view.ranges[self.loops["k"]]
        steps = -(-depth // self.deep) * self._rounds * self.groups
        return steps * self._products / self.rate / max(1, self.target.settings.cores)

    @cached_property
    def rate(self) -> float:
        """Share of a step in which instructions run: fragments are loaded before, and every step waits and meets."""
        machine = self.target.machine
        local = machine.local or LocalMemory()
        m, n, k = self.instruction.shape
        products = self._products
        if self.instruction.team > 1:
            return products / self._step(self.resident)
        loaded = self._slices * (self.tall * m + self.wide * n) * k * self.instruction.a.dtype.bytes
        # Groups of few columns are several on a core, and wait beside each other.
        beside = self.resident if self.warps == ROWS else 1
        waits = 2 * machine.launch.barrier / beside + self.narrow_copies
        return products / (products + loaded / (local.banks * local.bank_bytes) + waits)

    @property
    def _slices(self) -> int:
        """Slices of a step, of all sub-groups."""
        return prod(self.warps) * prod(self._tapped.values()) * self.deep // self.instruction.sides["k"]

    @cached_property
    def _products(self) -> float:
        """Cycles of a step's instructions."""
        return self._slices * self.tall * self.wide / self.way.per_cycle

    @property
    def _puts(self) -> float:
        """Cycles of a step in which factors are put into local memory out of registers, or copied there in small pieces."""
        if not self.through:
            return self.narrow_copies
        local, occupancy = self.target.machine.local or LocalMemory(), self.target.machine.occupancy or Occupancy()
        width, elements, accesses = self.instruction.a.dtype.bytes, 0.0, 0.0
        for name, count in self._sides:
            elements += count * self.deep
            accesses += count * self.deep * width / self.way.pieces[name]
        issued = (FETCHED * accesses + KEPT * elements) / LANES / occupancy.slots
        return issued + PUT * elements * width / (local.banks * local.bank_bytes)

    @property
    def _tapped(self) -> dict[str, int]:
        """Iterations of windows in a step."""
        return {n: self.view.ranges[n] for n in self.taps}

    @cached_property
    def _sides(self) -> tuple[tuple[str, int], ...]:
        """Each factor, and how many rows or columns of it a step copies."""
        columns = self.group[self.loops["n"]]
        if not self.taps:
            return (self.match.left, self.cells // columns), (self.match.right, columns)
        inside = self.group | self._tapped
        uses = (self.match.main.use(name) for name in (self.match.left, self.match.right))
        return tuple((use.name, prod(box_of(use.forms, inside).extents)) for use in uses)

    @cached_property
    def _starts(self) -> float:
        """Times longer because steps wait for their operands: too few steps under way cover what loads take.

        Those through registers are one ahead; others are enough where rounds of the outer reductions, or shares, are not short.
        """
        machine = self.target.machine
        if self._rounds == 1 and not (self.through or self.shared or self.rounded or self.boxes):
            return 1.0
        together = min(self.resident, -(-self.groups // max(1, self.target.settings.cores)))
        products = self._step(together) if self.through else self._products / self.rate
        steps = 1 if self.through else max(1, self.versions - (self.versions < self._turns))
        far = FAR if self.through or (self.boxes and together == 1 and not self.shared) else 1
        return max(1.0, far * machine.memory.latency * machine.clock_ghz / (steps * products * together))

    @cached_property
    def narrow_copies(self) -> float:
        """Cycles of a step's copies where rows begin anywhere, so that they go in less than 16 bytes."""
        width, total = self.instruction.a.dtype.bytes, 0.0
        words = NARROW if self.instruction.team == 1 else TEAM_NARROW
        for name, count in self._sides:
            piece = self.way.pieces[name]
            if piece < COPY_BYTES:
                total += count * self.deep * width / piece / LANES * (words if piece >= BANK_BYTES else WAITED)
        return total

    @cached_property
    def resident(self) -> int:
        """Groups that a core holds at once."""
        taken = self._step_bytes * self.versions + self.results.bytes
        local = self.way.local_bytes // taken if self.instruction.team > 1 else MANY
        return max(1, min(local, self.in_registers))

    @cached_property
    def in_registers(self) -> int:
        """Groups that the registers of a core hold at once."""
        items, each = prod(self.warps) * LANES, item_registers(self.instruction, self.tall, self.wide)
        if self.instruction.team > 1:
            # On their way to local memory.
            each += self.deep * sum(n for _, n in self._sides) // items if self.through else 0
            each += 2 * self.deep * self.instruction.sides["m"] // LANES if self.rounded else 0
        occupancy = self.target.machine.occupancy
        return (occupancy.registers if occupancy else 0) // (each * items)

    # --- the plan ---------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """The plan, with the padding that meets the fewest bank conflicts."""
        found = self._unpadded()
        lies = tuple(s for s in found.stagings if s.unit == "LOCAL" and s not in self.results.staged)
        return padded(self.view, self.match, found, lies, collective="MatrixLoad" in self.target.nodes)

    def _unpadded(self) -> Plan:
        m, n, k = (self.loops[role] for role in "mnk")
        outer = [i.name for i in self.match.main.loops if i.name != k]
        sides = {self.loops[role]: size for role, size in self.instruction.sides.items()}
        levels = (
            Level(Bind.GRID, tuple(Cover(i.name, self.group.get(i.name, 1)) for i in self.view.loops)),
            Level(Bind.SUBGROUP, tuple(Cover(loop, size) for loop, size in self.warp.items())),
            Level(
                Bind.NONE,
                (*(Cover(loop, self._tapped.get(loop, 1)) for loop in outer), Cover(k, self.deep)),
                ordered=True,
            ),
            Level(
                Bind.UNROLL,
                tuple(Cover(loop, sides.get(loop, 1)) for loop in dict.fromkeys((k, m, n, *self.warp, *self.taps))),
            ),
        )
        used = [self.match.main.use(name) for name in (self.match.left, self.match.right)]
        brought = dict(zip((u.buffer for u in used), self._brought, strict=True))
        lying = {buffer: self._turned(self.way.lying(u for u in used if u.buffer == buffer)) for buffer in brought}
        stagings = tuple(
            Staging(n, 2, "LOCAL", lying[n], Scope.GROUP, versions=self.versions, dtype=dtype)
            for n, dtype in brought.items()
        )
        stagings += tuple(Staging(s.operand, 2, "REG") for s in stagings if self.through) + self.results.staged
        stagings += (Staging(used[0].buffer, 3, "REG"),) if self.rounded else ()
        reductions = tuple(Reduction(i.name, Across.SERIAL) for i in self.match.main.loops)
        sizes = self.group | {k: self.deep}
        edges = tuple((loop, Edge.PAD) for loop, size in sizes.items() if self.view.ranges[loop] % size)
        shape = f"{prod(self.warps)} sub-groups of {self.tall} x {self.wide} instructions"
        reason = f"{shape}: {self.share:.0%} of what the instructions can do"
        chosen = Instruction(self.instruction.name, self.match.loops)
        return Plan(levels, stagings, reductions, edges, chosen, reason)

    @property
    def _brought(self) -> tuple[str, str]:
        """What tensor copies make of each factor."""
        return (TF32 if self.boxes and not self.rounded else "", TF32 if self.boxes else "")

    def _along(self, factor: str) -> str:
        """The loop along rows of a factor in local memory."""
        return self._turned(self.way.rows[factor])[-1]

    def _turned(self, order: tuple[str, ...]) -> tuple[str, ...]:
        """The tile's loops as they follow in memory; on a way that turns them the depth is the closest, if rows have to be it.

        They do where the instruction reads no others, and where those in memory are no whole panels.
        """
        if not self.through:
            return order
        depth, line = self.loops["k"], PANEL_BYTES // self.instruction.a.dtype.bytes
        turned = self.instruction.along_depth or (self.group | {depth: self.deep})[order[-1]] % line
        return tuple(sorted(order, key=lambda n: turned and n == depth))
