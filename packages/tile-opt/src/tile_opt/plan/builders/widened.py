"""Kernels whose loops go on to whole tiles: beyond the end factors are copied as zeros, and nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tile_ir.frozen import frozen, replace
from tile_ir.matrix import MatrixInstruction
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Index

from tile_opt.kernel.instructions import Bound, Match, matches
from tile_opt.kernel.strides import flat_stride, limits_inside
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.plan.steps.fold import Fold, fold_of
from tile_opt.plan.tree import Nest, map_stages


@frozen
class Widened:
    """A kernel with the loops of a match as long as its instruction wants them; `ends` are the iterations that count."""

    view: KernelView
    """All terms are there: those that a constraint leaves out have a factor outside its tensor."""
    match: Match
    ends: Mapping[str, int]

    def limited(self, tree: Nest) -> Nest:
        """The open tree of `view`; what touches memory beside the products does so in iterations that count alone."""
        shared = {i.name for i in self.view.loops}
        limits = tuple(Affine.var(n, -1) + (end - 1) for n, end in self.ends.items() if n in shared)

        def cut(stage: Stage) -> Stage:
            outside = any(not self.view.is_local(u.buffer) for u in stage.uses)
            mine = stage.name != self.match.main.name and outside
            return replace(stage, constraints=(*stage.constraints, *limits)) if mine else stage

        return map_stages(tree, cut) if limits else tree

    def unfilled(self, loop: str) -> Widened:
        """The same with a loop as long as it was."""
        loops = tuple(replace(i, range=self.ends.get(loop, i.range)) if i.name == loop else i for i in self.view.loops)
        ends = {n: end for n, end in self.ends.items() if n != loop}
        return replace(self, view=replace(self.view, loops=loops), ends=ends)

    def folded(self) -> Fold | None:
        """Rows of tiles that go on through a copy of the first factor from one row of windows to the next, where these are short."""
        rows, depth = (dict(self.match.loops)[role] for role in "mk")
        steps = {depth, *(i.name for i in self.match.main.loops)}
        left, unit = self.match.main.use(self.match.left), self.match.instruction.sides["m"]
        return fold_of(self.view, left, rows, self.ends.get(rows, self.view.ranges[rows]), steps, unit)

    @property
    def order(self) -> tuple[float, bool, int]:
        """The share of products that count for nothing, and how the first factor lies along words and rows."""
        loops, left = dict(self.match.loops), self.match.main.use(self.match.left)
        waste = prod(self.view.ranges[n] / end for n, end in self.ends.items())
        return waste, flat_stride(self.view, left, loops["k"]) != 1, flat_stride(self.view, left, loops["m"])

    def leaves(self, use: Use) -> bool:
        """Some iterations reach a factor outside its tensor."""
        return bool(limits_inside(use.forms, self.view.type_of(use.buffer).sizes, self.view.ranges))


def widened(view: KernelView, match: Match) -> Widened | None:
    """The kernel on whole tiles; None where a constraint leaves out more than what is outside a factor's tensor."""
    if match.cuts or not all(_is_end(view, match, bound) for bound in match.bounds):
        return None
    sides = match.instruction.sides
    side = {loop: sides[role] for role, loop in match.loops}
    ends = {loop: view.ranges[loop] for loop in side if view.ranges[loop] % side[loop]}
    main = replace(match.main, constraints=(), loops=_whole(match.main.loops, side))
    stages = tuple(main if s is match.main else s for s in view.stages)
    made = replace(view, loops=_whole(view.loops, side), stages=stages)
    return Widened(made, replace(match, main=main), ends)


def _whole(loops: tuple[Index, ...], side: Mapping[str, int]) -> tuple[Index, ...]:
    """Loops of whole tiles."""
    return tuple(replace(i, range=-(-i.range // s) * s) if (s := side.get(i.name, 1)) > 1 else i for i in loops)


def _is_end(view: KernelView, match: Match, bound: Bound) -> bool:
    """The bound is the first or the last element of a factor's dimension."""
    size = view.type_of(match.main.use(bound.factor).buffer).sizes[bound.dim]
    return (bound.sign, bound.const) in ((1, 0), (-1, size - 1))


def on_whole_tiles(view: KernelView, instruction: MatrixInstruction) -> list[Widened]:
    """Every way in which the kernel is the instruction, on whole tiles: fewest wasted products first, then rows as they lie."""
    found = (widened(view, match) for match in matches(view, instruction))
    return sorted((w for w in found if w is not None), key=lambda w: w.order)
