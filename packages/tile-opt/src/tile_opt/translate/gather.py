"""Gather: a load with subscripts that are values, clamped into the tensor."""

from __future__ import annotations

from tile_ir.program.nodes import Gather
from tile_ir.program.printer import print_op

from tile_opt.translate.build import cell_of, loops_over
from tile_opt.translate.context import Context, fill
from tile_opt.translate.subscripts import window


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
