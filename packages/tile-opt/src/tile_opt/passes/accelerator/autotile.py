"""autotile: blocks become tiles whose views fit a memory unit, of sizes that a cost model chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tile_ir.diagnostics import Diagnostic, TileDeviceError
from tile_ir.hardware import hardware_model
from tile_ir.stripe.nodes import Block, Program
from tile_ir.target import Target

from tile_opt.blocks.split import can_split, split
from tile_opt.blocks.tree import rewrite_matching
from tile_opt.model.memory_tile import TileRules, TileSearch, is_tileable
from tile_opt.passes.base import Pass


@dataclass(frozen=True)
class Autotile(Pass):
    """Blocks with tags `reqs` become tiles that fit `memory`.

    A tile's views take at most the unit's size (or `mem_KiB`) divided by `pipeline_depth`; `only_po2` and `only_even`
    restrict sizes to powers of two and divisors; `acc_idxs` lets reduction loops be tiled; `min_count` tiles are
    wanted at least; a block that fits whole stays one tile with `elide_trivial` unless tiles are wanted.
    """

    name: ClassVar[str] = "autotile"
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
