"""tile: split blocks by sizes that the configuration gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tile_ir.stripe.nodes import Block, Program
from tile_ir.target import Target

from tile_opt.blocks.split import can_split, split
from tile_opt.blocks.tree import rewrite_matching
from tile_opt.passes.base import Pass


@dataclass(frozen=True)
class Tile(Pass):
    """Blocks with all tags `reqs` become tiles of ``{"x": 8, "co": 16}``; indexes without a size stay whole inside."""

    reqs: tuple[str, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()
    outer_set: tuple[str, ...] = ()
    inner_set: tuple[str, ...] = ()

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Tile:
        given: dict[str, Any] = {**options, "sizes": tuple(dict(options.get("sizes", ())).items())}
        return cls(**given)

    def apply(self, program: Program, target: Target) -> Program:
        return rewrite_matching(program, self.reqs, lambda block, _: self._tiled(block))

    def _tiled(self, block: Block) -> Block:
        return split(block, dict(self.sizes), self.outer_set, self.inner_set) if can_split(block) else block
