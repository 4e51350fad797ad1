"""Walking programs and trees of blocks: the kernels, matching by tags, rewriting, moving views to another layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import is_

from tile_ir.stripe.nodes import Block, Direction, Program, Refinement, Statement

Rewrite = Callable[[Block, tuple[Block, ...]], Block]
"""``rewrite(block, parents)``: the block that takes its place; the blocks around it, outermost first."""


def matches(block: Block, reqs: Iterable[str]) -> bool:
    """True when the block has every tag of `reqs`; "all" matches every block, no reqs match none."""
    wanted = tuple(reqs)
    return bool(wanted) and all(tag == "all" or tag in block.tags for tag in wanted)


def rewrite_matching(
    program: Program, reqs: tuple[str, ...], rewrite: Rewrite, *, inner_first: bool = False
) -> Program:
    """Every outermost (or, with `inner_first`, every) block that has all tags of `reqs`, rewritten."""

    def visit(block: Block, parents: tuple[Block, ...]) -> Block:
        if not inner_first and matches(block, reqs):
            return rewrite(block, parents)
        block = map_inner(block, lambda inner: visit(inner, (*parents, block)))
        return rewrite(block, parents) if inner_first and matches(block, reqs) else block

    entry = visit(program.entry, ())
    return program if entry is program.entry else replace(program, entry=entry)


def map_inner(block: Block, changed: Callable[[Block], Block]) -> Block:
    """`block` with what takes the place of each block in it; `block` itself where these all stay."""
    body = tuple(changed(s) if isinstance(s, Block) else s for s in block.body)
    return block if all(map(is_, body, block.body)) else replace(block, body=body)


def blocks_of(block: Block) -> tuple[Block, ...]:
    return tuple(s for s in block.body if isinstance(s, Block))


def is_leaf(block: Block) -> bool:
    return not any(isinstance(s, Block) for s in block.body)


def rebase(statement: Statement, name: str, to: Refinement) -> Statement:
    """Let every view of buffer `name` within a block be one of `to`: its name, strides and location."""
    if not isinstance(statement, Block):
        return statement
    refs: list[Refinement] = []
    body = statement.body
    # A place that depends on the owner's loops is a matter of the owner: inner views name the memory only.
    fixed = all(not form.names for form in to.loc.at)
    loc = to.loc if fixed else replace(to.loc, at=())
    for ref in statement.refs:
        if ref.source == name and ref.dir is not Direction.ALLOC:
            layout = replace(
                ref.type.layout, strides=to.type.strides, align=to.type.layout.align, swizzle=None, fragment=None
            )
            ref = replace(ref, source=to.into, type=replace(ref.type, layout=layout), loc=loc)
            body = tuple(rebase(s, ref.into, ref) for s in body)
        refs.append(ref)
    return replace(statement, refs=tuple(refs), body=body)


def outside_names(program: Program) -> frozenset[str]:
    """Buffers of the entry block that somebody outside sees: inputs, outputs and constants."""
    return frozenset((*program.inputs, *program.outputs, *(c.name for c in program.constants)))


def main_of(program: Program) -> Block:
    """The ``main`` block: the only statement of the entry block."""
    (main,) = program.entry.body
    if not isinstance(main, Block):
        raise TypeError(f"the entry block must hold one block, not {type(main).__name__}")
    return main


def kernels_of(program: Program) -> tuple[Statement, ...]:
    """The kernels of a program in order."""
    return main_of(program).body


def with_kernels(program: Program, kernels: tuple[Statement, ...]) -> Program:
    """`program` with the statements of its main block replaced; buffers stay."""
    main = replace(main_of(program), body=kernels)
    return replace(program, entry=replace(program.entry, body=(main,)))
