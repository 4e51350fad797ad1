"""A stage by an instruction on tile registers: its sum stays in registers for all steps, its factors are loaded tile by tile.

    tiles of the sum, and of one step's factors
    load the sum; steps { load a; load b; rows, columns { instruction [m, n, k] } }; store the sum

Where the stage is no whole number of tiles it stays as it is. The stage's body stays, too, as the meaning of the instruction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.matrix import MatrixInstruction
from tile_ir.matrix.x86 import LOAD_TILE, STORE_TILE, TILE, TILES
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import (
    Bind,
    Direction,
    Index,
    Instr,
    Load,
    Location,
    Refinement,
    Scope,
    Store,
    TensorType,
)

from tile_opt.kernel.instructions import Match
from tile_opt.kernel.view import Stage, Use
from tile_opt.kernel.work import merged_use
from tile_opt.plan.tree import Nest, map_stages, stages_of

ROW, COLUMN = "tile_row", "tile_column"


def on_tiles(tree: Nest, match: Match) -> Nest:
    """`tree`, the steps of the match's stage, by its instruction; `tree` itself where the stage is not made of whole tiles."""
    (stage,) = stages_of(tree)
    made = _Tiled(stage, match)
    if not made.fits:
        return tree
    steps = map_stages(replace(tree, guard=()), lambda _: made.step())
    body = (made.moved(LOAD_TILE), steps, made.moved(STORE_TILE))
    return Nest(tree.name, body=body, guard=tree.guard, allocs=made.allocs)


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
    def counts(self) -> Mapping[str, int]:
        """Instructions along the loop of each role; 0 where they leave a remainder."""
        ranges = {i.name: i.range for i in self.stage.loops}
        sides = self.instruction.sides
        lengths = {role: ranges.get(loop, 1) for role, loop in self.loops.items()}
        return {role: 0 if n % sides[role] else n // sides[role] for role, n in lengths.items()}

    @property
    def fits(self) -> bool:
        """Whole tiles, no more than there are registers for, and nothing but the roles' loops and no conditions."""
        m, n, k = (self.counts[role] for role in "mnk")
        plain = not self.stage.constraints and {i.name for i in self.stage.loops} == {*self.loops.values()}
        return plain and k == 1 and m * n > 0 and m * n + m + n <= TILES

    # --- registers --------------------------------------------------------------------------------------

    @cached_property
    def allocs(self) -> tuple[Refinement, ...]:
        """Tiles of the sum, and of both factors."""
        m, n = self.counts["m"], self.counts["n"]
        c, a, b = self.instruction.c, self.instruction.a, self.instruction.b
        return (
            _registers("sum_tiles", (m, n, *c.sizes), 0, c.dtype),
            _registers("left_tiles", (m, *a.sizes), m * n, a.dtype),
            _registers("right_tiles", (n, *b.sizes), m * n + m, b.dtype),
        )

    def _tiles(self, role: str) -> Index:
        """The index over tiles along a role's loop."""
        return Index(f"{self.loops[role]}_tile", self.counts[role], bind=Bind.UNROLL)

    # --- what is done with them ---------------------------------------------------------------------------

    def step(self) -> Nest:
        """Loads of both factors, and their products."""
        _, left, right = (a.into for a in self.allocs)
        loads = (
            self._move(LOAD_TILE, self.stage.use(self.match.left), left, ("m", "k")),
            self._move(LOAD_TILE, self.stage.use(self.match.right), right, ("k", "n")),
        )
        return Nest("multiply", body=(*loads, self._products()))

    def moved(self, name: str) -> Nest:
        """The sum's tiles from memory to registers, or back."""
        use = merged_use(self.stage)
        assert use is not None, "a match aggregates"
        return self._move(name, use, self.allocs[0].into, ("m", "n"))

    def _move(self, name: str, use: Use, registers: str, sides: tuple[str, str]) -> Nest:
        """Every tile of an operand whose rows and columns have these roles."""
        tiles = tuple(self._tiles(role) for role in sides if role != "k")
        cell = tuple(Index(n, self.instruction.sides[role]) for n, role in zip((ROW, COLUMN), sides, strict=True))
        values: dict[str, Affine] = {}
        for role, index in zip(sides, cell, strict=True):
            tile = Affine() if role == "k" else Affine.var(f"{self.loops[role]}_tile", index.range)
            values[self.loops[role]] = tile + Affine.var(index.name)
        place = tuple(Affine.var(i.name) for i in (*tiles, *cell))
        memory = replace(use.substitute(values), agg=None)
        held = Use("tiles", registers, place, Direction.IN)
        ends = (memory, held) if name == LOAD_TILE else (held, memory)
        source = replace(ends[0], name="src", dir=Direction.IN)
        target = replace(ends[1], name="dst", dir=Direction.OUT)
        instr = Instr(name, tuple((i.name, i.range) for i in cell))
        body = (Load("$x", "src"), Store("dst", "$x"))
        leaf = Stage(f"{name}_{use.name}", cell, (), (source, target), body, instr=instr)
        return Nest(f"{name}_{use.name}_all", tiles, (leaf,))

    def _products(self) -> Nest:
        """Every pair of the factors' tiles through the instruction."""
        indexes = tuple(Index(self.loops[role], size) for role, size in self.instruction.sides.items())
        m, n, k = (Affine.var(i.name) for i in indexes)
        rows, columns = self._tiles("m"), self._tiles("n")
        row, column = Affine.var(rows.name), Affine.var(columns.name)
        total, left, right = (a.into for a in self.allocs)
        places = {self.match.left: (left, (row, m, k)), self.match.right: (right, (column, k, n))}
        uses: list[Use] = []
        for use in self.stage.uses:
            buffer, forms = places.get(use.name, (total, (row, column, m, n)))
            uses.append(replace(use, buffer=buffer, forms=forms))
        instr = Instr(self.instruction.name, tuple((i.name, i.range) for i in indexes))
        leaf = replace(self.stage, loops=indexes, uses=tuple(uses), instr=instr)
        return Nest(f"{self.stage.name}_all", (rows, columns), (leaf,))


def _registers(name: str, sizes: tuple[int, ...], first: int, dtype: DType) -> Refinement:
    type = TensorType.row_major(dtype, sizes)
    place = Location(TILE, (Affine((), first),), Scope.THREAD)
    return Refinement(Direction.ALLOC, name, "", (Affine(),) * len(sizes), type, loc=place)
