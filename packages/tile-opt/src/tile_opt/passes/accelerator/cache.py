"""cache: local copies of a block's views: transferred in before the block, used by its body, transferred out after it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from tile_ir.names import claim
from tile_ir.stripe.nodes import Block, Direction, Location, Program, Refinement, Statement
from tile_ir.stripe.walk import buffers_named
from tile_ir.target import Target

from tile_opt.analysis.sets import Sets
from tile_opt.blocks.accesses import writes_all
from tile_opt.blocks.swaps import Clip, clip, local_copy, move
from tile_opt.blocks.tree import blocks_of, rebase, rewrite_matching
from tile_opt.passes.base import Pass


@dataclass(frozen=True)
class Cache(Pass):
    """Blocks with all tags `reqs` keep their views of direction `dirs` in `mem_loc`; `xfer_loc` moves them.

    `ref` limits it to one refinement. A view is read in unless the block writes all of it first.
    """

    places: ClassVar[tuple[str, ...]] = ("mem_loc", "xfer_loc")
    reqs: tuple[str, ...] = ()
    ref: str = ""
    dirs: tuple[str, ...] = ("in", "out", "inout")
    mem_loc: str = "SRAM"
    xfer_loc: str = "DMA"

    def apply(self, program: Program, target: Target) -> Program:
        sets = Sets()
        return rewrite_matching(
            program, self.reqs, lambda block, parents: self._cached(block, parents, sets), inner_first=True
        )

    def _cached(self, block: Block, parents: tuple[Block, ...], sets: Sets) -> Block:
        taken = {r.into for r in block.refs}
        front: list[Statement] = []
        back: list[Statement] = []
        loaded: set[str] = set()
        refs = list(block.refs)
        body = block.body
        for ref in block.refs:
            where = self._wanted(block, ref, parents)
            if where is None:
                continue
            copy = local_copy(ref, claim(f"{ref.into}_{self.mem_loc}", taken), Location(self.mem_loc))
            refs.append(copy)
            if ref.dir is not Direction.OUT or not writes_all(block, ref.into, ref.type.sizes, where.inside, sets):
                loaded.add(ref.into)
                front.append(move(copy, ref, self.xfer_loc, where, "cache_load"))
            if ref.dir is not Direction.IN:
                back.append(move(replace(ref, agg=None), copy, self.xfer_loc, where, "cache_store"))
            body = tuple(rebase(s, ref.into, copy) for s in body)
        if not front and not back:
            return block
        made = tuple(replace(s, deps=()) for s in (*front, *body, *back))
        return replace(block, refs=tuple(_far(r, r.into in loaded) if r.source else r for r in refs), body=made)

    def _wanted(self, block: Block, ref: Refinement, parents: tuple[Block, ...]) -> Clip | None:
        """Where the view lies, when it is one to copy: only inner blocks use it."""
        named = self.ref in ("", ref.into) and ref.dir.value in self.dirs and ref.dir is not Direction.ALLOC
        direct = any(ref.into in buffers_named(s) for s in block.body if not isinstance(s, Block))
        used = any(r.source == ref.into for s in blocks_of(block) for r in s.refs)
        if not named or direct or not used or ref.init.value != "keep" or ref.loc.unit == self.mem_loc:
            return None
        return clip(ref, block, parents)


def _far(ref: Refinement, loaded: bool) -> Refinement:
    """The view behind a copy: it is read where the copy is loaded, and written whole."""
    both = loaded and ref.dir is Direction.OUT
    return replace(ref, agg=None, dir=Direction.INOUT if both else ref.dir)
