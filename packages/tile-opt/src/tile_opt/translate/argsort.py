"""Sorting, by what suits the machine and the lines.

On cores the first few are kept, short lines are sorted by a network, or digits counted, of what is wanted where that is a
small part; where many items run, or keys cannot be taken for integers, each element finds its own place.
"""

from __future__ import annotations

from tile_ir.program.nodes import Argsort
from tile_ir.semtree.nodes import Bitcast

from tile_opt.translate.choosing import chosen, is_chosen
from tile_opt.translate.context import Context, fill
from tile_opt.translate.counting import counted
from tile_opt.translate.elements import elements_networked, only_elements
from tile_opt.translate.keeping import FEW, kept
from tile_opt.translate.network import networked, suits
from tile_opt.translate.ranking import ranked
from tile_opt.translate.sort import Sort


def argsort(context: Context, op: Argsort) -> None:
    """The places of the elements in order."""
    if 0 in op.type.shape:
        return
    if context.shape(op.arg)[op.axis] == 1:
        kernel = Sort(context, op).kernel()
        fill(kernel, "first", context.buffers[op.name], op.type.shape, 0)
        context.add(kernel)
    elif context.target.settings.threads > 1 or Bitcast.__name__ not in context.target.nodes:
        ranked(context, op)
    elif op.type.shape[op.axis] <= FEW and op.type.shape != context.shape(op.arg):
        kept(context, op)
    elif suits(context, op) and (elements := only_elements(context, op)) is not None:
        elements_networked(context, op, elements)
    elif suits(context, op):
        networked(context, op)
    elif is_chosen(context, op):
        chosen(context, op)
    else:
        counted(context, op)
