"""Plans for kernels over rows that are walked piece by piece (`kernel.rows_in_steps`), on matrix instructions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product, starmap
from math import prod

from tile_ir.dtype import DType
from tile_ir.machine import Machine
from tile_ir.matrix import LANES, MATRIX_INSTRUCTIONS, PANEL_BYTES, WGMMA, MatrixInstruction
from tile_ir.stripe.nodes import Bind, Scope
from tile_ir.target import Target

from tile_opt.kernel.instructions import Match, feeds, usable
from tile_opt.kernel.rows_in_steps import RowsInSteps
from tile_opt.kernel.view import Use
from tile_opt.kernel.work import op_cost
from tile_opt.plan.builders.product_views import match_on, product_views
from tile_opt.plan.builders.row_fragments import TURNS
from tile_opt.plan.builders.shared_rows import may_share, ways_of
from tile_opt.plan.builders.tensor_shares import is_joined, joining_seconds
from tile_opt.plan.plan import Across, Cover, Edge, Instruction, Level, Plan, Reduction, Staging
from tile_opt.plan.space.tensor.shares import COMBINES
from tile_opt.plan.steps.groups.banks import COPY_BYTES, panel_swizzle

TALL = (2, 1)
"""Instructions of a sub-group along rows; one, of teams."""
WARPS = (4,)
"""Sub-groups of a group: with several teams in it these would wait for one another."""
PIECES = (128, 64, 32)
"""Scores of a row in one piece; teams multiply as many at once."""
AHEAD = (TURNS, 1)
"""Versions of what a piece reads: with several, all of the next piece arrives while one is computed."""
CELLS = 244
"""Registers of an item for scores and results, as `HELD` and `OTHER` count them: an H200 kept 240 beside all else without a loss."""
HELD, OTHER = 1.5, 2.0
"""Registers for each score: the sum, and half of what is made of it; and for the one of another product beside it."""
SHARE = 0.7
"""Share of the instructions' rate that they reach beside loads of factors and waits (an H200: 64 and 128 elements per head)."""
WAITS = {TURNS: 10, 1: 16}
"""Scores that could be had while a piece waits, and meets; by versions of what it reads."""
ALONE = 1.3
"""Times longer where a core has local memory for one group: nothing hides what it waits for."""
NEAR = 0.65
"""Operations on a score for each that its stages cost by themselves: exponentials are the hardware's."""
EACH = (1, 2, 3)
"""Groups that a core may get of rows that groups share."""
LEAST = 2
"""Pieces of a row that such a group has at least: all of the next one arrives while one is computed."""
STEPS = 3
"""The level whose points bring operands into local memory."""


def plans(kinds: RowsInSteps, row: str, target: Target) -> Iterator[Plan]:
    """Plans on matrix instructions, best first; none where precision is not to be reduced."""
    made: list[tuple[float, _Space, _Warps]] = []
    for instruction in usable(target):
        space = _space(kinds, row, instruction, target) if feeds(instruction) else None
        made += space.ranked(target.settings.threads) if space is not None else ()
    for _, space, warps in sorted(made, key=lambda found: found[0]):
        yield space.plan(warps)


def rate(name: str, machine: Machine) -> float:
    """Products that a core adds up in a cycle by an instruction."""
    return (machine.rate(name) or 1.0) * prod(MATRIX_INSTRUCTIONS[name].shape)


