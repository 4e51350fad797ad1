"""Runs one Stripe kernel block by the Stripe interpreter, for lists whose kernels have no semtree function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_ir.stripe.nodes import Block, Direction, Program, Refinement


def outer_refs(block: Block) -> list[tuple[Refinement, int]]:
    """The block's refinements of outer buffers, outputs first, with the elements each buffer needs."""
    outer = [r for r in block.refs if r.dir is not Direction.ALLOC]
    ordered = [r for r in outer if r.dir is not Direction.IN] + [r for r in outer if r.dir is Direction.IN]
    return [(r, r.type.extent) for r in ordered]


def run_block(block: Block, arrays: Sequence[npt.NDArray[Any]]) -> None:
    """Run a kernel block on flat arrays (order of `outer_refs`), writing outputs in place."""
    from tile_ir.stripe.interpret import run

    refs = [r for r, _ in outer_refs(block)]
    outputs = tuple(r.source for r in refs if r.dir is not Direction.IN)
    views = {r.source: _view(r, a) for r, a in zip(refs, arrays, strict=True)}
    program = _program(block, refs)
    # Outputs are given as inputs too: a kernel may keep or add to what is there.
    results = run(program, {name: np.array(view) for name, view in views.items()})
    for name in outputs:
        views[name][...] = results[name]


def _view(ref: Refinement, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    strides = tuple(s * array.itemsize for s in ref.type.strides)
    return np.lib.stride_tricks.as_strided(array, ref.type.sizes, strides)


def _program(block: Block, refs: Sequence[Refinement]) -> Program:
    allocs = tuple(
        replace(r, dir=Direction.ALLOC, into=r.source, source="", agg=None, tags=frozenset({"user"})) for r in refs
    )
    passed = tuple(replace(r, dir=Direction.INOUT if r.dir is not Direction.IN else r.dir, into=r.source) for r in refs)
    main = Block("main", refs=tuple(replace(r, agg=None) for r in passed), body=(block,), tags=frozenset({"main"}))
    entry = Block("program", refs=allocs, body=(main,), tags=frozenset({"program"}))
    names = tuple(r.source for r in refs)
    outputs = tuple(r.source for r in refs if r.dir is not Direction.IN)
    return Program(entry, (), names, outputs)
