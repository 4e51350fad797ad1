"""tensor_tile: contractions on the device's matrix instructions, where the user allows reduced precision.

`tensorize` says which loops are an instruction's rows, columns and depth; the model chooses the tiles of groups and
warps. Kernels that do not fit are left to the passes that follow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tile_ir.dtype import DType
from tile_ir.matrix import LANES, MATRIX_INSTRUCTIONS, MatrixInstruction
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Direction, Load, Op, Refinement, Store, TensorType
from tile_ir.target import Target

from tile_opt.kernel.view import KernelView, Stage, Use, close_stage, open_kernel
from tile_opt.kernel.work import is_heavy, merged_use
from tile_opt.model.tensor import TensorModel
from tile_opt.passes.accelerator.tensorize import Match, Stencil, StencilIndex, best_match
from tile_opt.passes.base import KernelPass
from tile_opt.plan.plans import Roles, TensorPlan
from tile_opt.plan.tensor_nest import build_tensor_nest

ANY, UNUSED = -1, 0


@dataclass(frozen=True)
class TensorTile(KernelPass):
    """Matrix instructions for sums of products whose operands a group can copy into local memory."""

    name: ClassVar[str] = "tensor_tile"

    def rewrite(self, kernel: Block, target: Target) -> Block:
        view = open_kernel(kernel)
        plan = None if view is None else self.plan(view, target)
        if view is None or plan is None:
            return kernel
        return build_tensor_nest(view, _main(view), plan, "MatrixLoad" in target.nodes)

    def plan(self, view: KernelView, target: Target) -> TensorPlan | None:
        """The plan for a kernel; None where precision is not to be reduced or no instruction fits."""
        allowed = target.options.reduced_precision and target.machine.subgroup == LANES
        if not allowed or not _one_contraction(view):
            return None
        main = _main(view)
        for name in target.matrix:
            roles = _roles(view, main, MATRIX_INSTRUCTIONS[name])
            plan = None if roles is None else self.model(target).plan(view, roles)
            if plan is not None:
                return plan
        return None

    def model(self, target: Target) -> TensorModel:
        """The cost model for a target."""
        return TensorModel(target.settings, target.settings.static_local_bytes or target.settings.max_mem)


def _main(view: KernelView) -> Stage:
    return next(s for s in view.stages if s.loops)


def _one_contraction(view: KernelView) -> bool:
    """One stage has a loop of its own: a local sum of float32 products over it, free of constraints."""
    looping = [s for s in view.stages if s.loops]
    cells = all(size == 1 for a in view.allocs for size in a.type.sizes)
    if len(looping) != 1 or not cells or not is_heavy(view, looping[0]):
        return False
    (main,) = looping
    out = merged_use(main)
    if out is None or main.constraints or main.guard or len(main.loops) != 1 or not view.is_local(out.buffer):
        return False
    return _adds_a_product(main, out) and view.type_of(out.buffer).dtype is DType.FLOAT32


def _adds_a_product(main: Stage, out: Use) -> bool:
    """The body loads two operands, widens them at most, and adds their product."""
    ops = [s for s in main.body if isinstance(s, Op)]
    loads = [s for s in main.body if isinstance(s, Load)]
    direct = all(isinstance(s, (Load, Op)) or (isinstance(s, Store) and not s.at) for s in main.body)
    read = {s.dst for s in loads}
    # A cast to anything else drops digits, or a range, that the operand in memory still has.
    widened = all(o.dtype is DType.FLOAT32 and set(o.args) <= read for o in ops if o.name == "cast")
    names = sorted(o.name for o in ops if o.name != "cast")
    plain = direct and widened and names == ["mul"] and len(loads) == 2 and not any(s.at for s in loads)
    return out.agg is Aggregation.SUM and plain


def _roles(view: KernelView, main: Stage, instruction: MatrixInstruction) -> Roles | None:
    """The loops that `tensorize` matches with the instruction, and the operands by the loops they depend on."""
    operands = [u for u in main.uses if u.reads and not u.writes]
    if any(view.type_of(u.buffer).dtype is not instruction.dtype or view.is_local(u.buffer) for u in operands):
        return None
    match = best_match(_flat(view, main), (_stencil(instruction),), lambda m: _filled(m, view, main))
    if match is None or not all(_separate(u) for u in operands):
        return None
    rows, columns, reduction = match.names
    left, right = (next((u.name for u in operands if n in _names(u)), "") for n in (rows, columns))
    return Roles(instruction, rows, columns, reduction, left, right)


def _filled(match: Match, view: KernelView, main: Stage) -> bool:
    """The stage's own loop is the depth, and no loop is shorter than the instruction's side."""
    sides = zip(match.names, match.stencil.idxs, strict=True)
    return match.names[-1] == main.loops[0].name and all(n and view.ranges[n] >= i.size for n, i in sides)


def _stencil(instruction: MatrixInstruction) -> Stencil:
    m, n, k = instruction.shape
    return Stencil((
        StencilIndex("m", m, (ANY,), (ANY, UNUSED)),
        StencilIndex("n", n, (ANY,), (UNUSED, ANY)),
        StencilIndex("k", k, (UNUSED,), (ANY, ANY)),
    ))  # fmt: skip


def _flat(view: KernelView, main: Stage) -> Block:
    """The contraction as one block over all loops, its result a cell per iteration of the shared ones."""
    names = [i.name for i in view.loops]
    cells = TensorType.row_major(DType.FLOAT32, tuple(i.range for i in view.loops))
    out = Refinement(Direction.ALLOC, "cells", "", (Affine(),) * len(names), cells)
    uses = tuple(
        replace(u, buffer="cells", forms=tuple(Affine.var(n) for n in names)) if u.writes else u for u in main.uses
    )
    buffers = {r.into: r for r in (*view.refs, out)}
    return close_stage(replace(main, uses=uses, loops=view.loops + main.loops), buffers, ())


def _names(use: Use) -> set[str]:
    return {n for f in use.forms for n in f.names}


def _separate(use: Use) -> bool:
    """Every subscript walks along at most one loop, by ones, and no two along the same: the operand is a box of a matrix."""
    walked = [n for f in use.forms for n in f.names]
    by_ones = all(len(f.names) <= 1 and all(c == 1 for _, c in f.terms) for f in use.forms)
    return by_ones and len(set(walked)) == len(walked)
