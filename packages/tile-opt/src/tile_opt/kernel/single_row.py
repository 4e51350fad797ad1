"""A row of scores by itself, such as that of the one query that decoding has: a shared loop of one iteration, since matrix instructions have rows."""

from __future__ import annotations

from tile_ir.frozen import replace
from tile_ir.names import fresh
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import Index

from tile_opt.kernel.rows_in_steps import RowsInSteps, rows_in_steps
from tile_opt.kernel.view import KernelView, Use


def with_row(view: KernelView) -> KernelView:
    """The kernel with such a loop, where all loops move all that its rows are multiplied with."""
    kinds = rows_in_steps(view)
    if kinds is None or any(i.name not in names_in(u.forms) for i in view.loops for u in _others(kinds)):
        return view
    row = Index(fresh("row", set(view.ranges)), 1)
    mine = {*_of_rows(kinds), *(u for u in view.uses if u.writes and not view.is_local(u.buffer))}
    stages = (s.map_uses(lambda u: _moved(view, u, row.name) if u in mine else u) for s in view.stages)
    return replace(view, loops=(*view.loops, row), stages=tuple(stages))


def _of_rows(kinds: RowsInSteps) -> list[Use]:
    """What first products read for their rows."""
    read = ((k, u) for k in kinds.firsts for u in kinds.operands(k))
    return [u for k, u in read if kinds.pieces[k] not in names_in(u.forms)]


def _others(kinds: RowsInSteps) -> list[Use]:
    """What rows are multiplied with."""
    mine = _of_rows(kinds)
    return [u for k in kinds.products for u in kinds.operands(k) if u not in mine]


def _moved(view: KernelView, use: Use, row: str) -> Use:
    """The access along the loop, in a dimension of one element if there is one."""
    sizes = view.type_of(use.buffer).sizes
    dim = next((d for d, f in enumerate(use.forms) if sizes[d] == 1 and f == Affine()), 0)
    return replace(use, forms=tuple(f + Affine.var(row) if d == dim else f for d, f in enumerate(use.forms)))
