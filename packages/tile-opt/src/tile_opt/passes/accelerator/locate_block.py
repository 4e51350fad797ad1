"""locate_block: say which unit runs a block."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tile_ir.stripe.nodes import Location, Program
from tile_ir.target import Target

from tile_opt.blocks.tree import rewrite_matching
from tile_opt.passes.base import Pass


@dataclass(frozen=True)
class LocateBlock(Pass):
    """Every block with all tags `reqs` runs on unit `loc` (``{"name": "CONV"}``); the schedule chooses which one."""

    places: ClassVar[tuple[str, ...]] = ("loc",)
    reqs: tuple[str, ...] = ()
    loc: str = ""

    def apply(self, program: Program, target: Target) -> Program:
        where = Location(self.loc) if self.loc else None
        return rewrite_matching(program, self.reqs, lambda block, _: replace(block, loc=where), inner_first=True)
