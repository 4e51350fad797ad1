"""scalarize: local buffers of one element that pass a value within one statement list become scalars."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tile_ir.stripe.nodes import Block, Direction, Load, Program, Statement, Store
from tile_ir.stripe.walk import buffers_named, with_scalars
from tile_ir.target import Target

from tile_opt.blocks.tree import map_inner, rewrite_matching
from tile_opt.passes.base import Pass


@dataclass(frozen=True)
class Scalarize(Pass):
    """In every block with all tags `reqs` and in the blocks within."""

    reqs: tuple[str, ...] = ()

    def apply(self, program: Program, target: Target) -> Program:
        return rewrite_matching(program, self.reqs, lambda block, _: _scalarized(block))


def _scalarized(block: Block) -> Block:
    block = map_inner(block, _scalarized)
    names = {
        r.into for r in block.refs if r.dir is Direction.ALLOC and all(s == 1 for s in r.type.sizes) and r.agg is None
    }
    names -= {r.source for s in block.body if isinstance(s, Block) for r in s.refs}
    names = {n for n in names if _stored_first(block, n)}
    return _without(block, names) if names else block


def _stored_first(block: Block, name: str) -> bool:
    """The statement list only loads and stores the buffer, and stores before it loads."""
    uses = [s for s in block.body if name in buffers_named(s)]
    return bool(uses) and isinstance(uses[0], Store) and all(isinstance(s, Load | Store) for s in uses)


def _without(block: Block, names: set[str]) -> Block:
    held: dict[str, str] = {}
    alias: dict[str, str] = {}
    body: list[Statement] = []
    for statement in block.body:
        statement = with_scalars(statement, alias)
        match statement:
            case Store(dst, src) if dst in names:
                held[dst] = src
            case Load(dst, src) if src in names:
                alias[dst] = held[src]
            case _:
                body.append(statement)
    return replace(block, refs=tuple(r for r in block.refs if r.into not in names), body=tuple(body))
