"""Gather: a load with subscripts that are values, clamped into the tensor."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.frozen import frozen
from tile_ir.program.nodes import Gather, Lookup, Poly, Subscript
from tile_ir.program.printer import print_op
from tile_ir.stripe.affine import Affine, Quasi

from tile_opt.translate.build import Stage, cell_of, loops_over
from tile_opt.translate.context import Context, fill


def gather(context: Context, op: Gather) -> None:
    """``out[i0, i1, …] = data[subscripts…]``; zeros when `data` has no cells."""
    shape, data = op.type.shape, context.shape(op.data)
    if 0 in shape:
        return
    kernel = context.kernel(print_op(op), ("gather",), op.origin)
    target = context.buffers[op.name]
    if 0 in data:
        fill(kernel, "zero", target, shape, 0.0 if op.type.dtype.is_float else 0)
        context.add(kernel)
        return
    stage = kernel.stage("gather", loops_over(shape))
    where = window(context, stage, op.subscripts, data, shape)
    value = stage.load(context.looked_up(op.data), where.access, sizes=where.sizes, at=where.at, clamp=bool(where.at))
    stage.store(target, cell_of(shape), value)
    context.add(kernel)


@frozen
class Window:
    """A view of a tensor and the element in it: all of a dimension that data chooses from, else one cell."""

    access: tuple[Affine, ...]
    sizes: tuple[int, ...]
    at: tuple[Quasi | str, ...]


def window(
    context: Context, stage: Stage, subscripts: Sequence[Subscript], shape: Sequence[int], cells: Sequence[int]
) -> Window:
    """Where the subscripts of a tensor of this shape lead, for the cell of `cells` that the stage visits.

    Data chooses nothing in a dimension of size 1.
    """
    chosen = [s if n > 1 or isinstance(s, Poly) else Poly() for s, n in zip(subscripts, shape, strict=True)]
    at = tuple(_element(context, stage, s, cells) for s in chosen)
    access = tuple(Affine() if isinstance(s, Lookup) else affine(s, cells) for s in chosen)
    sizes = tuple(n if isinstance(s, Lookup) else 1 for s, n in zip(chosen, shape, strict=True))
    return Window(access, sizes, at if any(isinstance(s, Lookup) for s in chosen) else ())


def _element(context: Context, stage: Stage, subscript: Subscript, cells: Sequence[int]) -> Quasi | str:
    if isinstance(subscript, Poly):
        return Affine()
    return stage.load(context.buffers[subscript.tensor], [affine(f, cells) for f in subscript.formulas])


def affine(formula: Poly, cells: Sequence[int]) -> Affine:
    """A formula of coordinates as loops visit them: dimensions of size 1 have none."""
    terms = {n: int(c) for n, c in formula.terms if cells[int(n[1:])] != 1}
    return Affine.of(terms, int(formula.const))
