"""Gather: a load whose first subscript is a value, clamped into the tensor."""

from __future__ import annotations

from tile_ir.program.nodes import Gather
from tile_ir.stripe.affine import Affine

from tile_opt.translate.build import cell_of, loops_over
from tile_opt.translate.context import Context, fill


def gather(context: Context, op: Gather) -> None:
    """``out[i…, r…] = data[clamp(indices[i…]), r…]``; zeros when `data` has no rows."""
    shape, data = op.type.shape, context.shape(op.data)
    if 0 in shape:
        return
    kernel = context.kernel(f"{op.name} = gather({op.data}, {op.indices})", ("gather",), op.origin)
    target = context.buffers[op.name]
    if data[0] == 0:
        fill(kernel, "zero", target, shape, 0.0 if op.type.dtype.is_float else 0)
        context.add(kernel)
        return
    cell = cell_of(shape)
    count = len(context.shape(op.indices))
    stage = kernel.stage("gather", loops_over(shape))
    row = stage.load(context.buffers[op.indices], cell[:count])
    value = stage.load(
        context.buffers[op.data],
        (Affine(), *cell[count:]),
        sizes=(data[0], *(1 for _ in data[1:])),
        at=(row, *(Affine() for _ in data[1:])),
        clamp=True,
    )
    stage.store(target, cell, value)
    context.add(kernel)
