"""gpu_tile: one work item per iteration of the shared loops, groups of neighbouring iterations.

The innermost loops give the items of a group, so that neighbouring items touch neighbouring memory;
everything a stage loops over itself stays a serial loop of the item.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block, Index, Order, Refinement, TensorType
from tile_ir.target import HardwareSettings, Target

from tile_opt.kernel.strides import flat_offset, flat_stride
from tile_opt.kernel.view import KernelView, Stage, close_stage, open_kernel
from tile_opt.kernel.work import merged_use
from tile_opt.model.gpu import GpuModel
from tile_opt.passes.base import KernelPass
from tile_opt.plan.gpu_nest import build_gpu_nest
from tile_opt.plan.gpu_rows import build_gpu_rows, plan_rows, plan_staging
from tile_opt.plan.gpu_transpose import SIDE, build_gpu_transpose
from tile_opt.plan.nest import ARRAY, REGISTER, scheduled, whole_refs
from tile_opt.plan.plans import StagePlan
from tile_opt.plan.row_split import RowSplit
from tile_opt.plan.turned import TransposePlan, plan_transpose

WIDE = 4
"""Elements of four bytes in one access."""
LANE = "lane"
IN_FLIGHT = 4
FEW = 64
"""Work items of a group where there are not enough for every multiprocessor."""
FULL_ROW = 32
"""Elements of a row that keep a sub-group busy."""
AXES = 3
"""Dimensions of a work group."""


@dataclass(frozen=True)
class GpuTile(KernelPass):
    """Spread the shared loops of each kernel over a grid of groups of at most the target's `threads` items."""

    name: ClassVar[str] = "gpu_tile"
    stage: bool = True
    """Stage the operands of contractions with reuse in local memory."""
    stage_rows: bool = False
    """Stage the operands of row reductions, too, though each element is used once (as the HAL page's kernels do)."""

    def rewrite(self, kernel: Block, target: Target) -> Block:
        view = open_kernel(kernel)
        if view is None:
            return kernel
        match self.plan(view, target.settings):
            case StagePlan() as staged:
                return build_gpu_nest(view, staged)
            case TransposePlan() as turned:
                return build_gpu_transpose(view, turned, target.settings.threads)
            case RowSplit() as rows:
                return build_gpu_rows(view, rows)
            case None:
                return _nest(view, target.settings) if view.loops else kernel

    def plan(self, view: KernelView, settings: HardwareSettings) -> StagePlan | TransposePlan | RowSplit | None:
        """The schedule for a kernel; None for the plain one, an item per iteration."""
        staged = GpuModel(settings).plan(view) if self.stage else None
        found = staged or plan_transpose(view, SIDE) or plan_rows(view, settings, _least_row(view, settings))
        return plan_staging(view, found, settings) if self.stage_rows and isinstance(found, RowSplit) else found


def _least_row(view: KernelView, settings: HardwareSettings) -> int:
    """Elements from which a row is worth a group: fewer where there are too few rows for an item each."""
    return FULL_ROW if prod(i.range for i in view.loops) >= settings.threads * settings.cores else FULL_ROW // 2


def _wide_loop(view: KernelView) -> str | None:
    """The innermost loop, when every access takes it with stride 0 or 1 and four iterations make one aligned access."""
    loop = view.loops[-1]
    if loop.range % WIDE or any(loop.name in c.names for s in view.stages for c in s.constraints):
        return None
    for stage in view.stages:
        for use in stage.uses:
            if view.is_local(use.buffer):
                continue
            stride = flat_stride(view, use, loop.name)
            others = [flat_stride(view, use, i.name) for i in (*view.loops[:-1], *stage.loops)]
            offset = flat_offset(view, use)
            wide = stride == 1 and offset % WIDE == 0 and all(o % WIDE == 0 for o in others)
            if use.extent or (stride and not wide) or view.type_of(use.buffer).dtype.bytes != 4:
                return None
    return loop.name


def _threads(view: KernelView, most: int, wide: str | None) -> dict[str, int]:
    """Items along each loop: powers of two, innermost loops first."""
    threads: dict[str, int] = {}
    for loop in reversed(view.loops[-AXES:]):
        extent = loop.range // WIDE if loop.name == wide else loop.range
        count = min(most, 1 << (extent - 1).bit_length())
        threads[loop.name] = max(1, count)
        most //= threads[loop.name]
    return threads


