"""tensorize: find the cheapest hardware stencil for a contraction and tile it so that the inner block is one stencil.

A stencil lists indexes with a size (-1: the whole range) and, per output and input, a rule for the stride of the
index in it: -1 any, 0 unused, 1 contiguous. Every assignment of block indexes to stencil indexes and every order
of the inputs is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import prod
from typing import Any

from tile_ir.frozen import frozen
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Direction, Instr, Program, Refinement
from tile_ir.target import Target

from tile_opt.blocks.split import can_split, split
from tile_opt.blocks.tree import is_leaf, map_inner, rewrite_matching
from tile_opt.passes.base import Pass

MAX_INDEXES = 8
"""Blocks with more indexes are left alone."""


@frozen
class StencilIndex:
    """One index of a stencil; `outs` and `ins` are stride rules per output and input."""

    name: str
    size: int
    outs: tuple[int, ...]
    ins: tuple[int, ...]


@frozen
class Stencil:
    """What an instruction computes; `startup_cost` is paid once per tile."""

    idxs: tuple[StencilIndex, ...]
    startup_cost: int = 0


@frozen
class Match:
    """A stencil found in a block: tile sizes by index name, and what the whole block costs with it."""

    stencil: Stencil
    sizes: tuple[tuple[str, int], ...]
    names: tuple[str, ...]
    cost: int


@dataclass(frozen=True)
class Tensorize(Pass):
    """Tile every block with all tags `reqs`; `whole` keeps indexes that no stencil names inside, in full."""

    reqs: tuple[str, ...] = ()
    outer_set: tuple[str, ...] = ()
    inner_set: tuple[str, ...] = ()
    stencils: tuple[Stencil, ...] = ()
    whole: bool = True
    instr: str = ""
    """Name of the instruction that does the inner block; with it the block notes the stencil's sizes."""

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Tensorize:
        stencils = tuple(_stencil(entry) for entry in options.get("stencils", ()))
        given: dict[str, Any] = {**options, "stencils": stencils}
        return cls(**given)

    def apply(self, program: Program, target: Target) -> Program:
        return rewrite_matching(program, self.reqs, lambda block, _: self._tensorized(block), inner_first=True)

    def _tensorized(self, block: Block) -> Block:
        found = best_match(block, self.stencils)
        if found is None:
            return block
        rest = 0 if self.whole else 1
        sizes = {i.name: i.range if rest == 0 else 1 for i in block.indexes if i.value is None} | dict(found.sizes)
        made = split(block, sizes, self.outer_set, (*self.inner_set,))
        return _instructed(made, self._instruction(found)) if self.instr else made

    def _instruction(self, match: Match) -> Instr:
        """``conv(co:32, ci:-1)``: which of the block's indexes run over the stencil's, and the stencil's sizes."""
        pairs = zip(match.names, match.stencil.idxs, strict=True)
        return Instr(self.instr, tuple((name, s.size) for name, s in pairs if name))


def _instructed(block: Block, instr: Instr) -> Block:
    """The innermost block gets the instruction."""
    return replace(block, instr=instr) if is_leaf(block) else map_inner(block, lambda inner: _instructed(inner, instr))


def best_match(block: Block, stencils: Sequence[Stencil]) -> Match | None:
    """The cheapest match, the first of equals in the order of stencils and of the block's indexes."""
    if not is_leaf(block) or not can_split(block):
        return None
    found = (match for stencil in stencils for match in _matches(block, stencil))
    return min(found, key=lambda match: match.cost, default=None)


def _matches(block: Block, stencil: Stencil) -> Iterator[Match]:
    indexes = [i for i in block.indexes if i.value is None]
    outs = [r for r in block.refs if r.dir in (Direction.OUT, Direction.INOUT)]
    ins = [r for r in block.refs if r.dir is Direction.IN]
    fits = all(len(s.outs) == len(outs) and len(s.ins) == len(ins) for s in stencil.idxs)
    if len(indexes) > MAX_INDEXES or not fits:
        return
    slots: list[tuple[str, int] | None] = [(i.name, i.range) for i in indexes]
    slots += [None] * max(0, len(stencil.idxs) - len(slots))
    for order in permutations(ins):
        for chosen in permutations(slots, len(stencil.idxs)):
            pairs = list(zip(stencil.idxs, chosen, strict=True))
            if all(_legal(s, c[0] if c else "", outs, order) for s, c in pairs):
                yield _match(stencil, pairs, {i.name: i.range for i in indexes})


def _legal(index: StencilIndex, name: str, outs: Sequence[Refinement], ins: Sequence[Refinement]) -> bool:
    rules = [*zip(index.outs, outs, strict=True), *zip(index.ins, ins, strict=True)]
    return all(rule == -1 or stride(ref, name) == rule for rule, ref in rules)


def stride(ref: Refinement, name: str) -> int:
    """Elements that one step of index `name` moves the access of `ref`."""
    forms = [f for f in ref.access if isinstance(f, Affine)]
    return sum(f.coefficient(name) * s for f, s in zip(forms, ref.type.strides, strict=True))


def _match(stencil: Stencil, pairs: list[tuple[StencilIndex, tuple[str, int] | None]], ranges: dict[str, int]) -> Match:
    sizes: dict[str, int] = {}
    cost, tiles = 1, 1
    for index, slot in pairs:
        extent = slot[1] if slot else 1
        size = extent if index.size == -1 else index.size
        count = -(-extent // size)
        cost *= count * size
        tiles *= count
        if slot:
            sizes[slot[0]] = min(size, extent)
    rest = prod(r for n, r in ranges.items() if n not in sizes)
    names = tuple(slot[0] if slot else "" for _, slot in pairs)
    return Match(stencil, tuple(sizes.items()), names, rest * (cost + stencil.startup_cost * tiles))


def _stencil(entry: Any) -> Stencil:
    if isinstance(entry, Stencil):
        return entry
    idxs = tuple(
        StencilIndex(str(i["name"]), int(i["size"]), tuple(i.get("outs", ())), tuple(i.get("ins", ())))
        for i in entry["idxs"]
    )
    return Stencil(idxs, int(entry.get("startup_cost", 0)))
