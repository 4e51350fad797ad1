"""Stages that write part of a buffer, rewritten to run over all of it under constraints.

``U[i, j : H, W] = +(A[i - 1, j])`` starts every cell of U, then adds to all rows but the first. Over the whole of U,
with ``i >= 1`` as a constraint, the second stage has the loops of the first, and of whatever else walks U: they can
be shared, and U need not exist.
"""

from __future__ import annotations

from collections.abc import Container, Set

from tile_ir.frozen import replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Index

from tile_opt.kernel.segments import interior
from tile_opt.kernel.view import KernelView, Stage, is_parallel

LONG = 16
"""Places of a dimension from which on one that a stage writes is a border; of fewer it is a digit, which items have all of."""


def writes_each_point(stage: Stage) -> bool:
    """Every loop moves what the stage writes: nothing is reduced."""
    return set(stage.loop_names) <= {n for u in stage.uses if u.writes for f in u.forms for n in f.names}


def widen(
    view: KernelView, loops: Container[str] | None = None, divided: Set[str] = frozenset(), *, read: bool = False
) -> KernelView:
    """`view` with its stages widened along `loops` (None: along all that they can be); reductions stay as they are.

    So do those that write `divided` buffers, of which other kernels write other parts. With `read` stages run over all
    of the kernel's own rows of which they read a part, too.
    """
    taken = {*view.ranges}
    opened = tuple(_placed(view, s, loops, taken) if _is_open(s, divided) else s for s in view.stages)
    stages = tuple(_widened(view, s, loops, read) if _is_open(s, divided) else s for s in opened)
    changed = any(a is not b for a, b in zip(stages, view.stages, strict=True))
    return replace(view, stages=stages) if changed else view


def _is_open(stage: Stage, divided: Set[str]) -> bool:
    return writes_each_point(stage) and divided.isdisjoint(u.buffer for u in stage.uses if u.writes)


def narrow(view: KernelView) -> KernelView:
    """The inverse of `widen`: loops of stages run where the constraints on them alone hold."""
    stages = tuple(narrowed(s) if s.constraints else s for s in view.stages)
    changed = any(a is not b for a, b in zip(stages, view.stages, strict=True))
    return replace(view, stages=stages) if changed else view


def narrowed(stage: Stage) -> Stage:
    """The stage with loops that run where the constraints on them alone hold."""
    for loop in stage.loops:
        own = tuple(c for c in stage.constraints if c.names == (loop.name,))
        low, high = interior(loop.name, own, {loop.name: loop.range}) if own else (0, 0)
        if low < high:
            kept = replace(stage, constraints=tuple(c for c in stage.constraints if c not in own))
            loops = tuple(replace(i, range=high - low) if i.name == loop.name else i for i in stage.loops)
            stage = replace(kept.substitute({loop.name: Affine.var(loop.name) + low}), loops=loops)
    return stage


def _placed(view: KernelView, stage: Stage, loops: Container[str] | None, taken: set[str]) -> Stage:
    """The stage with a loop over each long dimension of which it writes one place, under the constraint that it is there.

    Of rows at an end: vectors would ask of each of their elements whether it is the one amid them.
    """
    writes = [u for u in stage.uses if u.writes]
    if len(writes) != 1 or writes[0].extent or len(view.stages) == 1:
        return stage
    (use,) = writes
    for d, (form, size) in enumerate(zip(use.forms, view.type_of(use.buffer).sizes, strict=True)):
        if form.is_const and size >= LONG and (d + 1 < len(use.forms) or form.const in (0, size - 1)):
            name = claim(f"{use.buffer}_{d}", taken)
            stage = _over(stage, d, Index(name, size)) if loops is None or name in loops else stage
    return stage


def _over(stage: Stage, d: int, loop: Index) -> Stage:
    """The stage with `loop` over dimension `d` of what it writes, where that is the place it writes."""
    use = next(u for u in stage.uses if u.writes)
    cell, place = Affine.var(loop.name), use.forms[d].const
    ends = (cell + -place,) * (place > 0) + (cell * -1 + place,) * (place < loop.range - 1)
    moved = replace(use, forms=(*use.forms[:d], cell, *use.forms[d + 1 :]))
    inner = {n for f in use.forms[d + 1 :] for n in f.names}
    at = next((k for k, i in enumerate(stage.loops) if i.name in inner), len(stage.loops))
    return replace(
        stage,
        loops=(*stage.loops[:at], loop, *stage.loops[at:]),
        uses=tuple(moved if u is use else u for u in stage.uses),
        constraints=(*stage.constraints, *ends),
    )


def _widened(view: KernelView, stage: Stage, loops: Container[str] | None, read: bool) -> Stage:
    for loop in stage.loops:
        whole = _whole(view, stage, loop, read) if loops is None or loop.name in loops else None
        if whole is not None:
            stage = _along(stage, loop, *whole)
    return stage


def _whole(view: KernelView, stage: Stage, loop: Index, read: bool) -> tuple[int, int] | None:
    """(first cell, cells of the dimension) of what the loop alone walks by ones and in part; None when it does not."""
    if not is_parallel(loop):
        return None
    walked = (u for u in stage.uses if u.writes or (read and view.is_local(u.buffer)))
    alone = Affine.var(loop.name).terms
    for use in walked:
        for form, size in zip(use.forms, view.type_of(use.buffer).sizes, strict=True):
            if form.terms == alone and loop.range < size:
                return form.const, size
    return None


def _along(stage: Stage, loop: Index, first: int, size: int) -> Stage:
    """`loop` as one over `size` cells, of which the stage writes those from `first` on."""
    cell = Affine.var(loop.name)
    limits = (cell + -first, cell * -1 + (first + loop.range - 1))
    needed = tuple(c for c in limits if c.bounds({loop.name: (0, size - 1)})[0] < 0)
    moved = stage.substitute({loop.name: cell + -first})
    wide = tuple(replace(i, range=size) if i.name == loop.name else i for i in stage.loops)
    return replace(moved, loops=wide, constraints=moved.constraints + needed)
