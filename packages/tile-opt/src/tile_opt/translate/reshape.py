"""Reshape: a copy between two shapes of the same elements in C order.

Both shapes are split at the strides they have in common; between those, loops run over the pieces into which
both divide, so that both accesses are affine. Where they do not divide ((2, 3) to (3, 2)), the loops follow
the result and the source's subscripts are quotients of the flat position.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tile_ir.diagnostics import Span
from tile_ir.dtype import DType
from tile_ir.program.nodes import Reshape
from tile_ir.stripe.affine import Affine, DivMod, DivModOp, Quasi
from tile_ir.stripe.nodes import row_major_strides

from tile_opt.translate.build import Loop, Scalar, Stage, cell_of, loops_over
from tile_opt.translate.context import Context

Placed = tuple[str, tuple[int, ...]]
"""A buffer and the shape to read it in."""


def reshape(context: Context, op: Reshape) -> None:
    """``R = reshape(A, …)``: a copy, or with another dtype the same bytes."""
    if op.type.dtype is not context.dtype(op.arg):
        context.views[context.buffers[op.name]] = context.buffers[op.arg]
    elif 0 not in op.type.shape:
        source = (context.buffers[op.arg], context.shape(op.arg))
        target = (context.buffers[op.name], op.type.shape)
        copy_reshaped(context, source, target, f"{op.name} = reshape({op.arg})", op.origin)


def copy_reshaped(context: Context, source: Placed, target: Placed, comment: str, origin: Span | None) -> None:
    """A kernel that copies `source` to `target`, element by element in C order."""
    kernel = context.kernel(comment, ("reshape",), origin)
    pieces = common_pieces(source[1], target[1])
    if pieces is not None:
        loops: list[Loop] = [(f"i{k}", size) for k, (size, _) in enumerate(pieces)]
        stage = kernel.stage("reshape", loops)
        value = stage.load(source[0], _piece_access(pieces, source[1]))
        stage.store(target[0], _piece_access(pieces, target[1]), value)
    else:
        stage = kernel.stage("reshape", loops_over(target[1]))
        cell = cell_of(target[1])
        value = load_flat(stage, source[0], source[1], flat_position(cell, target[1]))
        stage.store(target[0], cell, value)
    context.add(kernel)


def common_pieces(a: Sequence[int], b: Sequence[int]) -> list[tuple[int, int]] | None:
    """(size, stride in elements) of loops, outermost first, that split both shapes; None when there are none."""
    total = 1
    for size in a:
        total *= size
    steps = sorted({1, total, *row_major_strides(tuple(a)), *row_major_strides(tuple(b))})
    if any(high % low for low, high in pairwise(steps)):
        return None
    return [(high // low, low) for low, high in pairwise(steps)][::-1]


def _piece_access(pieces: Sequence[tuple[int, int]], shape: Sequence[int]) -> tuple[Affine, ...]:
    """Subscripts of `shape` from the loops i0, i1, … over common pieces."""
    access: list[Affine] = []
    for size, step in zip(shape, row_major_strides(tuple(shape)), strict=True):
        terms = {f"i{k}": s // step for k, (_, s) in enumerate(pieces) if step <= s < step * size}
        access.append(Affine.of(terms))
    return tuple(access)


def flat_position(cell: Sequence[Affine], shape: Sequence[int]) -> Affine:
    """Number of a cell in C order."""
    flat = Affine()
    for form, step in zip(cell, row_major_strides(tuple(shape)), strict=True):
        flat += form * step
    return flat


def load_flat(stage: Stage, buffer: str, shape: Sequence[int], flat: Affine) -> Scalar:
    """Load element number `flat` of a tensor.

    The first and the last dimension with more than one element need one division; those between need a
    difference of two quotients, which is computed as a scalar.
    """
    real = [d for d, size in enumerate(shape) if size != 1]
    strides = row_major_strides(tuple(shape))
    cell: list[Quasi | Scalar] = [Affine()] * len(shape)
    for d in real:
        if d == real[0]:
            cell[d] = _quotient(flat, strides[d])
        elif d == real[-1]:
            cell[d] = DivMod(flat, shape[d], DivModOp.MOD)
        else:
            cell[d] = _middle(stage, flat, strides[d], shape[d])
    return stage.load(buffer, cell)


def _quotient(flat: Affine, den: int) -> Quasi:
    return flat if den == 1 else DivMod(flat, den, DivModOp.DIV)


def _middle(stage: Stage, flat: Affine, step: int, size: int) -> Scalar:
    """``flat // step - size * (flat // (step * size))``."""
    low = stage.index(_quotient(flat, step), DType.INT64)
    high = stage.index(_quotient(flat, step * size), DType.INT64)
    return low - high * size
