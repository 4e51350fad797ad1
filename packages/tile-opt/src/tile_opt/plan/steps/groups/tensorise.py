"""A stage by a matrix instruction: fragments of its factors are loaded from local memory and multiplied pair by pair.

    fragments of both factors
    load a: the matrices of a warp's rows; load b: those of its columns
    rows, columns of the warp in whole instructions { instruction [m, n, k] }

The stage's body stays, as the meaning of the instruction.
"""

from __future__ import annotations

from collections.abc import Collection

from tile_ir.dtype import DType
from tile_ir.frozen import frozen, replace
from tile_ir.matrix import MATRIX_LOADS, ROLES, ROUND, TF32_BITS, MatrixInstruction, Operand, side_by_side
from tile_ir.stripe.affine import Affine, DivMod, DivModOp, Quasi
from tile_ir.stripe.nodes import Bind, Direction, Index, Instr, Refinement, TensorType

from tile_opt.kernel.instructions import Match
from tile_opt.kernel.view import Stage, Use, as_forms
from tile_opt.plan.steps.digits import lanes_agree
from tile_opt.plan.steps.groups.fragments import FRAGMENT, LANE_INDEXES, fragment_type, walk
from tile_opt.plan.tree import Around, Nest

PAIR = 2
"""Matrices of the second factor that one collective load fetches."""


@frozen
class Factor:
    """A factor of the stage on its way from local memory into fragments."""

    use: Use
    operand: Operand
    sides: tuple[str, str]
    """The roles of its rows and columns."""
    around: tuple[Index, ...]
    """Loops around a warp's matrices."""
    tiles: Index
    """The matrices of a warp that are loaded."""
    alloc: Refinement
    held: bool = False
    """It lies in fragments already: those of all slices of the depth."""


def tile_name(loop: str) -> str:
    """The index over the instructions along a loop."""
    return f"{loop}_t"


def accumulators(alloc: Refinement, instruction: MatrixInstruction, counts: tuple[int, ...]) -> Refinement:
    """A cell of a kernel's own becomes fragments for so many instructions, along rows and columns last."""
    return _in_fragments(alloc, instruction.c, (*alloc.type.sizes, *counts))


def _in_fragments(alloc: Refinement, operand: Operand, tiles: tuple[int, ...]) -> Refinement:
    type = fragment_type(alloc.type.dtype, operand, tiles)
    return replace(alloc, type=type, access=(Affine(),) * len(type.sizes), loc=FRAGMENT)


def tensorise(match: Match, around: Around, *, collective: bool, rounded: bool = False) -> Nest:
    """The match's stage by instructions; the ranges of its three loops are multiples of the instruction's sides.

    Other loops of the stage are loops over whole instructions, which the first factor and the sum follow. Its factors lie in local memory, its sum in `accumulators`. With `collective` the lanes load 16-bit fragments together. The items of a team round
    what they read of a `rounded` first factor.
    """
    return _Tensorised(match, match.main, around, collective, rounded).nest()


