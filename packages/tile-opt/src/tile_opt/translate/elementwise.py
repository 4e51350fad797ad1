"""Elementwise operations, copies and coordinates: one stage over the result's dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.program.macros import expand
from tile_ir.program.nodes import Elementwise, IndexOf, Literal, Operand
from tile_ir.stripe.affine import Affine

from tile_opt.translate.build import Scalar, Stage, broadcast_cell, cell_of, loops_over
from tile_opt.translate.context import Context


def elementwise(context: Context, op: Elementwise) -> None:
    """``R = fn(A, B)``: loads at broadcast cells, one operation, a store."""
    shape = op.type.shape
    if 0 in shape:
        return
    kernel = context.kernel(_text(op), ("eltwise", f"eltwise_{op.fn}"), op.origin)
    stage = kernel.stage(op.fn, loops_over(shape))
    values: dict[Operand, Scalar] = {arg: operand(context, stage, arg, shape) for arg in op.args}
    statements = expand(op.fn, op.args, op.type.dtype)
    for s in statements:
        args = [values[a] if a in values else stage.const_of(a) for a in s.args]
        values[s.dst] = args[0] if s.fn == "ident" else stage.op(s.fn, args, s.dtype, op.name)
    stage.store(context.buffers[op.name], cell_of(shape), values[statements[-1].dst])
    context.add(kernel)


def operand(context: Context, stage: Stage, arg: Operand, shape: Sequence[int]) -> Scalar:
    """The scalar an operand contributes to the current cell of a result of `shape`."""
    if isinstance(arg, Literal):
        return stage.const_of(arg)
    return stage.load(context.buffers[arg], broadcast_cell(context.shape(arg), shape))


def index_of(context: Context, op: IndexOf) -> None:
    """``R = index(A, k)``."""
    shape = op.type.shape
    if 0 in shape:
        return
    kernel = context.kernel(f"{op.name} = index(…, {op.axis})", ("eltwise", "eltwise_index"), op.origin)
    stage = kernel.stage("index", loops_over(shape))
    cell = cell_of(shape)
    stage.store(context.buffers[op.name], cell, stage.index(cell[op.axis], op.type.dtype))
    context.add(kernel)


def copy(context: Context, target: str, value: str) -> None:
    """A program output that is an input, a constant or another output."""
    shape = context.shape(value)
    if 0 in shape:
        return
    kernel = context.kernel(f"{target} = {value}", ("eltwise", "copy"), None)
    stage = kernel.stage("copy", loops_over(shape))
    cell: tuple[Affine, ...] = cell_of(shape)
    stage.store(target, cell, stage.load(context.buffers[value], cell))
    context.add(kernel)


def _text(op: Elementwise) -> str:
    if op.origin is not None and op.origin.is_place:
        text = op.origin.text
        return text if text.endswith(";") else f"{op.name} = {text}"
    args = ", ".join(str(a.value) if isinstance(a, Literal) else a for a in op.args)
    return f"{op.name} = {op.fn}({args})"
