"""Rows that the next tile of a product takes are asked for while this one is multiplied, a few lines in each step.

A tile of rows is read once for each tile of columns, the first time from afar, when nothing could be done meanwhile. Each of
those passes over the steps asks for its share of the next rows, which then wait in the second cache.
"""

from __future__ import annotations

from tile_ir.frozen import frozen, replace
from tile_ir.matrix.x86 import FETCH_LINE
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Instr, Load

from tile_opt.kernel.instructions import Match
from tile_opt.kernel.strides import limits_inside
from tile_opt.kernel.view import Stage
from tile_opt.plan.tree import Around, Nest, nests_of


@frozen
class Ahead:
    """Where a product's steps stand; `columns` is the loop over tiles of columns, inside the one over tiles of rows."""

    columns: str
    around: Around

    def stages(self, tree: Nest, stage: Stage, match: Match) -> tuple[Stage, ...]:
        """What asks for lines in a step of `stage`, the steps being the loops of `tree`."""
        around = self.around
        for nest in nests_of(tree):
            around = around.within(nest)
        extents = {n: high + 1 for n, (_, high) in around.ranges.items()}
        loops, ranges = dict(match.loops), {i.name: i.range for i in stage.loops}
        use, rows = replace(stage.use(match.left), name="src"), ranges.get(loops["m"], 1)
        sizes, share = around.buffers[use.buffer].type.sizes, -(-rows // extents[self.columns])
        made: list[Stage] = []
        for number in range(share):
            row = Affine.var(self.columns, share) + (rows + number)
            line = use.substitute({loops["m"]: row, loops["k"]: Affine()})
            inside = limits_inside(line.forms, sizes, extents)
            body = (Load("$x", line.name),)
            made.append(Stage(f"{FETCH_LINE}_{number}", (), inside, (line,), body, instr=Instr(FETCH_LINE)))
        return tuple(made)
