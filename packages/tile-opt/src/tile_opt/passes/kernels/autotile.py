"""autotile: choose tile sizes by a cost model.

Two forms. With `memory` (the slides'), blocks with tags `reqs` become tiles whose views fit that memory unit.
Without it, every kernel in normal form becomes the register-tiled nest of a CPU: a grid over work groups, loops
over tiles, and stages over one tile with unrolled and vector indexes; operands that the plan packs are copied
into panels by kernels of their own, placed in front.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_ir.diagnostics import Diagnostic, TileDeviceError
from tile_ir.hardware import hardware_model
from tile_ir.stripe.nodes import Block, Program, Refinement, Statement
from tile_ir.target import Target

from tile_opt.blocks.buffers import with_main_refs
from tile_opt.blocks.split import can_split, split
from tile_opt.blocks.tree import main_of, rewrite_matching, with_kernels
from tile_opt.kernel.view import KernelView, open_kernel
from tile_opt.model.cpu import CpuModel
from tile_opt.model.memory_tile import TileRules, TileSearch, is_tileable
from tile_opt.passes.base import Pass
from tile_opt.plan.nest import build_nest
from tile_opt.plan.panels import pack_operands
from tile_opt.plan.plans import TilePlan
from tile_opt.plan.rows import vectorize_rows


@dataclass(frozen=True)
class Autotile(Pass):
    """Tile for registers (`group_ops` is the least work of a group), or for `memory`.

    The other options belong to the form with `memory`: a tile's views take at most its size (or `mem_KiB`) divided
    by `pipeline_depth`; `only_po2` and `only_even` restrict sizes to powers of two and divisors; `acc_idxs` lets
    reduction loops be tiled; `min_count` tiles are wanted at least; a block that fits whole stays one tile with
    `elide_trivial` unless tiles are wanted.
    """

    name: ClassVar[str] = "autotile"
    group_ops: int = 1 << 16
    pack: bool = True
    memory: str = ""
    reqs: tuple[str, ...] = ()
    outer_set: tuple[str, ...] = ()
    inner_set: tuple[str, ...] = ()
    only_po2: bool = False
    only_even: bool = False
    pipeline_depth: int = 1
    mem_KiB: float = 0
    acc_idxs: bool = True
    min_count: int = 1
    input_cost: float = 1.0
    output_cost: float = 1.0
    split_factor: float = 0.001
    cache_width: int = 0
    elide_trivial: bool = False
    exclude: tuple[str, ...] = ()

    def apply(self, program: Program, target: Target) -> Program:
        return self._for_memory(program, target) if self.memory or self.reqs else self._for_registers(program, target)

    def _for_memory(self, program: Program, target: Target) -> Program:
        rules = TileRules(
            self._capacity(target), self.only_po2, self.only_even, self.acc_idxs, self.min_count,
            self.input_cost, self.output_cost, self.split_factor, self.cache_width,
        )  # fmt: skip
        return rewrite_matching(program, self.reqs, lambda block, _: self._tiled(block, rules))

    def _tiled(self, block: Block, rules: TileRules) -> Block:
        if not (is_tileable(block) and can_split(block)) or block.tags.intersection(self.exclude):
            return block
        search = TileSearch(block, rules)
        found = search.best()
        if found is None or (self.elide_trivial and found.sizes == search.ranges):
            return block
        return split(block, dict(zip(search.names, found.sizes, strict=True)), self.outer_set, self.inner_set)

    def _capacity(self, target: Target) -> int:
        """Bytes for one tile: a unit of `memory`, or `mem_KiB`, shared by the tiles in flight."""
        if self.mem_KiB:
            return int(self.mem_KiB * 1024) // self.pipeline_depth
        names: tuple[str, ...] = ()
        if target.model:
            units = hardware_model(target.model).mem_units
            if self.memory in units:
                return units[self.memory].bytes // self.pipeline_depth
            names = tuple(units)
        hint = f"memories: {', '.join(names)}" if names else "the target has no hardware model; give mem_KiB"
        raise TileDeviceError(Diagnostic("TILE-E412", f"autotile: there is no memory unit {self.memory!r}", hint=hint))

    def _for_registers(self, program: Program, target: Target) -> Program:
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