def on_fragments(
    stage: Stage,
    instruction: MatrixInstruction,
    beside: tuple[Index, ...],
    rows: Index,
    columns: Index,
    sums: Collection[str],
) -> Stage:
    """A stage over a tile whose cells lie in fragments, some for each point of `beside`: each lane does the elements that it holds."""
    steps = walk(instruction.c, "cell")
    tiles: list[Index] = []
    values: dict[str, Affine] = {}
    for side, loop, at in zip(instruction.c.sizes, (rows, columns), (steps.row, steps.column), strict=True):
        tiles.append(Index(tile_name(loop.name), loop.range // side, bind=Bind.UNROLL))
        values[loop.name] = Affine.var(tile_name(loop.name), side) + at
    tiles = [*(replace(i, bind=Bind.UNROLL) for i in beside), *tiles]
    inside = (*(Affine.var(t.name) for t in tiles), steps.row, steps.column)
    moved = stage.substitute(values)
    uses = tuple(replace(u, forms=u.forms + inside) if u.buffer in sums else u for u in moved.uses)
    *outer, last = steps.registers
    loops = (*tiles, *LANE_INDEXES, *outer, replace(last, bind=Bind.VECTOR, lanes=last.range))
    return replace(moved, uses=uses, loops=loops, constraints=tuple(_of_first(c, last) for c in moved.constraints))


def _of_first(constraint: Affine, lanes: Index) -> Affine:
    """What is asked once for all lanes where they agree, so that they store together."""
    agree = lanes_agree(constraint, lanes.name, lanes.range)
    return constraint.substitute({lanes.name: Affine()}) if agree else constraint


@frozen
class _Tensorised:
    match: Match
    stage: Stage
    around: Around
    collective: bool
    rounded: bool

    def _loop(self, role: str) -> str:
        return dict(self.match.loops)[role]

    def nest(self) -> Nest:
        if self.match.instruction.team > 1:
            return self._together_on_panels()
        left, right = self._factor(self.match.left, ("m", "k")), self._factor(self.match.right, ("k", "n"))
        slices = replace(self._tiles("k"), bind=Bind.UNROLL)
        loaded = [factor for factor in (left, right) if not factor.held]
        body = (*map(self._load, loaded), self._instructions(left, right))
        return Nest("multiply", (slices,), body, allocs=tuple(factor.alloc for factor in loaded))

    @property
    def _beside(self) -> tuple[Index, ...]:
        """Loops of the stage that no side of the instruction has."""
        sides = {loop for _, loop in self.match.loops}
        return tuple(replace(i, bind=Bind.UNROLL) for i in self.stage.loops if i.name not in sides)

    def _around(self, first: bool) -> tuple[Index, ...]:
        """Loops around the matrices of a factor."""
        return self._beside if first else ()

    def _tiles(self, role: str) -> Index:
        """The index over instructions along a role's loop."""
        name = self._loop(role)
        loop = next(i for i in self.stage.loops if i.name == name)
        return Index(tile_name(name), loop.range // self.match.instruction.sides[role], bind=Bind.UNROLL)

    def _factor(self, name: str, sides: tuple[str, str]) -> Factor:
        use = self.stage.use(name)
        instruction = self.match.instruction
        first = sides[0] != "k"
        operand, tiles = (instruction.a, self._tiles("m")) if first else (instruction.b, self._tiles("n"))
        whole = self.around.buffers[use.buffer]
        if self.around.in_registers(use.buffer):
            return Factor(use, operand, sides, self._around(first), tiles, whole, held=True)
        if not first and self._together(use) and tiles.range % PAIR == 0:
            operand = side_by_side(operand, PAIR)
            tiles = replace(tiles, name=f"{tiles.name}_pair", range=tiles.range // PAIR)
        alloc = Refinement(Direction.ALLOC, f"{name}_fragments", "", (), TensorType.row_major(whole.type.dtype, ()))
        around = self._around(first)
        counts = (*(i.range for i in around), tiles.range)
        return Factor(use, operand, sides, around, tiles, _in_fragments(alloc, operand, counts))

    # --- loads ------------------------------------------------------------------------------------------

    def _stride(self, use: Use, role: str) -> int:
        """Elements between neighbours along a role's loop, in local memory."""
        strides = self.around.buffers[use.buffer].type.strides
        forms = use.forms[-len(strides) :]  # the first of them may select a version
        return sum(f.coefficient(self._loop(role)) * s for f, s in zip(forms, strides, strict=True))

    def _together(self, use: Use) -> bool:
        """The lanes load its fragments together: lines of 16-bit elements that are neighbours."""
        lines = 1 in (self._stride(use, role) for role in ROLES)
        return self.collective and lines and self.around.buffers[use.buffer].type.dtype.bytes == 2

    def _load(self, factor: Factor) -> Nest | Stage:
        """Local memory to fragments: together, or every lane its own elements."""
        name = f"load_{factor.use.name}"
        if not self._together(factor.use):
            steps = walk(factor.operand, factor.use.name)
            rounded = factor.operand.dtype is DType.FLOAT32
            instr = Instr(ROUND, params=(TF32_BITS,)) if rounded else None
            loops = (*factor.around, factor.tiles, *LANE_INDEXES, *steps.registers)
            return replace(Stage.copy(name, loops, *self._moves(factor, steps.row, steps.column)), instr=instr)
        indexes = tuple(Index(n, size) for n, size in zip(("row", "column"), factor.operand.sizes, strict=True))
        row, column = (Affine.var(i.name) for i in indexes)
        transposed = self._stride(factor.use, "k") != 1
        instr = Instr(MATRIX_LOADS[transposed], tuple((i.name, i.range) for i in indexes))
        leaf = replace(Stage.copy(name, indexes, *self._moves(factor, row, column)), instr=instr)
        return Nest(f"{name}_all", (*factor.around, factor.tiles), (leaf,))

    def _moves(self, factor: Factor, row: Affine, column: Affine) -> tuple[Use, Use]:
        """Element (row, column) of a matrix: where it lies in local memory, and its fragment."""
        tile = Affine.var(factor.tiles.name)
        sides = self.match.instruction.sides
        values: dict[str, Affine] = {}
        for role, at, length in zip(factor.sides, (row, column), factor.operand.sizes, strict=True):
            loop = self._loop(role)
            number, length = (Affine.var(tile_name(loop)), sides["k"]) if role == "k" else (tile, length)
            values[loop] = number * length + at
        source = replace(factor.use.substitute(values), name="src")
        around = (Affine.var(i.name) for i in factor.around)
        return source, Use("dst", factor.alloc.into, (*around, tile, row, column), Direction.OUT)

    # --- products ---------------------------------------------------------------------------------------

    def _together_on_panels(self) -> Nest:
        """The factors stay in local memory; the sums are pieces of the instruction's columns."""
        indexes = tuple(Index(role, size) for role, size in self.match.instruction.sides.items())
        tiles = {role: self._tiles(role) for role in ROLES}
        values = {self._loop(i.name): Affine.var(tiles[i.name].name, i.range) + Affine.var(i.name) for i in indexes}
        m, n, wide = Affine.var("m"), values[self._loop("n")], self.match.instruction.c.sizes[1]
        pieces = tuple(DivMod(n, wide, op) for op in (DivModOp.DIV, DivModOp.MOD))
        beside = tuple(Affine.var(i.name) for i in self._beside)
        place = (*beside, Affine.var(tiles["m"].name), pieces[0], m, pieces[1])
        factors = (self.match.left, self.match.right)
        moved = self.stage.substitute(values)
        uses = tuple(u if u.name in factors else replace(u, forms=(*u.forms, *place)) for u in moved.uses)
        params = (TF32_BITS,) if self.rounded else ()
        instr = Instr(self.match.instruction.name, tuple((i.name, i.range) for i in indexes), params)
        leaf = replace(moved, loops=indexes, uses=uses, instr=instr)
        loops = (tiles["k"], *self._beside, tiles["m"], tiles["n"])
        return Nest("multiply", tuple(replace(i, bind=Bind.UNROLL) for i in loops), (leaf,))

    def _instructions(self, left: Factor, right: Factor) -> Nest:
        """Every pair of the fragments through the instruction."""
        indexes = tuple(Index(role, size) for role, size in self.match.instruction.sides.items())
        m, n, k = (Affine.var(i.name) for i in indexes)
        rows, columns = self._tiles("m"), self._tiles("n")
        row, column = Affine.var(rows.name), Affine.var(columns.name)
        beside = tuple(Affine.var(i.name) for i in self._beside)
        # All slices of a factor that was not loaded here are in its fragments.
        place = (*left.use.forms, row, Affine.var(self._tiles("k").name)) if left.held else (*beside, row)
        places = {left.use.name: (left.alloc.into, as_forms((*place, m, k)))}
        places[right.use.name] = right.alloc.into, as_forms(self._of_pair(right, column, k, n))
        uses: list[Use] = []
        for use in self.stage.uses:
            buffer, forms = places.get(use.name, (use.buffer, (*use.forms, *beside, row, column, m, n)))
            uses.append(replace(use, buffer=buffer, forms=forms))
        instr = Instr(self.match.instruction.name, tuple((i.name, i.range) for i in indexes))
        leaf = replace(self.stage, loops=indexes, uses=tuple(uses), instr=instr)
        return Nest(f"{self.stage.name}_all", (*self._beside, rows, columns), (leaf,))

    def _of_pair(self, right: Factor, column: Affine, k: Affine, n: Affine) -> tuple[Quasi, ...]:
        """The element (k, n) of the matrix of a column, which may be the second of a pair."""
        if right.operand is self.match.instruction.b:
            return column, k, n
        pair, second = (DivMod(column, PAIR, op) for op in (DivModOp.DIV, DivModOp.MOD))
        return pair, k, replace(second, scale=self.match.instruction.sides["n"], plus=n)
