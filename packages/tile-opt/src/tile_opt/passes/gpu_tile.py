"""gpu_tile: one work item per iteration of the shared loops, groups of neighbouring iterations.

The innermost loops give the items of a group, so that neighbouring items touch neighbouring memory;
everything a stage loops over itself stays a serial loop of the item.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block, Index, Refinement
from tile_ir.target import Target

from tile_opt.cost.gpu import GpuModel
from tile_opt.passes.base import KernelPass
from tile_opt.schedule.gpu_nest import build_gpu_nest
from tile_opt.schedule.nest import ARRAY, REGISTER, whole_refs
from tile_opt.schedule.view import KernelView, Stage, close_stage, open_kernel

AXES = 3
"""Dimensions of a work group."""


@dataclass(frozen=True)
class GpuTile(KernelPass):
    """Spread the shared loops of each kernel over a grid of groups of at most the target's `threads` items."""

    name: ClassVar[str] = "gpu_tile"
    stage: bool = True
    """Stage the operands of contractions with reuse in local memory."""

    def rewrite(self, kernel: Block, target: Target) -> Block:
        view = open_kernel(kernel)
        if view is None or not view.loops:
            return kernel
        staged = GpuModel(target.settings).plan(view) if self.stage else None
        if staged is not None:
            return build_gpu_nest(view, staged)
        return _nest(view, _threads(view, target.settings.threads))


def _threads(view: KernelView, most: int) -> dict[str, int]:
    """Items along each loop: powers of two, innermost loops first."""
    threads: dict[str, int] = {}
    for loop in reversed(view.loops[-AXES:]):
        count = min(most, 1 << (loop.range - 1).bit_length())
        threads[loop.name] = max(1, count)
        most //= threads[loop.name]
    return threads


def _nest(view: KernelView, threads: dict[str, int]) -> Block:
    grid: list[Index] = []
    items: list[Index] = []
    forms: dict[str, Affine] = {}
    constraints: list[Affine] = []
    for loop in view.loops:
        count = threads.get(loop.name, 1)
        groups = -(-loop.range // count)
        form = Affine()
        if groups > 1:
            grid.append(Index(f"{loop.name}_g", groups, bind=Bind.GRID))
            form = form + Affine.var(f"{loop.name}_g", count)
        if count > 1:
            axis = len(items)
            items.append(Index(f"{loop.name}_i", count, bind=Bind.GROUP, axis=axis))
            form = form + Affine.var(f"{loop.name}_i")
        if groups * count > loop.range:
            constraints.append(form * -1 + (loop.range - 1))
        forms[loop.name] = form
    last = len(items) - 1
    items = [replace(i, axis=last - i.axis) for i in items]
    return _blocks(view, tuple(grid), tuple(items), forms, tuple(constraints))


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
    return Block(
        view.name,
        indexes=grid,
        refs=whole_refs(view, view.stages),
        body=(item,),
        tags=view.tags | {"scheduled"},
        comment=view.comment,
        origin=view.origin,
    )


def _mentioned(stages: tuple[Stage, ...], constraints: tuple[Affine, ...]) -> set[str]:
    return {n for s in stages for n in s.names()} | {n for c in constraints for n in c.names}


def _private(alloc: Refinement) -> Refinement:
    one = all(size == 1 for size in alloc.type.sizes)
    return replace(alloc, loc=REGISTER if one else ARRAY)
