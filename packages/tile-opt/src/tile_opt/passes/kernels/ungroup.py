"""ungroup: splits loops that count groups and members at once, as the channels of grouped convolutions do.

``R[32*g + o]`` comes out of the analysis with one loop v of 256 for the output's dimension, and with the group's number
as a reduction of which ``v - 32*g >= 0`` and ``31 - v + 32*g >= 0`` leave one iteration. Split into group and member,
v says the group itself, and nothing remains to be searched or constrained.
"""

from __future__ import annotations

from dataclasses import dataclass

from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Index
from tile_ir.target import Target

from tile_opt.kernel.view import KernelView, Stage, close_kernel, is_parallel, open_kernel
from tile_opt.passes.base import KernelPass


@dataclass(frozen=True)
class Ungroup(KernelPass):
    """Split shared loops where a stage searches the group that an iteration belongs to."""

    def rewrite(self, kernel: Block, target: Target) -> Block:
        view = open_kernel(kernel)
        if view is None:
            return kernel
        split = split_groups(view)
        return kernel if split is view else close_kernel(split)


@frozen
class _Group:
    """Iterations of `loop` are ``size * number + member``; the stage's own loop `number` is decided by it."""

    loop: str
    number: str
    size: int
    constraints: tuple[Affine, Affine]


def split_groups(view: KernelView) -> KernelView:
    """`view` with shared loops split into groups and members where a stage asks for the group."""
    for k, stage in enumerate(view.stages):
        group = _group(view, stage)
        if group is not None:
            return split_groups(_split(view, k, group))
    return view


def _group(view: KernelView, stage: Stage) -> _Group | None:
    extents = {i.name: i.range for i in view.loops if is_parallel(i)}
    own = {i.name: i.range for i in stage.loops if is_parallel(i)}
    for low in stage.constraints:
        if low.const or len(low.terms) != 2:
            continue
        for loop, number in (low.names, low.names[::-1]):
            size = -low.coefficient(number)
            high = low * -1 + (size - 1)
            whole = loop in extents and number in own and extents[loop] == size * own[number]
            if whole and low.coefficient(loop) == 1 and size > 1 and high in stage.constraints:
                return _Group(loop, number, size, (low, high))
    return None


def _split(view: KernelView, k: int, group: _Group) -> KernelView:
    name = claim(f"{group.loop}_{group.number}", view.taken)
    loops: list[Index] = []
    for index in view.loops:
        if index.name == group.loop:
            loops.append(replace(index, name=name, range=index.range // group.size))
            index = replace(index, range=group.size)
        loops.append(index)
    found = view.stages[k]
    decided = replace(
        found,
        loops=tuple(i for i in found.loops if i.name != group.number),
        constraints=tuple(c for c in found.constraints if c not in group.constraints),
    ).substitute({group.number: Affine.var(name)})
    member = {group.loop: Affine.var(name, group.size) + Affine.var(group.loop)}
    stages = tuple((decided if s is found else s).substitute(member) for s in view.stages)
    return replace(view, loops=tuple(loops), stages=stages)
