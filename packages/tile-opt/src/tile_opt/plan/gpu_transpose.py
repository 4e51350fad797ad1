"""Elementwise kernels whose operands run along another loop than the output: both sides contiguous, by way of local memory.

A group reads a square of each such operand along the operand's own contiguous loop, and its items then walk
the square along the output's. The pitch of the square is odd, so that neither walk meets one bank twice.
"""

from __future__ import annotations

from dataclasses import replace

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Direction,
    Index,
    Layout,
    Load,
    Location,
    Refinement,
    Scope,
    Statement,
    Store,
    Sync,
    TensorType,
)

from tile_opt.kernel.view import KernelView, Stage, Use, close_stage
from tile_opt.plan.nest import scheduled, whole_refs
from tile_opt.plan.turned import TransposePlan

SIDE = 64
ROW, COLUMN, STEP = "row", "column", "step"


def build_gpu_transpose(view: KernelView, plan: TransposePlan, threads: int) -> Block:
    """The scheduled kernel: squares of the two loops, one iteration of every other loop per group."""
    return _Squares(view, plan, max(1, threads // SIDE)).build()


class _Squares:
    """Builds the kernel; items form `rows` rows of SIDE."""

    def __init__(self, view: KernelView, plan: TransposePlan, rows: int) -> None:
        self.view, self.plan, self.rows = view, plan, rows
        self.stage = view.stages[0]
        self.step = Index(STEP, -(-SIDE // rows), bind=Bind.UNROLL)
        self.base: dict[str, Affine] = {}
        grid: list[Index] = []
        for loop in view.loops:
            size = SIDE if loop.name in (plan.across, plan.along) else 1
            groups = -(-loop.range // size)
            self.base[loop.name] = Affine.var(f"{loop.name}_g", size) if groups > 1 else Affine()
            if groups > 1:
                grid.append(Index(f"{loop.name}_g", groups, bind=Bind.GRID))
        self.grid = tuple(grid)
        self.names = (*(i.name for i in grid), ROW, COLUMN)

    def build(self) -> Block:
        turned = [u for u in self.stage.uses if u.name in self.plan.turned]
        squares = tuple(self._square(u) for u in turned)
        body: list[Statement] = [self._fetch(u, s) for u, s in zip(turned, squares, strict=True)]
        body += [Sync(), self._store(turned, squares)]
        used = {
            n for s in body if isinstance(s, Block) for i in s.indexes if i.value is not None for n in i.value.names
        }
        passed = tuple(Index(g.name, 1, Affine.var(g.name)) for g in self.grid if g.name in used)
        item = Block(
            f"{self.view.name}_item",
            indexes=(*passed, Index(ROW, self.rows, bind=Bind.GROUP), Index(COLUMN, SIDE, bind=Bind.GROUP)),
            refs=whole_refs(self.view, self.view.stages)
            + tuple(replace(s, dir=Direction.INOUT, source=s.into) for s in squares),
            body=tuple(body),
        )
        return scheduled(self.view, self.grid, (item,), squares)

    def _square(self, use: Use) -> Refinement:
        dtype = self.view.type_of(use.buffer).dtype
        type = TensorType(dtype, (SIDE, SIDE), Layout((SIDE + 1, 1), 16))
        loc = Location("LOCAL", scope=Scope.GROUP)
        return Refinement(Direction.ALLOC, f"{use.name}_square", "", (Affine(), Affine()), type, loc=loc)

    def _inside(self) -> Affine:
        return Affine.var(ROW) + Affine.var(STEP, self.rows)

    def _at(self, across: Affine, along: Affine) -> tuple[dict[str, Affine], tuple[Affine, ...]]:
        """Loop iterations for a position in the square, and what keeps it inside the tensors and the square."""
        offsets = {self.plan.across: across, self.plan.along: along}
        forms = {n: b + offsets.get(n, Affine()) for n, b in self.base.items()}
        limits = [forms[n] * -1 + (self.view.ranges[n] - 1) for n in offsets if self.view.ranges[n] % SIDE]
        if self.rows * self.step.range > SIDE:
            limits.append(self._inside() * -1 + (SIDE - 1))
        return forms, tuple(limits)

    def _fetch(self, use: Use, square: Refinement) -> Block:
        """Columns of the square run along the operand."""
        forms, limits = self._at(Affine.var(COLUMN), self._inside())
        stage = Stage(
            f"fetch_{use.name}", (self.step,), limits,
            (
                replace(use, name="src").substitute(forms),
                Use("dst", square.into, (self._inside(), Affine.var(COLUMN)), Direction.OUT),
            ),
            (Load("$x", "src"), Store("dst", "$x")),
        )  # fmt: skip
        return close_stage(stage, self._buffers((square,)), self.names)

    def _store(self, turned: list[Use], squares: tuple[Refinement, ...]) -> Block:
        """Columns of the output run across the square."""
        forms, limits = self._at(self._inside(), Affine.var(COLUMN))
        local = {u.name: s.into for u, s in zip(turned, squares, strict=True)}
        moved = self.stage.substitute(forms)
        uses = tuple(
            replace(u, buffer=local[u.name], forms=(Affine.var(COLUMN), self._inside())) if u.name in local else u
            for u in moved.uses
        )
        stage = replace(moved, loops=(self.step,), uses=uses, constraints=limits)
        return close_stage(stage, self._buffers(squares), self.names)

    def _buffers(self, squares: tuple[Refinement, ...]) -> dict[str, Refinement]:
        return {r.into: r for r in (*self.view.refs, *squares)}
