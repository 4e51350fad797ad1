"""Lines that a product on tile registers takes later are asked for while others are at work: rows of its tiles and of their copies, results.

A tile of rows is read once for each tile of columns, the first time from afar, when nothing could be done meanwhile. Each of
those passes over the steps asks for its share of the next rows, which then wait in the second cache. Panels are copied from
pieces of rows that lie apart, so that no processor foresees the next one: each vector asks for what is some rows further on. A
store waits until its line has come, whatever was there: the steps ask for those of the results that they make, in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

from tile_ir.frozen import frozen, replace
from tile_ir.matrix.x86 import CLAIM_LINE, FETCH_LINE
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Index, Instr, Load, number_of

from tile_opt.kernel.instructions import Match
from tile_opt.kernel.strides import limits_inside
from tile_opt.kernel.view import Stage, Use
from tile_opt.plan.tree import Around, Nest, Node, nests_of

LINE = 64
"""Bytes that a processor with tile registers moves at a time."""
MOST = 8
"""Lines of results that a step asks for at most: behind 16 of them loads of factors wait longer than stores would."""
ROWS = 8
"""Rows between those that are copied and those that are asked for: 100 ns of work, as long as lines take from afar."""


@frozen
class Ahead:
    """Where a product's steps stand.

    `columns` is the loop over tiles of columns, inside the one over tiles of rows, if these are asked for; `results` are stored behind
    the steps.
    """

    columns: str | None
    results: tuple[Use, ...]
    around: Around

    def stages(self, tree: Nest, stage: Stage, match: Match) -> tuple[Stage, ...]:
        """What asks for lines in a step of `stage`, the steps being the loops of `tree`."""
        nests = tuple(nests_of(tree))
        around = self.around
        for nest in nests:
            around = around.within(nest)
        loops, ranges = dict(match.loops), {i.name: i.range for i in stage.loops}
        row, column = (Index(loops[role], ranges[loops[role]]) for role in "mn")
        left = stage.use(match.left).substitute({loops["k"]: Affine()})
        asked = _asking(tuple(self._rows(left, row, around)), around, _extents(around))
        steps = [i for nest in nests for i in nest.loops]
        lines = tuple(self._lines(row, column, steps))
        return (*asked, *_claiming(lines if len(lines) <= MOST else ()))

    def _rows(self, left: Use, rows: Index, around: Around) -> Iterator[Use]:
        """Of the next tile of rows, those that this pass over the steps asks for."""
        if self.columns is not None:
            share = -(-rows.range // _extents(around)[self.columns])
            for number in range(share):
                yield left.substitute({rows.name: Affine.var(self.columns, share) + (rows.range + number)})

    def _lines(self, rows: Index, columns: Index, steps: Sequence[Index]) -> Iterator[Use]:
        """Of the results' rows, those that each step asks for, line by line; more steps than there are rows ask for the next tile's."""
        share = -(-rows.range // prod(i.range for i in steps))
        row = number_of(steps) * share
        for use, number in product(self.results, range(share)):
            line = LINE // self.around.buffers[use.buffer].type.dtype.bytes
            for at in range(0, columns.range, line):
                yield use.substitute({rows.name: row + number, columns.name: Affine((), at)})


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


def _claiming(uses: Sequence[Use]) -> tuple[Stage, ...]:
    """What asks for a line at each of the uses, which is written later."""
    named = enumerate(replace(u, name="dst", agg=None) for u in uses)
    return tuple(Stage(f"{CLAIM_LINE}_{n}", (), (), (use,), (), instr=Instr(CLAIM_LINE)) for n, use in named)


def _asking(uses: Sequence[Use], around: Around, extents: Mapping[str, int]) -> tuple[Stage, ...]:
    """What asks for a line at each of the uses."""
    made: list[Stage] = []
    for number, use in enumerate(replace(u, name="src") for u in uses):
        inside = limits_inside(use.forms, around.buffers[use.buffer].type.sizes, extents)
        body = (Load("$x", use.name),)
        made.append(Stage(f"{FETCH_LINE}_{number}", (), inside, (use,), body, instr=Instr(FETCH_LINE)))
    return tuple(made)
