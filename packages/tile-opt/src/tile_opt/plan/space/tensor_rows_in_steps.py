"""Plans for kernels over rows that are walked piece by piece (`kernel.rows_in_steps`), on matrix instructions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from tile_ir.machine import Machine
from tile_ir.matrix import LANES, MATRIX_INSTRUCTIONS, MatrixInstruction
from tile_ir.stripe.nodes import Bind, Scope
from tile_ir.target import Target

from tile_opt.kernel.instructions import Match
from tile_opt.kernel.rows_in_steps import RowsInSteps
from tile_opt.kernel.view import Use
from tile_opt.kernel.work import op_cost
from tile_opt.plan.banks import COPY_BYTES
from tile_opt.plan.plan import Across, Cover, Edge, Instruction, Level, Plan, Reduction, Staging
from tile_opt.plan.row_fragments import feeds, match_on, product_views

TALL = (2, 1)
"""Instructions of a sub-group along rows."""
WARPS = (4,)
"""Sub-groups of a group."""
PIECES = (64, 32)
"""Scores of a row in one piece."""
CELLS = 160
"""Registers of an item for scores and results: the rest is for factors, addresses, and what belongs to rows."""
HELD = 1.5
"""Registers for each score: the sum, and half of what is made of it."""
SHARE = 0.35
"""Share of the instructions' rate that they are trusted to reach beside loads of factors and waits: not measured."""
NEAR = 1.5
"""Instructions on a score for each operation that its stages name, counted in machine code: pairs are taken apart and put together."""
STEPS = 3
"""The level whose points bring operands into local memory."""


def plans(kinds: RowsInSteps, row: str, target: Target) -> Iterator[Plan]:
    """Plans on matrix instructions, best first; none where precision is not to be reduced."""
    if not target.options.reduced_precision or target.machine.subgroup != LANES:
        return
    for name in target.matrix:
        instruction = MATRIX_INSTRUCTIONS[name]
        space = _space(kinds, row, instruction, target) if feeds(instruction) else None
        if space is not None:
            yield from map(space.plan, space.ranked(target.settings.threads))


def rate(name: str, machine: Machine) -> float:
    """Products that a core adds up in a cycle by an instruction."""
    return (machine.rate(name) or 1.0) * prod(MATRIX_INSTRUCTIONS[name].shape)


