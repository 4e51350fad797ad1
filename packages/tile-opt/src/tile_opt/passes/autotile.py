"""autotile: choose tile sizes by the cost model and rewrite each kernel into a nest over tiles.

The nest has a grid over work groups, loops over tiles, and stages over one tile with unrolled and vector
indexes. Operands that the plan packs are copied into panels by kernels of their own, placed in front.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_ir.stripe.nodes import Block, Program, Refinement, Statement
from tile_ir.target import Target

from tile_opt.cost.cpu import CpuModel
from tile_opt.cost.plan import TilePlan
from tile_opt.passes.base import Pass, main_of, with_kernels
from tile_opt.schedule.buffers import with_main_refs
from tile_opt.schedule.nest import build_nest
from tile_opt.schedule.panels import pack_operands
from tile_opt.schedule.rows import vectorize_rows
from tile_opt.schedule.view import KernelView, open_kernel


@dataclass(frozen=True)
class Autotile(Pass):
    """Tile, vectorise and spread every kernel in normal form; `group_ops` is the least work of a group."""

    name: ClassVar[str] = "autotile"
    group_ops: int = 1 << 16
    pack: bool = True

    def apply(self, program: Program, target: Target) -> Program:
        model = CpuModel(target.settings, self.group_ops)
        kernels: list[Statement] = []
        panels: list[Refinement] = []
        for kernel in main_of(program).body:
            view = open_kernel(kernel) if isinstance(kernel, Block) else None
            if view is None:
                kernels.append(kernel)
                continue
            made, new = self._scheduled(view, model)
            kernels += made
            panels += new
        scheduled = with_kernels(program, tuple(kernels))
        if not panels:
            return scheduled
        return with_main_refs(scheduled, (*main_of(scheduled).refs, *panels))

    def _scheduled(self, view: KernelView, model: CpuModel) -> tuple[list[Block], list[Refinement]]:
        plan = model.plan(view)
        if not self.pack or not plan.packed:
            return [_nest(view, plan)], []
        packing = pack_operands(view, plan)
        copies = [_nest(copy, model.plan(copy)) for copy in packing.copies]
        return [*copies, packing.nest], list(packing.buffers)


def _nest(view: KernelView, plan: TilePlan) -> Block:
    return build_nest(vectorize_rows(view, plan.rows), plan)
