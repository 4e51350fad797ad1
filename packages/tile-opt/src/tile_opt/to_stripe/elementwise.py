"""Elementwise operations, copies and coordinates: one stage over the result's dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tile_ir.dtype import DType
from tile_ir.stripe.affine import Affine
from tile_lang.program import Elementwise, IndexOf, Literal, Operand

from tile_opt.to_stripe.build import Stage, broadcast_cell, cell_of, loops_over
from tile_opt.to_stripe.context import Context

Expansion = Callable[[Stage, Sequence[str], DType], str]


def _relu(stage: Stage, args: Sequence[str], dtype: DType) -> str:
    zero = stage.const(0.0 if dtype.is_float else 0, dtype)
    return stage.op("cond", (stage.op("cmp_lt", (args[0], zero), DType.BOOL), zero, args[0]), dtype)


def _sigmoid(stage: Stage, args: Sequence[str], dtype: DType) -> str:
    one = stage.const(1.0, dtype)
    power = stage.op("exp", (stage.op("neg", args, dtype),), dtype)
    return stage.op("div", (one, stage.op("add", (one, power), dtype)), dtype)


def _same(stage: Stage, args: Sequence[str], dtype: DType) -> str:
    return args[0]


MACROS: dict[str, Expansion] = {
    "relu": _relu,
    "sigmoid": _sigmoid,
    "stop_gradient": _same,
    "reverse_grad": _same,
    "ident": _same,
}
"""Functions that the program keeps whole for their derivatives, and what they compute."""


def elementwise(context: Context, op: Elementwise) -> None:
    """``R = fn(A, B)``: loads at broadcast cells, one operation, a store."""
    shape = op.type.shape
    if 0 in shape:
        return
    kernel = context.kernel(_text(op), ("eltwise", f"eltwise_{op.fn}"), op.origin)
    stage = kernel.stage(op.fn, loops_over(shape))
    args = [operand(context, stage, arg, shape) for arg in op.args]
    expand = MACROS.get(op.fn)
    value = expand(stage, args, op.type.dtype) if expand else stage.op(op.fn, args, op.type.dtype, op.name)
    stage.store(context.buffers[op.name], cell_of(shape), value)
    context.add(kernel)


def operand(context: Context, stage: Stage, arg: Operand, shape: Sequence[int]) -> str:
    """The scalar an operand contributes to the current cell of a result of `shape`."""
    if isinstance(arg, Literal):
        return stage.const(arg.value, arg.dtype)
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
    if op.origin is not None:
        return op.origin.text
    args = ", ".join(str(a.value) if isinstance(a, Literal) else a for a in op.args)
    return f"{op.name} = {op.fn}({args})"