def seconds(kinds: RowsInSteps, plan: Plan, target: Target) -> float:
    """What a run is expected to take: products, and what becomes of each score, on cores that groups share."""
    machine, instruction = target.machine, plan.instruction
    assert instruction is not None
    sizes = {c.loop: c.size for level in plan.levels[:STEPS] for c in level.covers}
    group = {c.loop: c.size for c in plan.levels[0].covers}
    (row,) = (c.loop for c in plan.levels[STEPS - 1].covers)
    tall = sizes[row] // MATRIX_INSTRUCTIONS[instruction.name].sides["m"]
    warps = _Warps(group[row] // sizes[row], tall, sizes[kinds.row], _versions(kinds, plan), ways_of(plan))
    deep = sum(c.size for c in plan.levels[STEPS].covers)
    shape = _Shape(
        kinds, row, MATRIX_INSTRUCTIONS[instruction.name], deep, sum(group[kinds.columns[k]] for k in kinds.lasts)
    )
    return shape.cycles(warps, target) / (machine.clock_ghz * 1e9) + machine.launch.kernel


def fetching(kinds: RowsInSteps, machine: Machine) -> float:
    """Seconds that memory takes for all factors, each once."""
    view = kinds.view
    read = {u.buffer for k in kinds.products for u in view.stages[k].uses if u.reads and not u.writes}
    nbytes = sum(view.type_of(b).nbytes for b in read if not view.is_local(b))
    return nbytes / (machine.memory.all_cores.read * 1e9)


def _versions(kinds: RowsInSteps, plan: Plan) -> int:
    """Of all that pieces read, beside the factor of each first product that belongs to rows."""
    once = sum(s.versions == 1 for s in plan.stagings)
    return 1 if once > len(kinds.firsts) else TURNS


def _space(kinds: RowsInSteps, row: str, instruction: MatrixInstruction, target: Target) -> _Space | None:
    """The plans by one instruction; None where it does not compute all products."""
    columns = [*(kinds.row for _ in kinds.firsts), *(kinds.columns[k] for k in kinds.lasts)]
    others = (_beside(kinds, kinds.columns[k], instruction) for k in kinds.lasts)
    instructions = [*(instruction for _ in kinds.firsts), *others]
    tried = zip(product_views(kinds), instructions, columns, strict=True)
    found = tuple(i and match_on(view, i, row, column) for view, i, column in tried)
    matches = tuple(m for m in found if m is not None)
    if len(matches) < len(found):
        return None
    count = len(kinds.firsts)
    space = _Space(kinds, row, matches[:count], matches[count:], target)
    return space if len({u.buffer for u in space.operands}) == len(space.operands) else None


def _beside(kinds: RowsInSteps, column: str, instruction: MatrixInstruction) -> MatrixInstruction | None:
    """The instruction of a last product: of teams, the one for the most columns that whole panels are divided into.

    None begins inside a panel and goes on in the next one.
    """
    if instruction.team == 1:
        return instruction
    wide, extent, side = _whole(kinds, column, instruction), kinds.view.ranges[column], _side(instruction)
    alike = ((i, i.sides["n"]) for i in WGMMA if i.a.dtype is instruction.a.dtype)
    whole = ((i, n) for i, n in alike if wide % n == 0 and (n % side == 0 or side % n == 0))
    return next((i for i, n in whole if n <= extent), None)


def _whole(kinds: RowsInSteps, loop: str, instruction: MatrixInstruction) -> int:
    """Iterations of a loop, in whole instructions along either side of a factor, or in whole panels."""
    side = _side(instruction)
    return -(-kinds.view.ranges[loop] // side) * side


def _side(instruction: MatrixInstruction) -> int:
    return PANEL_BYTES // instruction.a.dtype.bytes if instruction.team > 1 else instruction.sides["k"]


@dataclass(frozen=True, slots=True)
class _Warps:
    """Sub-groups of a group, instructions of each along rows, scores of a piece, and versions of what pieces read."""

    count: int
    tall: int
    piece: int
    turns: int = 1
    ways: int = 1
    """Groups that share a row."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """A kernel by an instruction: its depth, and results of a row, in what groups compute of them."""

    kinds: RowsInSteps
    row: str
    instruction: MatrixInstruction
    deep: int
    wide: int

    def rows(self, warps: _Warps) -> int:
        """Of a group."""
        return warps.count * warps.tall * self.instruction.sides["m"]

    def registers(self, warps: _Warps) -> float:
        """Of an item, for scores and results."""
        held = OTHER * (len(self.kinds.firsts) - 1) + HELD
        return warps.tall * self.instruction.sides["m"] * (self.wide + held * warps.piece) / LANES

    def cycles(self, warps: _Warps, target: Target) -> float:
        """What a run is expected to take: products, and what becomes of each score, on cores that groups share."""
        kinds, loops, rows, machine = self.kinds, self.kinds.view.loops, self.rows(warps), target.machine
        groups = prod(-(-i.range // (rows if i.name == self.row else 1)) for i in loops)
        # Teams read their factors where they lie; other sub-groups load those of the second side for each of their rows.
        loads = 1.0 if self.instruction.team > 1 else 1 + 1 / warps.tall
        loads *= (1 + WAITS[warps.turns] / warps.piece) * (ALONE if self._is_alone(warps, machine) else 1.0)
        products = (self.deep + self.wide) * loads / (rate(self.instruction.name, machine) * SHARE)
        stages = (kinds.view.stages[k] for k in kinds.pieces if k not in kinds.products)
        others = NEAR * sum(map(op_cost, stages)) / (machine.ports.fma * LANES)
        length = kinds.view.ranges[kinds.row]
        share = min(length, -(-length // (warps.piece * warps.ways)) * warps.piece)
        computed = -(-groups * warps.ways // machine.cores) * rows * share * (products + others)
        fetched = fetching(kinds, machine) * machine.clock_ghz * 1e9 / self._filled(groups * warps.ways, machine)
        return max(computed, fetched) + self._combined(warps, groups, target) * machine.clock_ghz * 1e9

    def _filled(self, groups: int, machine: Machine) -> float:
        """Share of the cores' time that groups have, where all take as long."""
        turns = -(-groups // machine.cores)
        return groups / (turns * machine.cores)

    def _combined(self, warps: _Warps, tiles: int, target: Target) -> float:
        """Seconds that the last groups of so many tiles, or another kernel, take to put together what groups found."""
        if warps.ways == 1:
            return 0.0
        rows = prod(i.range for i in self.kinds.view.loops)
        cells, memory = rows * self.wide // tiles, target.machine.memory.all_cores
        nbytes = warps.ways * rows * self.wide * DType.FLOAT32.bytes
        written = nbytes / (memory.write * 1e9)
        if is_joined(cells, tiles, warps.ways, target):
            return written + joining_seconds(cells * warps.ways, target.machine)
        return written + nbytes / (memory.read * 1e9) + COMBINES * target.machine.launch.kernel

    @property
    def _again(self) -> bool:
        """Last products read what others read."""
        first, *last = (
            {u.buffer for k in products for u in self.kinds.view.stages[k].uses if u.reads and not u.writes}
            for products in (self.kinds.firsts, *((k,) for k in self.kinds.lasts))
        )
        return not any(map(first.isdisjoint, last))

    def _is_alone(self, warps: _Warps, machine: Machine) -> bool:
        """A core has no local memory for a second group."""
        rows = self.rows(warps)
        # Keys that are values, too, are there twice in any case.
        values = 0 if self._again and warps.turns == TURNS else self.wide
        elements = rows * self.deep + warps.turns * warps.piece * (self.deep + values)
        elements += rows * warps.piece * len(self.kinds.lasts) if self.instruction.team > 1 else 0
        return machine.local is not None and 2 * elements * self.instruction.a.dtype.bytes > machine.local.bytes


@dataclass(frozen=True)
class _Space:
    kinds: RowsInSteps
    row: str
    firsts: tuple[Match, ...]
    """The products that give rows."""
    lasts: tuple[Match, ...]
    """The products that weigh."""
    target: Target

    @property
    def scores(self) -> Match:
        """The first of them."""
        return self.firsts[0]

    @cached_property
    def operands(self) -> tuple[Use, ...]:
        """What the products read from memory; keys that are values once."""
        read = [m.main.use(n) for m in self.firsts for n in (m.left, m.right)]
        lasts = (m.main.use(m.right) for m in self.lasts)
        return (*read, *(u for u in lasts if all(u.name != other.name for other in read)))

    def _turns(self, use: Use, turns: int) -> int:
        """Versions of a copy: what belongs to rows lies there once; keys that are values, too, are used while the next ones arrive."""
        if any(m.left == use.name for m in self.firsts):
            return 1
        keys = any(m.right == use.name for m in self.firsts)
        return TURNS if keys and any(m.right == use.name for m in self.lasts) else turns

    @property
    def _depths(self) -> tuple[str, ...]:
        """The loops that the first products sum over."""
        return tuple(i.name for m in self.firsts for i in m.main.loops)

    @property
    def instruction(self) -> MatrixInstruction:
        return self.scores.instruction

    @property
    def _team(self) -> bool:
        return self.instruction.team > 1

    def ranked(self, threads: int) -> Iterator[tuple[float, _Space, _Warps]]:
        """Those whose cells fit registers, and the cycles that they are expected to take."""
        line = PANEL_BYTES // self.instruction.a.dtype.bytes
        at_once = [n for n in PIECES if n == self.instruction.sides["n"] and n % line == 0]
        sizes = product(WARPS, (1,), at_once, AHEAD) if self._team else product(WARPS, TALL, PIECES, AHEAD)
        for warps in starmap(_Warps, sizes):
            if self.shape.registers(warps) <= CELLS and warps.count * LANES <= threads:
                for ways in self._ways(warps):
                    shared = replace(warps, ways=ways)
                    yield self.shape.cycles(shared, self.target), self, shared

    def _ways(self, warps: _Warps) -> list[int]:
        """Groups that may share a row: where there are few rows, so many that each core has some."""
        kinds, cores = self.kinds, self.target.machine.cores
        groups = prod(-(-i.range // (self._rows(warps) if i.name == self.row else 1)) for i in kinds.view.loops)
        pieces = -(-kinds.view.ranges[kinds.row] // warps.piece)
        if groups >= EACH[-1] * cores or not may_share(kinds):
            return [1]
        wanted = (min(each * cores // groups, pieces // LEAST) for each in EACH)
        return sorted({1, *(-(-pieces // -(-pieces // n)) for n in wanted if n > 1)})

    @cached_property
    def shape(self) -> _Shape:
        deep = sum(map(self._wide, self._depths))
        return _Shape(self.kinds, self.row, self.instruction, deep, sum(map(self._wide, self._columns)))

    @property
    def _columns(self) -> tuple[str, ...]:
        """The loops along the last products' results."""
        return tuple(self.kinds.columns[k] for k in self.kinds.lasts)

    def _rows(self, warps: _Warps) -> int:
        return self.shape.rows(warps)

    def _wide(self, loop: str) -> int:
        return _whole(self.kinds, loop, self.instruction)

    def plan(self, warps: _Warps) -> Plan:
        kinds, sides = self.kinds, self.scores.instruction.sides
        columns = {n: self._wide(n) for n in self._columns}
        depths, rows, along = self._depths, self._rows(warps), [kinds.pieces[k] for k in kinds.lasts]
        grid = (Cover(i.name, rows if i.name == self.row else 1) for i in kinds.view.loops)
        at_once = {n: m.instruction.sides["n"] for n, m in zip(self._columns, self.lasts, strict=True)}
        units = {self.row: sides["m"], kinds.row: sides["n"]} | at_once | dict.fromkeys((*depths, *along), sides["k"])
        levels = (
            Level(Bind.GRID, (*grid, *starmap(Cover, columns.items()))),
            Level(Bind.NONE, (Cover(kinds.row, warps.piece),), ordered=True),
            Level(Bind.SUBGROUP, (Cover(self.row, warps.tall * sides["m"]),)),
            Level(Bind.NONE, tuple(Cover(n, self._wide(n)) for n in depths), ordered=True),
            Level(Bind.UNROLL, tuple(starmap(Cover, units.items()))),
        )
        covered = {self.row: rows, kinds.row: warps.piece} | columns
        covered |= {n: self._wide(n) for n in depths}
        edges = tuple((n, Edge.PAD) for n, size in covered.items() if kinds.view.ranges[n] % size)
        pad = 0 if self._team else COPY_BYTES // self.instruction.a.dtype.bytes
        swizzle = panel_swizzle(self.instruction) if self._team else None
        stagings = tuple(
            Staging(u.buffer, STEPS, "LOCAL", self._order(u), Scope.GROUP, pad, swizzle, self._turns(u, warps.turns))
            for u in self.operands
        )
        across = Across.GROUPS if warps.ways > 1 else Across.SERIAL
        reductions = (
            *(Reduction(n, Across.SERIAL) for n in depths),
            *(Reduction(n, across, warps.ways) for n in along),
        )
        instruction = Instruction(self.scores.instruction.name, self.scores.loops)
        return Plan(levels, stagings, reductions, edges, instruction, self._reason(warps))

    def _order(self, use: Use) -> tuple[str, ...]:
        """The tile's loops as they follow in memory, the closest last; keys that are values lie alike for both of their products."""
        strides, matches = self.kinds.view.type_of(use.buffer).strides, (*self.firsts, *self.lasts)
        mine = {n for match in matches for _, n in match.loops}
        alike = (u for match in matches for u in match.main.uses if u.buffer == use.buffer)
        apart = {n: s for u in alike for f, s in zip(u.forms, strides, strict=True) for n in f.names if n in mine}
        return tuple(sorted(apart, key=lambda n: -apart[n]))

    def _reason(self, warps: _Warps) -> str:
        shared = f", {warps.ways} groups share a row" if warps.ways > 1 else ""
        return (
            f"rows in pieces of {warps.piece}, {self._rows(warps)} rows to a group of {warps.count} sub-groups{shared}"
        )
