"""The buffers of a program's main block: temporaries, who uses them, adding and dropping them."""

from __future__ import annotations

from dataclasses import replace

from tile_ir.stripe.nodes import Block, Direction, Program, Refinement

from tile_opt.blocks.tree import main_of


def temporaries(program: Program) -> frozenset[str]:
    """Names of the buffers that main allocates."""
    return frozenset(r.into for r in main_of(program).refs if r.dir is Direction.ALLOC)


def user_counts(program: Program) -> dict[str, int]:
    """How many kernels name each buffer of main."""
    counts: dict[str, int] = {r.into: 0 for r in main_of(program).refs}
    for kernel in main_of(program).body:
        if isinstance(kernel, Block):
            for ref in kernel.refs:
                if ref.source:
                    counts[ref.source] += 1
    return counts


def with_main_refs(program: Program, refs: tuple[Refinement, ...]) -> Program:
    """`program` with the refinements of its main block replaced."""
    main = replace(main_of(program), refs=refs)
    return replace(program, entry=replace(program.entry, body=(main,)))


def drop_unused_temporaries(program: Program) -> Program:
    """Remove main's allocations that no kernel names any more."""
    counts = user_counts(program)
    refs = main_of(program).refs
    kept = tuple(r for r in refs if r.dir is not Direction.ALLOC or counts[r.into])
    return program if len(kept) == len(refs) else with_main_refs(program, kept)
