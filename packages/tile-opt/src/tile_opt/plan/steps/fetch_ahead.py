"""Rows that a product on tile registers takes later are asked for while others are at work: of its tiles, and of their copies.

A tile of rows is read once for each tile of columns, the first time from afar, when nothing could be done meanwhile. Each of
those passes over the steps asks for its share of the next rows, which then wait in the second cache. Panels are copied from
pieces of rows that lie apart, so that no processor foresees the next one: each vector asks for what is some rows further on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tile_ir.frozen import frozen, replace
from tile_ir.matrix.x86 import FETCH_LINE
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Instr, Load

from tile_opt.kernel.instructions import Match
from tile_opt.kernel.strides import limits_inside
from tile_opt.kernel.view import Stage, Use
from tile_opt.plan.tree import Around, Nest, Node, nests_of

ROWS = 8
"""Rows between those that are copied and those that are asked for: 100 ns of work, as long as lines take from afar."""


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
        extents = _extents(around)
        loops, ranges = dict(match.loops), {i.name: i.range for i in stage.loops}
        rows = ranges.get(loops["m"], 1)
        share = -(-rows // extents[self.columns])
        uses: list[Use] = []
        for number in range(share):
            row = Affine.var(self.columns, share) + (rows + number)
            uses.append(stage.use(match.left).substitute({loops["m"]: row, loops["k"]: Affine()}))
        return _asking(uses, around, extents)


def copied_ahead(stage: Stage, around: Around) -> Node:
    """The stage, which fills panels along its last two loops; of rows that lie apart it asks for later ones, line by line."""
    *outer, panel, lane = stage.loops
    read = [u for u in stage.uses if not u.writes]
    piece = panel.range * lane.range * len(read)
    apart = outer and all(around.stride(u, outer[-1].name) > piece and around.stride(u, lane.name) == 1 for u in read)
    if not (apart and read):
        return stage
    nest = Nest(stage.name, (*outer, panel), guard=stage.guard)
    row = Affine.var(outer[-1].name) + ROWS
    uses = [u.substitute({outer[-1].name: row, lane.name: Affine()}) for u in read]
    inside = around.within(nest)
    early = tuple(c for c in stage.constraints if lane.name not in c.names)
    vector = replace(
        stage, loops=(lane,), guard=(), constraints=tuple(c for c in stage.constraints if lane.name in c.names)
    )
    return replace(nest, body=(*_asking(uses, inside, _extents(inside)), vector), constraints=early)


def _extents(around: Around) -> dict[str, int]:
    return {n: high + 1 for n, (_, high) in around.ranges.items()}


def _asking(uses: Sequence[Use], around: Around, extents: Mapping[str, int]) -> tuple[Stage, ...]:
    """What asks for a line at each of the uses."""
    made: list[Stage] = []
    for number, use in enumerate(replace(u, name="src") for u in uses):
        inside = limits_inside(use.forms, around.buffers[use.buffer].type.sizes, extents)
        body = (Load("$x", use.name),)
        made.append(Stage(f"{FETCH_LINE}_{number}", (), inside, (use,), body, instr=Instr(FETCH_LINE)))
    return tuple(made)
