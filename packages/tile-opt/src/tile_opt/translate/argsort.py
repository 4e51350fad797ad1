"""Sorting: by counting, or keeping the first few, where cores run scalar steps well; by merging runs elsewhere."""

from __future__ import annotations

from tile_ir.program.nodes import Argsort
from tile_ir.program.text import print_op
from tile_ir.semtree.nodes import Bitcast
from tile_ir.target import Target

from tile_opt.translate.context import Context, fill
from tile_opt.translate.counting import counted
from tile_opt.translate.keeping import FEW, kept
from tile_opt.translate.merging import merged


def argsort(context: Context, op: Argsort) -> None:
    """The places of the elements in order."""
    if 0 in op.type.shape:
        return
    if context.shape(op.arg)[op.axis] == 1:
        kernel = context.kernel(print_op(op), ("argsort",), op.origin)
        fill(kernel, "first", context.buffers[op.name], op.type.shape, 0)
        context.add(kernel)
    elif not _has_cores(context.target):
        merged(context, op)
    elif op.type.shape[op.axis] <= FEW:
        kept(context, op)
    else:
        counted(context, op)


def _has_cores(target: Target) -> bool:
    """A group is one item, and keys can be taken for integers."""
    return target.settings.threads == 1 and Bitcast.__name__ in target.nodes
