"""prune: remove what changes nothing: loops of one iteration, unused views, dead buffers, blocks around one block."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import Block, Direction, Program, Refinement, Special, Statement
from tile_ir.stripe.walk import buffers_named, buffers_read, buffers_written, index_names, with_indexes
from tile_ir.target import Target

from tile_opt.blocks.split import collapse
from tile_opt.blocks.tree import map_inner, outside_names, rewrite_matching
from tile_opt.passes.base import Pass


@dataclass(frozen=True)
class Prune(Pass):
    """In every block with all tags `reqs` and the blocks within; each kind can be kept."""

    reqs: tuple[str, ...] = ("main",)
    indexes: bool = True
    refinements: bool = True
    dead_code: bool = True
    nests: bool = True

    def apply(self, program: Program, target: Target) -> Program:
        seen = outside_names(program)
        return rewrite_matching(program, self.reqs, lambda block, parents: self._pruned(block, len(parents), seen))

    def _pruned(self, block: Block, depth: int, seen: frozenset[str]) -> Block:
        """`depth` counts the blocks around it: 0 is the entry, 1 holds the kernels; `seen` are buffers of the user's."""
        block = map_inner(block, lambda inner: self._pruned(inner, depth + 1, seen))
        if self.nests and depth:
            block = map_inner(block, collapse)
        if self.indexes:
            block = without_unit_indexes(block)
        if self.dead_code:
            block = without_dead_stores(block, seen)
        return without_unused_refs(block) if self.refinements and depth > 1 else block


def without_unit_indexes(block: Block) -> Block:
    """Indexes of range 1 become zero; passed-down ones that nothing names vanish."""
    units = {i.name: Affine() for i in block.indexes if i.value is None and i.range == 1}
    if units:
        block = replace(
            block,
            indexes=tuple(i for i in block.indexes if i.name not in units),
            constraints=tuple(c.substitute(units) for c in block.constraints),
            refs=tuple(replace(r, access=tuple(f.substitute(units) for f in r.access)) for r in block.refs),
            body=tuple(with_indexes(s, units) for s in block.body),
        )
    used = names_in(block.constraints) | {n for r in block.refs for f in r.access for n in f.names}
    used |= {n for s in block.body for n in index_names(s)} | {n for r in block.refs for f in r.loc.at for n in f.names}
    used |= names_in(block.loc.at if block.loc else ())
    constraints = tuple(c for c in block.constraints if c.names or c.evaluate({}) < 0)
    indexes = tuple(i for i in block.indexes if i.value is None or i.name in used)
    if len(indexes) == len(block.indexes) and len(constraints) == len(block.constraints):
        return block
    return replace(block, indexes=indexes, constraints=constraints)


def contents_needed(statement: Statement) -> frozenset[str]:
    """Buffers whose contents a statement may need; foreign code may leave parts of what it writes as they were."""
    match statement:
        case Special(_, outs, ins):
            return frozenset((*ins, *outs))
        case Block():
            return frozenset(r.source for r in statement.refs if r.source and _needs(statement, r))
        case _:
            return frozenset(buffers_read(statement))


def _needs(block: Block, ref: Refinement) -> bool:
    """An OUT view may be read by inner blocks after it was written."""
    return ref.dir is not Direction.OUT or any(ref.into in contents_needed(s) for s in block.body)


def without_unused_refs(block: Block) -> Block:
    used = {n for s in block.body for n in buffers_named(s)}
    used |= {r.into for r in block.refs if r.init.value == "identity"}
    if all(r.into in used for r in block.refs):
        return block
    return replace(block, refs=tuple(r for r in block.refs if r.into in used))


def without_dead_stores(block: Block, seen: frozenset[str] = frozenset()) -> Block:
    """Allocations that nothing reads, and nobody outside sees, vanish with the statements that only write them."""
    while True:
        read = {n for s in block.body for n in contents_needed(s)}
        dead = {r.into for r in block.refs if r.dir is Direction.ALLOC and r.into not in read | seen}
        kept = [s for s in block.body if not _only_writes(s, dead)]
        named = {n for s in kept for n in buffers_named(s)}
        gone = dead - named
        if not gone and len(kept) == len(block.body):
            return block
        body = tuple(kept) if len(kept) == len(block.body) else tuple(replace(s, deps=()) for s in kept)
        block = replace(block, refs=tuple(r for r in block.refs if r.into not in gone), body=body)


def _only_writes(statement: Statement, dead: set[str]) -> bool:
    written = {*buffers_written(statement)}
    return bool(written) and written <= dead and not isinstance(statement, Special)
