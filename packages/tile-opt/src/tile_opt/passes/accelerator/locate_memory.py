"""locate_memory: say which memory holds the allocations of a block."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tile_ir.stripe.nodes import Block, Direction, Location, Program, Scope, Statement
from tile_ir.target import Target

from tile_opt.blocks.tree import map_inner, rebase, rewrite_matching
from tile_opt.passes.base import Pass


@dataclass(frozen=True)
class LocateMemory(Pass):
    """Allocations of every block with all tags `reqs` (only those tagged `tags`, when given) go to memory `loc`.

    `thread` makes them private to whoever runs the block, such as registers, and those of the blocks within, too.
    """

    places: ClassVar[tuple[str, ...]] = ("loc",)
    reqs: tuple[str, ...] = ()
    loc: str = ""
    tags: tuple[str, ...] = ()
    thread: bool = False

    def apply(self, program: Program, target: Target) -> Program:
        return rewrite_matching(program, self.reqs, lambda block, _: self._located(block), inner_first=True)

    def _located(self, block: Block) -> Block:
        where = Location(self.loc, scope=Scope.THREAD if self.thread else Scope.DEVICE)
        body: tuple[Statement, ...] = block.body
        refs = list(block.refs)
        for number, ref in enumerate(refs):
            if ref.dir is Direction.ALLOC and ref.tags.issuperset(self.tags) and ref.loc != where:
                refs[number] = moved = replace(ref, loc=where)
                body = tuple(rebase(s, ref.into, moved) for s in body)
        located = replace(block, refs=tuple(refs), body=body)
        return map_inner(located, self._located) if self.thread else located
