"""compute_deps: which statements of a block wait for which, from what they touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tile_ir.stripe.nodes import Block, Program, Sync, Wait
from tile_ir.stripe.walk import defined, scalars_used
from tile_ir.target import Target

from tile_opt.blocks.accesses import Access, accesses, hull
from tile_opt.blocks.tree import rewrite_matching
from tile_opt.passes.base import Pass


@dataclass(frozen=True)
class ComputeDeps(Pass):
    """Every block with all tags `reqs` gets the dataflow dependencies between its statements, without implied ones."""

    reqs: tuple[str, ...] = ()

    def apply(self, program: Program, target: Target) -> Program:
        return rewrite_matching(program, self.reqs, lambda block, _: with_deps(block), inner_first=True)


def with_deps(block: Block, shares: Mapping[str, frozenset[str]] | None = None) -> Block:
    """`block` with its statements' deps; `shares` names the buffers that lie on the same bytes as a buffer."""
    deps = dependencies(block, shares or {})
    return replace(block, body=tuple(replace(s, deps=d) for s, (d, _) in zip(block.body, deps, strict=True)))


def dependencies(block: Block, shares: Mapping[str, frozenset[str]]) -> list[tuple[tuple[int, ...], set[int]]]:
    """For each statement the earlier ones that it must wait for, without those reached through another; and all of them."""
    touched: list[list[Access]] = [[] for _ in block.body]
    for access in accesses(replace(block, constraints=())):
        touched[access.own].append(access)
    found: list[tuple[tuple[int, ...], set[int]]] = []
    for number in range(len(block.body)):
        implied: set[int] = set()
        direct: list[int] = []
        for earlier in range(number - 1, -1, -1):
            if earlier not in implied and _ordered(block, touched, earlier, number, shares):
                direct.append(earlier)
                implied |= found[earlier][1] | {earlier}
        found.append((tuple(sorted(direct)), implied))
    return found


def _ordered(
    block: Block, touched: Sequence[Sequence[Access]], a: int, b: int, shares: Mapping[str, frozenset[str]]
) -> bool:
    first, second = block.body[a], block.body[b]
    if isinstance(first, Sync | Wait) or isinstance(second, Sync | Wait):
        return True
    if defined(first) in scalars_used(second):
        return True
    return any(_conflict(x, y, shares) for x in touched[a] for y in touched[b])


def _conflict(a: Access, b: Access, shares: Mapping[str, frozenset[str]]) -> bool:
    if not (a.writes or b.writes):
        return False
    if a.buffer != b.buffer:
        return b.buffer in shares.get(a.buffer, frozenset())
    boxes = hull(a), hull(b)
    if boxes[0] is None or boxes[1] is None:
        return True
    return all(x[0] <= y[1] and y[0] <= x[1] for x, y in zip(boxes[0], boxes[1], strict=True))
