"""The products of a kernel over rows (`kernel.rows_in_steps`), each as a kernel of its own, which matrix instructions may compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tile_ir.frozen import replace
from tile_ir.matrix import MatrixInstruction
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Direction, Index, Refinement, TensorType

from tile_opt.kernel.instructions import Match, matches
from tile_opt.kernel.rows_in_steps import RowsInSteps
from tile_opt.kernel.view import KernelView, Stage
from tile_opt.kernel.work import merged_use
from tile_opt.plan.builders.row_products import named_apart, with_cell, with_names


def product_views(kinds: RowsInSteps) -> tuple[KernelView, ...]:
    """Each product as a kernel of its own, into one cell; those that give rows by the same loop; of the last ones, weights are in memory."""
    made: list[Stage] = []
    for k in kinds.products:
        made.append(named_apart(kinds.view.stages[k], *made))
    firsts = made[: len(kinds.firsts)]
    scores = (
        _alone(kinds.view, with_cell(s.renamed({kinds.pieces[k]: kinds.row})), kinds.row)
        for k, s in zip(kinds.firsts, firsts, strict=True)
    )
    values = (
        _alone(_with_weights(kinds, k), _on_weights(kinds, k, _as_keys(kinds, firsts, s)), kinds.columns[k])
        for k, s in zip(kinds.lasts, made[len(firsts) :], strict=True)
    )
    return *scores, *values


def _as_keys(kinds: RowsInSteps, firsts: Sequence[Stage], values: Stage) -> Stage:
    """The product into one cell, with the names of keys for those that are its values, too."""
    return with_cell(with_names(values, dict(_again(kinds, firsts, values))))


def _again(kinds: RowsInSteps, firsts: Sequence[Stage], values: Stage) -> Iterator[tuple[str, str]]:
    """What a last product reads of the keys, by its name there, and by that where they are keys."""
    keys = {
        u.buffer: u.name
        for k, s in zip(kinds.firsts, firsts, strict=True)
        for u in s.uses
        if u.reads and not u.writes and any(kinds.pieces[k] in f.names for f in u.forms)
    }
    yield from ((u.name, keys[u.buffer]) for u in values.uses if u.reads and not u.writes and u.buffer in keys)


def _alone(view: KernelView, main: Stage, column: str) -> KernelView:
    """The kernel with nothing but a product, whose loop along its results is shared."""
    out = merged_use(main)
    assert out is not None
    alloc = next(a for a in view.allocs if a.into == out.buffer)
    cell = replace(alloc, type=TensorType.row_major(alloc.type.dtype, (1,) * len(alloc.type.sizes)))
    shared = next(i for i in main.loops if i.name == column)
    main = replace(main, loops=tuple(i for i in main.loops if i is not shared))
    return replace(view, loops=(*view.loops, shared), stages=(main,), allocs=(cell,))


def _with_weights(kinds: RowsInSteps, last: int) -> KernelView:
    """The kernel as if weights were given."""
    view, name = kinds.view, kinds.weights(last)
    extents = (*(i.range for i in _around(kinds)), view.ranges[kinds.row])
    type = TensorType.row_major(view.type_of(name).dtype, extents)
    given = Refinement(Direction.IN, name, name, (Affine(),) * len(extents), type)
    return replace(view, refs=(*view.refs, given), allocs=tuple(a for a in view.allocs if a.into != name))


def _on_weights(kinds: RowsInSteps, last: int, stage: Stage) -> Stage:
    depth = kinds.pieces[last]
    forms = (*(Affine.var(i.name) for i in _around(kinds)), Affine.var(depth))
    return stage.map_uses(lambda use: replace(use, forms=forms) if use.buffer in kinds.wide else use)


def _around(kinds: RowsInSteps) -> tuple[Index, ...]:
    """The shared loops that tell weights apart: groups that share a row have different parts of it, along the row's own loop."""
    moved = {n for k in kinds.products for u in kinds.view.stages[k].uses for f in u.forms for n in f.names}
    return tuple(i for i in kinds.view.loops if i.name in moved)


def match_on(view: KernelView, instruction: MatrixInstruction, row: str, column: str) -> Match | None:
    """The view's product by the instruction with rows and columns along these loops, and nothing left out of it."""
    found = (m for m in matches(view, instruction) if not m.main.constraints and len(m.main.loops) == 1)
    return next((m for m in found if [dict(m.loops)[role] for role in "mn"] == [row, column]), None)
