"""Sorting short lines: each element counts those that come before it, which is its place in order.

That takes as many comparisons as a line has pairs, but nothing waits for anything: all of it runs in lanes.
"""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Argsort
from tile_ir.stripe.affine import Affine

from tile_opt.translate.build import Kernel, Stage, cell_of, loops_over
from tile_opt.translate.codes import code, code_type
from tile_opt.translate.context import Context, fill
from tile_opt.translate.sort import PLACE, Sort

SHORT = 64
"""Elements of a line up to which comparing all pairs is faster than counting digits."""


def compared(context: Context, op: Argsort) -> None:
    """The places of the elements in order, for lines of SHORT elements at most."""
    shape, dtype = context.shape(op.arg), context.dtype(op.arg)
    kernel = Sort(context, op).kernel()
    codes, ranks = kernel.alloc("codes", code_type(dtype), shape), kernel.alloc("ranks", PLACE, shape)
    stage = kernel.stage("codes", loops_over(shape))
    key = stage.load(context.buffers[op.arg], cell_of(shape))
    stage.store(codes, cell_of(shape), code(stage, key, dtype, op.descending))
    fill(kernel, "none", ranks, shape, 0)
    _rank(kernel, codes, ranks, shape, op.axis)
    found = context.buffers[op.name] if shape == op.type.shape else kernel.alloc("places", PLACE, shape)
    _place(kernel.stage("places", loops_over(shape)), ranks, found, shape, op.axis)
    if shape != op.type.shape:
        stage = kernel.stage("wanted", loops_over(op.type.shape))
        stage.store(context.buffers[op.name], cell_of(op.type.shape), stage.load(found, cell_of(op.type.shape)))
    context.add(kernel)


def _rank(kernel: Kernel, codes: str, ranks: str, shape: tuple[int, ...], axis: int) -> None:
    """How many elements of the line are smaller, or equal and stand before."""
    stage = kernel.stage("rank", [*loops_over(shape), ("j", shape[axis])])
    cell, other = cell_of(shape), Affine.var("j")
    mine = stage.load(codes, cell)
    its = stage.load(codes, (*cell[:axis], other, *cell[axis + 1 :]))
    smaller, equal = (stage.op(test, (its, mine), DType.BOOL) for test in ("cmp_lt", "cmp_eq"))
    ahead = stage.op("cmp_lt", (stage.index(other, PLACE), stage.index(cell[axis], PLACE)), DType.BOOL)
    before = stage.op("bit_or", (smaller, stage.op("bit_and", (equal, ahead), DType.BOOL)), DType.BOOL)
    stage.store(ranks, cell, stage.op("cast", (before,), PLACE), agg=Aggregation.SUM)


def _place(stage: Stage, ranks: str, found: str, shape: tuple[int, ...], axis: int) -> None:
    """Each element's place where its rank is: no two have the same."""
    cell = cell_of(shape)
    access = (*cell[:axis], Affine(), *cell[axis + 1 :])
    sizes = tuple(n if d == axis else 1 for d, n in enumerate(shape))
    at = tuple(stage.load(ranks, cell) if d == axis else Affine() for d in range(len(shape)))
    stage.store(found, access, stage.index(cell[axis], PLACE), sizes=sizes, at=at, clamp=True)
