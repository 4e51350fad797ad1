"""Scatter: zeros, then an aggregating store whose first subscript is a value.

The loops over rows are ordered, since two rows may meet in one cell; trailing dimensions are free.
"""

from __future__ import annotations

from tile_ir.ops import Aggregation
from tile_ir.program.nodes import Scatter
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Order

from tile_opt.translate.build import Kernel, Loop, cell_of, loops_over
from tile_opt.translate.context import Context, cast_to, fill


def scatter(context: Context, op: Scatter) -> None:
    """``out[clamp(indices[i…]), r…] += updates[i…, r…]`` over zeros; 16-bit floats accumulate in float32."""
    shape, updates = op.type.shape, context.shape(op.updates)
    if 0 in shape:
        return
    kernel = context.kernel(f"{op.name} = scatter({op.updates}, {op.indices})", ("scatter",), op.origin)
    target, dtype = context.buffers[op.name], op.type.dtype
    acc = dtype.accumulator
    accumulator = target if acc is dtype else kernel.alloc(f"{target}_acc", acc, shape)
    fill(kernel, "zero", accumulator, shape, 0.0 if dtype.is_float else 0)
    if 0 not in updates:
        _add_rows(context, op, kernel, accumulator)
    if accumulator != target:
        stage = kernel.stage("cast", loops_over(shape))
        value = cast_to(stage, stage.load(accumulator, cell_of(shape)), acc, dtype)
        stage.store(target, cell_of(shape), value)
    context.add(kernel)


def _add_rows(context: Context, op: Scatter, kernel: Kernel, accumulator: str) -> None:
    shape, updates = op.type.shape, context.shape(op.updates)
    count = len(context.shape(op.indices))
    loops = loops_over(updates)
    rows = {f"i{d}" for d in range(count)}
    ordered: list[Loop] = [(n, r, Order.ORDERED) if n in rows else (n, r) for n, r, *_ in loops]
    stage = kernel.stage("scatter", ordered)
    cell = cell_of(updates)
    row = stage.load(context.buffers[op.indices], cell[:count])
    value = cast_to(stage, stage.load(context.buffers[op.updates], cell), op.type.dtype, op.type.dtype.accumulator)
    stage.store(
        accumulator,
        (Affine(), *cell[count:]),
        value,
        agg=Aggregation.SUM,
        sizes=(shape[0], *(1 for _ in shape[1:])),
        at=(row, *(Affine() for _ in shape[1:])),
        clamp=True,
    )
