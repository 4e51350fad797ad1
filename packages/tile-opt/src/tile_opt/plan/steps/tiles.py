"""A stage by an instruction on tile registers: its sum stays in registers for all steps, its factors are loaded tile by tile.

    tiles of the sum, and of one step's factors
    load the sum, or begin with zeros; steps { load a; load b; instruction [m, n, k]; … }; store the sum

Where the stage is no whole number of tiles it stays as it is. The stage's body stays, too, as the meaning of the instruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.matrix import MatrixInstruction
from tile_ir.matrix.x86 import LOAD_TILE, STORE_TILE, TILE, TILES, ZERO_TILE
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import (
    Const,
    Direction,
    Index,
    Instr,
    Location,
    Refinement,
    Scope,
    Store,
    TensorType,
    iteration_of,
)

from tile_opt.kernel.instructions import Match
from tile_opt.kernel.view import Stage, Use
from tile_opt.kernel.work import merged_use
from tile_opt.plan.steps.fetch_ahead import Ahead
from tile_opt.plan.tree import Nest, Node, map_stages, stages_of

ROW, COLUMN = "tile_row", "tile_column"
TURNS = 2
"""Registers for tiles of which each is in one product alone: one is filled while the other is read."""


def on_tiles(tree: Nest, match: Match, start: Stage | None = None, ahead: Ahead | None = None) -> Nest:
    """`tree`, the steps of the match's stage, by its instruction; `tree` itself where the stage is not made of whole tiles.

    `start` is what sets the sum to zero just before: registers begin so, and it need not. Each step asks for lines `ahead`.
    """
    (stage,) = stages_of(tree)
    made = _Tiled(stage, match)
    if not made.fits:
        return tree if start is None else Nest(tree.name, body=(start, tree))
    asked = ahead.stages(tree, stage, match) if ahead is not None else ()
    steps = map_stages(replace(tree, guard=()), lambda _: made.step(asked))
    first = made.moved(LOAD_TILE) if start is None else made.zeros()
    body = (first, steps, made.moved(STORE_TILE))
    return Nest(tree.name, body=body, guard=tree.guard, allocs=made.allocs)


def zero_start(stages: Sequence[Node], main: str) -> Stage | None:
    """The stage just before the one called `main` that does nothing but set all of its sum to 0."""
    for stage, following in pairwise(stages):
        if isinstance(stage, Stage) and isinstance(following, Stage) and following.name == main:
            total = merged_use(following)
            return stage if total is not None and _sets_zero(stage, total) else None
    return None


def _sets_zero(stage: Stage, total: Use) -> bool:
    match stage.body:
        case (Const(value, number), Store(_, stored)) if value == stored and number == 0 and len(stage.uses) == 1:
            (use,) = stage.uses
            plain = use.agg is None and not (stage.constraints or stage.guard)
            return plain and use.buffer == total.buffer and use.forms == total.forms
        case _:
            return False


@dataclass(frozen=True)
class _Tiled:
    """The stage at one step: so many iterations of its rows, columns and depth."""

    stage: Stage
    match: Match

    @property
    def instruction(self) -> MatrixInstruction:
        return self.match.instruction

    @cached_property
    def loops(self) -> Mapping[str, str]:
        """The loop of each role."""
        return dict(self.match.loops)

    @cached_property
    def aside(self) -> tuple[Index, ...]:
        """The loops that no role has: their iterations have tiles of rows of their own."""
        return tuple(i for i in self.stage.loops if i.name not in self.loops.values())

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Instructions along the loop of each role, rows of all iterations aside; 0 where they leave a remainder."""
        ranges = {i.name: i.range for i in self.stage.loops}
        sides = self.instruction.sides
        lengths = {role: ranges.get(loop, 1) for role, loop in self.loops.items()}
        counts = {role: 0 if n % sides[role] else n // sides[role] for role, n in lengths.items()}
        return counts | {"m": counts["m"] * prod(i.range for i in self.aside)}

    @property
    def fits(self) -> bool:
        """Whole tiles, no more than there are registers for, all rows with the same columns, and no conditions."""
        m, n, k = (self.counts[role] for role in "mnk")
        moved = names_in(self.stage.use(self.match.right).forms)
        plain = not self.stage.constraints and moved.isdisjoint(i.name for i in self.aside)
        return plain and k == 1 and m * n > 0 and m * n + sum(self.held.values()) <= TILES

    def _rows(self, number: int) -> Mapping[str, int]:
        """Where the tile of rows of that number begins: iterations of the loops aside, and of the one of rows."""
        side = self.instruction.sides["m"]
        inside = self.counts["m"] // prod(i.range for i in self.aside)
        aside, at = divmod(number, inside)
        return {self.loops["m"]: at * side} | iteration_of(aside, self.aside)

    @cached_property
    def held(self) -> Mapping[str, int]:
        """Registers for tiles of the first and of the second factor, by the role that the other one does not have."""
        m, n = self.counts["m"], self.counts["n"]
        return {"m": min(m, TURNS) if n == 1 else m, "n": min(n, TURNS) if m == 1 else n}

    # --- registers --------------------------------------------------------------------------------------

    @cached_property
    def allocs(self) -> tuple[Refinement, ...]:
        """Tiles of the sum, and of both factors."""
        m, n = self.counts["m"], self.counts["n"]
        c, a, b = self.instruction.c, self.instruction.a, self.instruction.b
        left, right = self.held["m"], self.held["n"]
        return (
            _registers("sum_tiles", (m, n, *c.sizes), 0, c.dtype),
            _registers("left_tiles", (left, *a.sizes), m * n, a.dtype),
            _registers("right_tiles", (right, *b.sizes), m * n + left, b.dtype),
        )

    # --- what is done with them ---------------------------------------------------------------------------

    def step(self, asked: Sequence[Stage]) -> Nest:
        """Products of all pairs of the factors' tiles, each tile loaded just before the first product that takes it."""
        _, left, right = self.allocs
        body: list[Node] = [*asked]
        for row, column in product(range(self.counts["m"]), range(self.counts["n"])):
            if column == 0:
                body.append(self._move(LOAD_TILE, self.stage.use(self.match.left), left, {"m": row, "k": None}))
            if row == 0:
                body.append(self._move(LOAD_TILE, self.stage.use(self.match.right), right, {"k": None, "n": column}))
            body.append(self._product(row, column))
        return Nest("multiply", body=tuple(body))

    def moved(self, name: str) -> Nest:
        """The sum's tiles from memory to registers, or back."""
        use = merged_use(self.stage)
        assert use is not None, "a match aggregates"
        places = product(range(self.counts["m"]), range(self.counts["n"]))
        body = (self._move(name, use, self.allocs[0], {"m": row, "n": column}) for row, column in places)
        return Nest(f"{name}_{use.name}_all", body=tuple(body))

    def zeros(self) -> Nest:
        """Zeros in the sum's tiles."""
        places = product(range(self.counts["m"]), range(self.counts["n"]))
        body = tuple(self._zero(row, column) for row, column in places)
        return Nest(f"{ZERO_TILE}_all", body=body)

    def _zero(self, row: int, column: int) -> Stage:
        """A tile of zeros."""
        cell = tuple(Index(n, self.instruction.sides[role]) for n, role in zip((ROW, COLUMN), "mn", strict=True))
        at = (Affine((), row), Affine((), column), *(Affine.var(i.name) for i in cell))
        held = Use("dst", self.allocs[0].into, at, Direction.OUT)
        instr = Instr(ZERO_TILE, tuple((i.name, i.range) for i in cell))
        body = (Const("$z", 0, self.instruction.c.dtype), Store("dst", "$z"))
        return Stage(ZERO_TILE, cell, (), (held,), body, instr=instr)

    def _move(self, name: str, use: Use, registers: Refinement, tile: Mapping[str, int | None]) -> Stage:
        """A tile of an operand whose rows and columns have the roles of `tile`, which numbers it along them."""
        cell = tuple(Index(n, self.instruction.sides[role]) for n, role in zip((ROW, COLUMN), tile, strict=True))
        values: dict[str, Affine] = {}
        for (role, number), index in zip(tile.items(), cell, strict=True):
            first = self._rows(number or 0) if role == "m" else {self.loops[role]: (number or 0) * index.range}
            values |= {n: Affine((), at) for n, at in first.items()}
            values[self.loops[role]] += Affine.var(index.name)
        numbers = (number for number in tile.values() if number is not None)
        turns = tuple(Affine((), number % count) for number, count in zip(numbers, registers.type.sizes, strict=False))
        memory = replace(use.substitute(values), agg=None)
        held = Use("tiles", registers.into, (*turns, *(Affine.var(i.name) for i in cell)), Direction.IN)
        ends = (memory, held) if name == LOAD_TILE else (held, memory)
        source = replace(ends[0], name="src", dir=Direction.IN)
        target = replace(ends[1], name="dst", dir=Direction.OUT)
        instr = Instr(name, tuple((i.name, i.range) for i in cell))
        return replace(Stage.copy(f"{name}_{use.name}", cell, source, target), instr=instr)

    def _product(self, row: int, column: int) -> Stage:
        """A pair of the factors' tiles through the instruction."""
        indexes = tuple(Index(self.loops[role], size) for role, size in self.instruction.sides.items())
        m, n, k = (Affine.var(i.name) for i in indexes)
        at, beside = Affine((), row), Affine((), column)
        total, left, right = (a.into for a in self.allocs)
        turns = Affine((), row % self.held["m"]), Affine((), column % self.held["n"])
        places = {self.match.left: (left, (turns[0], m, k)), self.match.right: (right, (turns[1], k, n))}
        uses: list[Use] = []
        for use in self.stage.uses:
            buffer, forms = places.get(use.name, (total, (at, beside, m, n)))
            uses.append(replace(use, buffer=buffer, forms=forms))
        instr = Instr(self.instruction.name, tuple((i.name, i.range) for i in indexes))
        return replace(self.stage, loops=indexes, uses=tuple(uses), instr=instr)


def _registers(name: str, sizes: tuple[int, ...], first: int, dtype: DType) -> Refinement:
    type = TensorType.row_major(dtype, sizes)
    place = Location(TILE, (Affine((), first),), Scope.THREAD)
    return Refinement.allocation(name, type, place)
