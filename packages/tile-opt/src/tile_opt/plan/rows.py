"""Vectorising a stage along its own loop: whole vectors, then powers of two, with one accumulator per lane."""

from __future__ import annotations

from dataclasses import replace

from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Const, Direction, Index, Load, Refinement, Store, TensorType

from tile_opt.kernel.segments import Segment, cover_exactly
from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import merged_use
from tile_opt.plan.nest import REGISTER
from tile_opt.plan.plans import RowPlan


def vectorize_rows(view: KernelView, rows: tuple[RowPlan, ...]) -> KernelView:
    """`view` with the planned stages replaced by their vector pieces."""
    plans = {r.stage: r for r in rows}
    stages: list[Stage] = []
    allocs = list(view.allocs)
    for k, stage in enumerate(view.stages):
        if k not in plans:
            stages.append(stage)
            continue
        lanes = _lane_accumulator(view, stage, plans[k], {r.into for r in (*view.refs, *allocs)})
        if lanes is not None:
            allocs.append(lanes)
        stages += _pieces(stage, plans[k], lanes)
    return replace(view, stages=tuple(stages), allocs=tuple(allocs))


def _lane_accumulator(view: KernelView, stage: Stage, plan: RowPlan, taken: set[str]) -> Refinement | None:
    """A register per lane for a reduction along the loop; None when the loop reduces nothing."""
    merged = merged_use(stage)
    if merged is None or flat_stride(view, merged, plan.loop) != 0:
        return None
    type = TensorType.row_major(view.type_of(merged.buffer).dtype, (plan.lanes * plan.copies,), align=64)
    name = claim(f"{merged.buffer}_lanes", taken)
    return Refinement(Direction.ALLOC, name, "", (Affine(),), type, loc=REGISTER)


def _pieces(stage: Stage, plan: RowPlan, lanes: Refinement | None) -> list[Stage]:
    loop = next(i for i in stage.loops if i.name == plan.loop)
    segments = cover_exactly(loop.range, plan.lanes * plan.copies, plan.lanes)
    wide = [s for s in segments if s.size % plan.lanes == 0]
    if lanes is None or not wide:
        return [_piece(stage, plan, s, n, None) for n, s in enumerate(segments)]
    pieces = [_piece(stage, plan, s, n, lanes if s in wide else None) for n, s in enumerate(segments)]
    return [_start(stage, lanes, plan), *pieces, _finish(stage, lanes, plan)]


def _piece(stage: Stage, plan: RowPlan, segment: Segment, number: int, lanes: Refinement | None) -> Stage:
    outer, inner = f"{plan.loop}_t", f"{plan.loop}_i"
    loops = [i for i in stage.loops if i.name != plan.loop]
    form = Affine.of({}, segment.start)
    if segment.count > 1:
        loops.append(Index(outer, segment.count))
        form = form + Affine.var(outer, segment.size)
    if segment.size > 1:
        width = plan.lanes if segment.size % plan.lanes == 0 else segment.size
        loops.append(Index(inner, segment.size, bind=Bind.VECTOR, lanes=width))
        form = form + Affine.var(inner)
    moved = stage.substitute({plan.loop: form})
    merged = merged_use(stage)
    if lanes is not None and merged is not None:
        target = replace(merged, buffer=lanes.into, forms=(Affine.var(inner),))
        moved = replace(moved, uses=tuple(target if u.name == merged.name else u for u in moved.uses))
    return replace(moved, name=f"{stage.name}_{number}", loops=tuple(loops))


def _lane_loop(plan: RowPlan) -> Index:
    return Index(f"{plan.loop}_l", plan.lanes * plan.copies, bind=Bind.VECTOR, lanes=plan.lanes)


def _start(stage: Stage, lanes: Refinement, plan: RowPlan) -> Stage:
    merged = merged_use(stage)
    assert merged is not None and merged.agg is not None
    loop = _lane_loop(plan)
    dtype = lanes.type.dtype
    out = Use("acc", lanes.into, (Affine.var(loop.name),), Direction.OUT)
    body = (Const("$z", merged.agg.identity(dtype), dtype), Store("acc", "$z"))
    return Stage(f"{stage.name}_lanes", (loop,), (), (out,), body)


def _finish(stage: Stage, lanes: Refinement, plan: RowPlan) -> Stage:
    merged = merged_use(stage)
    assert merged is not None and merged.agg is not Aggregation.ASSIGN
    loop = _lane_loop(plan)
    source = Use("lanes", lanes.into, (Affine.var(loop.name),), Direction.IN)
    body = (Load("$a", "lanes"), Store(merged.name, "$a"))
    return Stage(f"{stage.name}_sum", (loop,), (), (source, merged), body)