def _nest(view: KernelView, settings: HardwareSettings) -> Block:
    total = prod(i.range for i in view.loops)
    busy = settings.threads * settings.cores
    # Few iterations: narrow accesses and small groups reach more multiprocessors.
    wide = _wide_loop(view) if settings.vec_size >= WIDE and total >= WIDE * busy else None
    threads = _threads(view, settings.threads if total >= busy else min(settings.threads, FEW), wide)
    grid: list[Index] = []
    items: list[Index] = []
    forms: dict[str, Affine] = {}
    constraints: list[Affine] = []
    for loop in view.loops:
        lanes = WIDE if loop.name == wide else 1
        extent, count = loop.range // lanes, threads.get(loop.name, 1)
        groups = -(-extent // count)
        form = Affine()
        if groups > 1:
            grid.append(Index(f"{loop.name}_g", groups, bind=Bind.GRID))
            form = form + Affine.var(f"{loop.name}_g", count)
        if count > 1:
            items.append(Index(f"{loop.name}_i", count, bind=Bind.GROUP, axis=len(items)))
            form = form + Affine.var(f"{loop.name}_i")
        if groups * count > extent:
            constraints.append(form * -1 + (extent - 1))
        forms[loop.name] = form * lanes + (Affine.var(LANE) if lanes > 1 else Affine())
    last = len(items) - 1
    items = [replace(i, axis=last - i.axis) for i in items]
    vector = (Index(LANE, WIDE, bind=Bind.VECTOR, lanes=WIDE),) if wide else ()
    several = replace(view, stages=tuple(_several_in_flight(s) for s in view.stages))
    return _blocks(_widened(several, vector), tuple(grid), tuple(items), forms, tuple(constraints))


def _several_in_flight(stage: Stage) -> Stage:
    """Reductions take four iterations of their innermost loop at a time, so that four loads are under way."""
    if merged_use(stage) is None or not stage.loops:
        return stage
    loop = stage.loops[-1]
    tied = any(loop.name in c.names for c in stage.constraints) or loop.order is not Order.FREE
    if tied or loop.bind is not Bind.NONE or loop.range % IN_FLIGHT or loop.range == IN_FLIGHT:
        return stage
    outer = Index(f"{loop.name}_t", loop.range // IN_FLIGHT)
    inner = Index(f"{loop.name}_u", IN_FLIGHT, bind=Bind.UNROLL)
    form = Affine.var(outer.name, IN_FLIGHT) + Affine.var(inner.name)
    return replace(stage.substitute({loop.name: form}), loops=(*stage.loops[:-1], outer, inner))


def _widened(view: KernelView, vector: tuple[Index, ...]) -> KernelView:
    """Every stage runs over the lanes; what is kept per iteration is kept per lane."""
    if not vector:
        return view
    lane = (Affine.var(LANE),)

    def moved(stage: Stage) -> Stage:
        uses = tuple(replace(u, forms=u.forms + lane) if view.is_local(u.buffer) else u for u in stage.uses)
        return replace(stage, loops=stage.loops + vector, uses=uses)

    allocs = tuple(
        replace(
            a, type=TensorType.row_major(a.type.dtype, (*a.type.sizes, WIDE), align=16), access=(*a.access, Affine())
        )
        for a in view.allocs
    )
    return replace(view, stages=tuple(moved(s) for s in view.stages), allocs=allocs)


def _blocks(
    view: KernelView,
    grid: tuple[Index, ...],
    items: tuple[Index, ...],
    forms: dict[str, Affine],
    constraints: tuple[Affine, ...],
) -> Block:
    allocs = tuple(_private(a) for a in view.allocs)
    buffers = {r.into: r for r in (*view.refs, *allocs)}
    names = tuple(i.name for i in (*grid, *items))
    stages = tuple(s.substitute(forms) for s in view.stages)
    passed = tuple(Index(i.name, 1, Affine.var(i.name)) for i in grid if i.name in _mentioned(stages, constraints))
    item = Block(
        f"{view.name}_item",
        indexes=passed + items,
        constraints=constraints,
        refs=whole_refs(view, view.stages) + allocs,
        body=tuple(close_stage(s, buffers, names) for s in stages),
    )
    return scheduled(view, grid, (item,))


def _mentioned(stages: tuple[Stage, ...], constraints: tuple[Affine, ...]) -> set[str]:
    return {n for s in stages for n in s.names()} | {n for c in constraints for n in c.names}


def _private(alloc: Refinement) -> Refinement:
    one = all(size == 1 for size in alloc.type.sizes) or alloc.type.sizes == (1,) * (len(alloc.type.sizes) - 1) + (
        WIDE,
    )
    return replace(alloc, loc=REGISTER if one else ARRAY)
