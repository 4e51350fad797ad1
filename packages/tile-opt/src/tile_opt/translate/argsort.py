"""Sorting, by what suits the machine and the lines.

On cores pairs of short lines are compared, the first few are kept, or digits counted, of what is wanted where that is a
small part; where many items run, each element finds its own place. Runs merge where keys cannot be taken for integers.
"""

from __future__ import annotations

from tile_ir.dtype import DType
from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Argsort
from tile_ir.semtree.nodes import Bitcast
from tile_ir.stripe.affine import Affine

from tile_opt.translate.build import Kernel, Stage, cell_of, loops_over
from tile_opt.translate.choosing import chosen, is_chosen
from tile_opt.translate.codes import code, code_type
from tile_opt.translate.context import Context, fill
from tile_opt.translate.counting import counted
from tile_opt.translate.keeping import FEW, kept
from tile_opt.translate.merging import merged
from tile_opt.translate.ranking import ranked
from tile_opt.translate.sort import PLACE, Sort


def argsort(context: Context, op: Argsort) -> None:
    """The places of the elements in order."""
    if 0 in op.type.shape:
        return
    if context.shape(op.arg)[op.axis] == 1:
        kernel = Sort(context, op).kernel()
        fill(kernel, "first", context.buffers[op.name], op.type.shape, 0)
        context.add(kernel)
    elif Bitcast.__name__ not in context.target.nodes:
        merged(context, op)
    elif context.target.settings.threads > 1:
        ranked(context, op)
    elif op.type.shape[op.axis] <= FEW and op.type.shape != context.shape(op.arg):
        kept(context, op)
    elif context.shape(op.arg)[op.axis] <= SHORT:
        compared(context, op)
    elif is_chosen(context, op):
        chosen(context, op)
    else:
        counted(context, op)


SHORT = 64
"""Elements of a line up to which comparing all pairs is faster than counting digits."""


def compared(context: Context, op: Argsort) -> None:
    """The places of the elements in order, for lines of SHORT elements at most: each counts those that come before it.

    That takes as many comparisons as a line has pairs, but nothing waits for anything: all of it runs in lanes.
    """
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
