"""Putting the statements of trivial inner blocks into the statement list of the block around them."""

from __future__ import annotations

from dataclasses import replace

from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Const, Direction, Load, LoadIndex, Op, Refinement, Statement, Store
from tile_ir.stripe.walk import buffers_read, buffers_written, renamed, with_indexes

_SIMPLE = (Load, Const, Op, LoadIndex, Store)


def flattened(block: Block) -> Block:
    """`block` with every inner block's statements in its own list, when all of them are single points of whole views."""
    outer = {r.into: r for r in block.refs}
    if not block.body or not all(isinstance(s, Block) and _trivial(s, outer) for s in block.body):
        return block
    taken: set[str] = set()
    body: list[Statement] = []
    for inner in block.body:
        assert isinstance(inner, Block)
        body += _statements(inner, taken)
    both = {n for s in body for n in buffers_read(s)} & {n for s in body for n in buffers_written(s)}
    refs = tuple(replace(r, dir=Direction.INOUT) if r.into in both and r.source else r for r in block.refs)
    return replace(
        block,
        refs=refs,
        body=tuple(body),
        loc=block.loc or next((s.loc for s in block.body if isinstance(s, Block)), None),
    )


def _trivial(block: Block, outer: dict[str, Refinement]) -> bool:
    single = (
        all(i.value is not None or i.range == 1 for i in block.indexes) and not block.constraints and not block.guard
    )
    simple = all(isinstance(s, _SIMPLE) for s in block.body) and not block.instr
    return single and simple and all(_same(r, outer) for r in block.refs)


def _same(ref: Refinement, outer: dict[str, Refinement]) -> bool:
    whole = outer.get(ref.source)
    return (
        ref.dir is not Direction.ALLOC
        and whole is not None
        and ref.agg is whole.agg
        and ref.init is whole.init
        and all(f == Affine() for f in ref.access)
        and ref.type.sizes == whole.type.sizes
    )


def _statements(inner: Block, taken: set[str]) -> list[Statement]:
    env = {i.name: i.value if i.value is not None else Affine() for i in inner.indexes}
    source = {r.into: r.source for r in inner.refs}
    alias: dict[str, str] = {}
    return [renamed(with_indexes(statement, env), alias, source, taken) for statement in inner.body]