def seconds(kinds: RowsInSteps, plan: Plan, target: Target) -> float:
    """What a run is expected to take: products, and what becomes of each score, on cores that groups share."""
    machine, view, instruction = target.machine, kinds.view, plan.instruction
    assert instruction is not None
    sizes = {c.loop: c.size for c in plan.levels[0].covers}
    rows = prod(sizes[i.name] for i in view.loops)
    groups = prod(-(-i.range // sizes[i.name]) for i in view.loops)
    deep = sum(c.size for c in plan.levels[STEPS].covers) + sizes[kinds.column]
    work = NEAR * sum(op_cost(view.stages[k]) for k in kinds.pieces if k not in (kinds.scores, kinds.values))
    each = deep / (rate(instruction.name, machine) * SHARE) + work / (machine.ports.fma * LANES)
    turns = -(-groups // machine.cores) * rows * view.ranges[kinds.row]
    return turns * each / (machine.clock_ghz * 1e9) + machine.launch.kernel


def _space(kinds: RowsInSteps, row: str, instruction: MatrixInstruction, target: Target) -> _Space | None:
    """The plans by one instruction; None where it does not compute both products."""
    first, second = product_views(kinds)
    scores = match_on(first, instruction, row, kinds.row)
    values = match_on(second, instruction, row, kinds.column)
    if scores is None or values is None:
        return None
    space = _Space(kinds, row, scores, values, target.machine.cores)
    return space if len({u.buffer for u in space.operands}) == len(space.operands) else None


@dataclass(frozen=True, slots=True)
class _Warps:
    """Sub-groups of a group, instructions of each along rows, and scores of a piece."""

    count: int
    tall: int
    piece: int


@dataclass(frozen=True)
class _Space:
    kinds: RowsInSteps
    row: str
    scores: Match
    values: Match
    cores: int

    @property
    def operands(self) -> tuple[Use, ...]:
        """What both products read from memory."""
        first = (self.scores.main.use(n) for n in (self.scores.left, self.scores.right))
        return (*first, self.values.main.use(self.values.right))

    def ranked(self, threads: int) -> list[_Warps]:
        """Those whose cells fit registers, best first."""
        made = (_Warps(*sizes) for sizes in product(WARPS, TALL, PIECES))
        fit = [w for w in made if self._registers(w) <= CELLS and w.count * LANES <= threads]
        return sorted(fit, key=self._time)

    def _registers(self, warps: _Warps) -> float:
        rows = warps.tall * self.scores.instruction.sides["m"]
        return rows * (self._wide(self.kinds.column) + HELD * warps.piece) / LANES

    def _time(self, warps: _Warps) -> float:
        """In proportion to what a run takes: rounds of groups, and factors loaded for each row."""
        rows = self._rows(warps)
        groups = prod(-(-i.range // (rows if i.name == self.row else 1)) for i in self.kinds.view.loops)
        loads = 1 + 1 / warps.tall
        return -(-groups // self.cores) * rows * loads * (1 + 16 / warps.piece)

    def _rows(self, warps: _Warps) -> int:
        return warps.count * warps.tall * self.scores.instruction.sides["m"]

    def _wide(self, loop: str) -> int:
        """Iterations of a loop, in whole instructions along either side of a factor."""
        side = self.scores.instruction.sides["k"]
        return -(-self.kinds.view.ranges[loop] // side) * side

    def plan(self, warps: _Warps) -> Plan:
        kinds, sides = self.kinds, self.scores.instruction.sides
        column, along = kinds.column, kinds.pieces[kinds.values]
        (depth,) = (i.name for i in self.scores.main.loops)
        rows = self._rows(warps)
        grid = (Cover(i.name, rows if i.name == self.row else 1) for i in kinds.view.loops)
        roles = {self.row: "m", kinds.row: "n", column: "n", depth: "k", along: "k"}
        levels = (
            Level(Bind.GRID, (*grid, Cover(column, self._wide(column)))),
            Level(Bind.NONE, (Cover(kinds.row, warps.piece),), ordered=True),
            Level(Bind.SUBGROUP, (Cover(self.row, warps.tall * sides["m"]),)),
            Level(Bind.NONE, (Cover(depth, self._wide(depth)),), ordered=True),
            Level(Bind.UNROLL, tuple(Cover(loop, sides[role]) for loop, role in roles.items())),
        )
        covered = {self.row: rows, kinds.row: warps.piece, column: self._wide(column), depth: self._wide(depth)}
        edges = tuple((n, Edge.PAD) for n, size in covered.items() if kinds.view.ranges[n] % size)
        pad = COPY_BYTES // self.scores.instruction.a.dtype.bytes
        stagings = tuple(Staging(u.buffer, STEPS, "LOCAL", self._order(u), Scope.GROUP, pad=pad) for u in self.operands)
        reductions = tuple(Reduction(n, Across.SERIAL) for n in (depth, along))
        instruction = Instruction(self.scores.instruction.name, self.scores.loops)
        return Plan(levels, stagings, reductions, edges, instruction, self._reason(warps))

    def _order(self, use: Use) -> tuple[str, ...]:
        """The tile's loops as they follow in memory, the closest last."""
        strides = self.kinds.view.type_of(use.buffer).strides
        mine = {n for match in (self.scores, self.values) for _, n in match.loops}
        apart = {n: s for f, s in zip(use.forms, strides, strict=True) for n in f.names if n in mine}
        return tuple(sorted(apart, key=lambda n: -apart[n]))

    def _reason(self, warps: _Warps) -> str:
        return f"rows in pieces of {warps.piece}, {self._rows(warps)} rows to a group of {warps.count} sub-groups"
