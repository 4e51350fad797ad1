"""Kernels whose rows and columns go on to whole tiles: beyond the end products are computed, and nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping

from tile_ir.frozen import frozen, replace
from tile_ir.matrix import MatrixInstruction
from tile_ir.stripe.affine import Affine

from tile_opt.kernel.instructions import Match, matches
from tile_opt.kernel.strides import limits_inside
from tile_opt.kernel.view import KernelView, Stage
from tile_opt.plan.tree import Nest, map_stages


@frozen
class Widened:
    """A kernel with the loops of a match as long as its instruction wants them; `ends` are the iterations that count."""

    view: KernelView
    match: Match
    ends: Mapping[str, int]

    def limited(self, tree: Nest) -> Nest:
        """The open tree of `view`; what touches memory beside the products does so in iterations that count alone."""
        limits = tuple(Affine.var(n, -1) + (end - 1) for n, end in self.ends.items())

        def cut(stage: Stage) -> Stage:
            outside = any(not self.view.is_local(u.buffer) for u in stage.uses)
            mine = stage.name != self.match.main.name and outside
            return replace(stage, constraints=(*stage.constraints, *limits)) if mine else stage

        return map_stages(tree, cut) if limits else tree


def widened(view: KernelView, match: Match) -> Widened | None:
    """The kernel on whole tiles; None where its factors do not go on so far."""
    sides = match.instruction.sides
    ends = {loop: view.ranges[loop] for role, loop in match.loops if view.ranges[loop] % sides[role]}
    if not ends:
        return Widened(view, match, {})
    side = {loop: sides[role] for role, loop in match.loops}
    loops = tuple(
        replace(i, range=-(-i.range // side[i.name]) * side[i.name]) if i.name in ends else i for i in view.loops
    )
    made = replace(view, loops=loops)
    factors = (match.main.use(name) for name in (match.left, match.right))
    inside = all(not limits_inside(u.forms, view.type_of(u.buffer).sizes, made.ranges) for u in factors)
    return Widened(made, match, ends) if inside and dict(match.loops)["k"] not in ends else None


def on_whole_tiles(view: KernelView, instruction: MatrixInstruction) -> list[Widened]:
    """Every way in which the kernel is the instruction, on whole tiles."""
    return [found for match in matches(view, instruction) if (found := widened(view, match)) is not None]
