"""Accumulators: aggregates that memory keeps become cells of the kernel's own for each iteration of its shared loops."""

from __future__ import annotations

from tile_ir.frozen import replace
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Direction, Location, Refinement, Scope, TensorType

from tile_opt.kernel.regroup import unique_loops
from tile_opt.kernel.strides import limits_inside
from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import merged_use

STARTED = 2
"""Stages that touch an aggregate in memory: one starts it, one merges into it."""


def accumulated(view: KernelView) -> KernelView:
    """`view` with an accumulator for each reduction into memory whose cell depends on shared loops only; stored at the end.

    When the kernel itself initialises the cell, the accumulator replaces it; otherwise it is merged into it.
    """
    rewritten = view
    for stage in view.stages:
        use = merged_use(stage)
        if use is not None and stage.loops and not rewritten.is_local(use.buffer):
            rewritten = _privatised(rewritten, stage, use)
    return rewritten


def kept(view: KernelView) -> KernelView:
    """`view` with a cell of its own for what it stores and reads again at the same iteration of its shared loops; stored at the end."""
    for name in sorted(view.writes() & view.reads()):
        stage, use = next((s, u) for s in view.stages for u in s.uses if u.buffer == name)
        if use.dir is Direction.OUT:
            view = _privatised(view, stage, use)
    return view


def stored_last(view: KernelView) -> KernelView:
    """`view`, all of whose loops are its stages' own, with aggregates that it starts in memory in a buffer of its own.

    One more stage stores each, when it is complete.
    """
    for stage in view.stages:
        use = merged_use(stage)
        if use is not None and stage.loops and not view.is_local(use.buffer):
            view = _set_apart(view, use)
    return view


def _set_apart(view: KernelView, use: Use) -> KernelView:
    """Where one stage starts every cell, and one goes on."""
    users = view.users(use.buffer)
    type = view.type_of(use.buffer)
    first, start = users[0]
    whole = {f.names: i.range for f in start.forms for i in first.loops if f == Affine.var(i.name)}
    plain = [whole.get(f.names, 1 if f == Affine() else 0) for f in start.forms] == [*type.sizes]
    if (
        len(users) != STARTED
        or start.agg
        or start.reads
        or first.constraints
        or not plain
        or len(first.loops) < len(whole)
    ):
        return view
    name = claim(f"{use.buffer}_acc", view.buffers)
    whole = TensorType.row_major(type.dtype, type.sizes)
    alloc = Refinement.allocation(name, whole, Location("LOCAL", scope=Scope.THREAD))
    stages = tuple(s.with_buffers({use.buffer: name}) for s in view.stages)
    source = Use("acc", name, start.forms, Direction.IN)
    last = Stage.copy(f"{use.buffer}_store", first.loops, source, replace(start, name="out"), value="$a")
    return unique_loops(replace(view, stages=(*stages, last), allocs=(*view.allocs, alloc)), len(stages))


def _privatised(view: KernelView, stage: Stage, use: Use) -> KernelView:
    shared = {i.name for i in view.loops}
    users = view.users(use.buffer)
    uses = [u for _, u in users]
    if any(not set(f.names) <= shared for u in uses for f in u.forms) or len({u.forms for u in uses}) != 1:
        return view
    if any(u.extent or is_indirect(s, u) for s, u in users):
        return view
    first = uses[0]
    name = claim(f"{use.buffer}_acc", view.buffers)
    local = _cell(name, view.type_of(use.buffer))
    if first.dir is Direction.OUT and first.agg in (None, Aggregation.ASSIGN):
        return _replaced(view, use, name, local)
    return _merged(view, stage, use, name, local)


def _cell(name: str, whole: TensorType) -> Refinement:
    type = TensorType.row_major(whole.dtype, (1,))
    return Refinement.allocation(name, type, Location("REG", scope=Scope.THREAD))


def _replaced(view: KernelView, use: Use, name: str, local: Refinement) -> KernelView:
    """Every use of the cell becomes a use of the accumulator; a last stage stores it."""
    stages = (s.redirected(use.buffer, name, (Affine(),)) for s in view.stages)
    final = _store_stage(view, use, name, None)
    return replace(view, stages=(*stages, final), allocs=(*view.allocs, local))


def _merged(view: KernelView, stage: Stage, use: Use, name: str, local: Refinement) -> KernelView:
    """Around `stage`: start the accumulator at the identity, aggregate into it, merge it into the cell."""
    assert use.agg is not None
    dtype = local.type.dtype
    init = Stage.start(f"{stage.name}_init", (), Use("acc", name, (Affine(),), Direction.OUT), use.agg, dtype)
    inner = stage.map_uses(lambda u: replace(u, buffer=name, forms=(Affine(),)) if u is use else u)
    final = _store_stage(view, use, name, use.agg)
    k = view.stages.index(stage)
    stages = (*view.stages[:k], init, inner, final, *view.stages[k + 1 :])
    return replace(view, stages=stages, allocs=(*view.allocs, local))


def _store_stage(view: KernelView, use: Use, name: str, agg: Aggregation | None) -> Stage:
    direction = Direction.INOUT if agg else Direction.OUT
    out = replace(use, name="out", dir=direction, agg=agg)
    # Shared iterations without a valid tuple may lie outside the buffer.
    outside = limits_inside(use.forms, view.type_of(use.buffer).sizes, view.ranges)
    inside = tuple(c for c in outside if c not in view.constraints)
    return Stage.copy(f"{use.buffer}_store", (), Use("acc", name, (Affine(),), Direction.IN), out, inside, "$a")
