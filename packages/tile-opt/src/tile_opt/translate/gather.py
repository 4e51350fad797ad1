"""Gather: a load with subscripts that are values, clamped into the tensor."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.program.nodes import Gather, Poly, Subscript
from tile_ir.program.printer import print_op
from tile_ir.stripe.affine import Affine

from tile_opt.translate.build import Cell, Scalar, Stage, cell_of, loops_over
from tile_opt.translate.context import Context, fill


def gather(context: Context, op: Gather) -> None:
    """``out[i0, i1, …] = data[subscripts…]``; zeros when `data` has no cells."""
    shape, data = op.type.shape, context.shape(op.data)
    if 0 in shape or op.name in context.done:
        return
    kernel = context.kernel(print_op(op), ("gather",), op.origin)
    target = context.buffers[op.name]
    if 0 in data:
        fill(kernel, "zero", target, shape, 0.0 if op.type.dtype.is_float else 0)
        context.add(kernel)
        return
    stage = kernel.stage("gather", loops_over(shape))
    cell = looked_up(context, stage, op.subscripts, data, shape)
    stage.store(target, cell_of(shape), stage.load(context.looked_up(op.data), cell, clamp=True))
    context.add(kernel)


def looked_up(
    context: Context, stage: Stage, subscripts: Sequence[Subscript], shape: Sequence[int], cells: Sequence[int]
) -> Cell:
    """Where the subscripts of a tensor of this shape lead, for the cell of `cells` that the stage visits.

    Data chooses nothing in a dimension of size 1.
    """
    chosen = (s if n > 1 or isinstance(s, Poly) else Poly() for s, n in zip(subscripts, shape, strict=True))
    return [_subscript(context, stage, s, cells) for s in chosen]


def _subscript(context: Context, stage: Stage, subscript: Subscript, cells: Sequence[int]) -> Affine | Scalar:
    if isinstance(subscript, Poly):
        return affine(subscript, cells)
    return stage.load(context.buffers[subscript.tensor], [affine(f, cells) for f in subscript.formulas])


def affine(formula: Poly, cells: Sequence[int]) -> Affine:
    """A formula of coordinates as loops visit them: dimensions of size 1 have none."""
    terms = {n: int(c) for n, c in formula.terms if cells[int(n[1:])] != 1}
    return Affine.of(terms, int(formula.const))
