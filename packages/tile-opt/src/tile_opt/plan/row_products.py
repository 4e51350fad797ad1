"""Both products of a kernel over rows (`kernel.rows_in_steps`), each on the items of groups: `plan.group_tiles` for one piece of a row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tile_ir.frozen import replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Direction, Index, Load, Order, Refinement, Store, TensorType

from tile_opt.kernel.rows_in_steps import RowsInSteps
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import merged_use
from tile_opt.plan.group_tiles import GroupTile, group_tile
from tile_opt.plan.plan import Level, Plan
from tile_opt.plan.steps.group_copy import local_type
from tile_opt.plan.tree import GROUP_MEMORY, Node, substitute

PIECES = 1
"""The level whose points are pieces of a row."""
PAD = 4
"""Elements added to each line of weights in local memory: whole vectors."""


@dataclass(frozen=True, slots=True)
class Piece:
    """`count` scores of each row, from `start` on."""

    start: Affine
    count: int


@dataclass(frozen=True)
class Products:
    """Both products of a piece, on the same items."""

    scores: GroupTile
    values: GroupTile
    renamed: dict[str, Affine]
    """What the items' indexes of the second are in those of the first."""

    @cached_property
    def nodes(self) -> tuple[list[Node], list[Node]]:
        return self.scores.reduced(), [substitute(n, self.renamed) for n in self.values.reduced()]

    @property
    def allocs(self) -> Iterator[Refinement]:
        """Local copies, and the registers on their way there."""
        for tile in (self.scores, self.values):
            for copy in tile.staged:
                yield from (copy.local, copy.held)


@dataclass(frozen=True)
class RowProducts:
    """What a plan makes of the products, and of the loops around them."""

    kinds: RowsInSteps
    plan: Plan

    @property
    def view(self) -> KernelView:
        return self.kinds.view

    # --- sizes ------------------------------------------------------------------------------------------

    @cached_property
    def row(self) -> str:
        """The shared loop of which a group has several iterations."""
        shared = {i.name for i in self.view.loops}
        found = [c.loop for c in self.plan.levels[0].covers if c.loop in shared and c.size > 1]
        if len(found) != 1:
            raise ValueError(f"a group of {self.view.name!r} has several rows, all of one loop")
        return found[0]

    @cached_property
    def size(self) -> int:
        """Scores of a row in one piece."""
        return self.plan.levels[PIECES].covers[0].size

    @cached_property
    def rows(self) -> int:
        """Rows of a group."""
        return self.plan.tile(self.row, 0, self.view.ranges[self.row])

    @cached_property
    def loop(self) -> Index:
        """The pieces that are whole."""
        extent = self.view.ranges[self.kinds.row]
        return Index(f"{self.kinds.row}_piece", extent // self.size, order=Order.ORDERED)

    @cached_property
    def whole(self) -> Piece:
        return Piece(Affine.var(self.loop.name, self.size) if self.loop.range > 1 else Affine(), self.size)

    @cached_property
    def rest(self) -> Piece | None:
        """What is left of a row behind the whole pieces."""
        start = self.loop.range * self.size
        left = self.view.ranges[self.kinds.row] - start
        return Piece(Affine((), start), left) if left else None

    # --- products ---------------------------------------------------------------------------------------

    @cached_property
    def first(self) -> Products:
        """The products of the first piece: what items have, and where, is the same for all."""
        return self.products(self.whole if self.loop.range else self._rest)

    @property
    def _rest(self) -> Piece:
        assert self.rest is not None
        return self.rest

    def products(self, piece: Piece) -> Products:
        """Both products on a piece; ValueError where their items would not have the same rows."""
        scores, values = self._scores(piece), self._values(piece)
        ranges = [[i.range for i in t.items] for t in (scores, values)]
        if ranges[0] != ranges[1] or self.run_of(scores) != self.run_of(values):
            raise ValueError(f"items of {self.view.name!r} would have other rows in the second product")
        renamed = {b.name: Affine.var(a.name) for a, b in zip(scores.items, values.items, strict=True) if a != b}
        return Products(scores, values, renamed)

    def run_of(self, tile: GroupTile) -> tuple[Index, ...]:
        """The rows of an item."""
        return next(a.run for a in tile.axes if a.loop == self.row)

    def _scores(self, piece: Piece) -> GroupTile:
        kinds, name = self.kinds, self.kinds.row
        stage = self.view.stages[kinds.scores]
        moved = self._with_cell(stage).substitute({name: Affine.var(name) + piece.start})
        main = replace(moved, loops=tuple(i for i in stage.loops if i.name != name))
        return self._tile(main, Index(name, piece.count))

    def _values(self, piece: Piece) -> GroupTile:
        kinds, depth = self.kinds, self.kinds.pieces[self.kinds.values]
        stage = _named_apart(self.view.stages[kinds.values], self.view.stages[kinds.scores])
        weights = next(u for u in stage.uses if u.buffer in kinds.wide)
        place = (Affine.var(depth), Affine.var(self.row) - self.corner)
        moved = self._with_cell(stage).substitute({depth: Affine.var(depth) + piece.start})
        local = Use(weights.name, self.weights.into, place, Direction.IN)
        uses = tuple(local if u.name == weights.name else u for u in moved.uses)
        loops = (replace(i, range=piece.count) if i.name == depth else i for i in stage.loops)
        column = next(i for i in stage.loops if i.name == kinds.column)
        return self._tile(replace(moved, uses=uses, loops=tuple(i for i in loops if i.name != column.name)), column)

    def _with_cell(self, stage: Stage) -> Stage:
        """The product into one cell of its own, with the loop along its result shared."""
        out = merged_use(stage)
        assert out is not None
        cell = replace(out, forms=(Affine(),) * len(out.forms))
        return replace(stage, uses=tuple(cell if u is out else u for u in stage.uses))

    def _tile(self, main: Stage, column: Index) -> GroupTile:
        """A product by itself: groups have tiles of rows, and as much of the loop along its results as one piece."""
        out = merged_use(main)
        assert out is not None
        alloc = next(a for a in self.view.allocs if a.into == out.buffer)
        cell = replace(alloc, type=TensorType.row_major(alloc.type.dtype, (1,) * len(alloc.type.sizes)))
        view = replace(self.view, loops=(*self.view.loops, column), stages=(main,), allocs=(cell,), constraints=())
        tile = group_tile(view, main, self._plan_of(main, column.name))
        return replace(tile, outside=(self.loop,), present=frozenset({self.weights.into}))

    def _plan_of(self, main: Stage, column: str) -> Plan:
        """The part of the plan that is about one product."""
        loops = {*(i.name for i in self.view.loops), column, *main.loop_names}
        grid, pieces, *inner = self.plan.levels
        covers = grid.covers + pieces.covers
        levels = [replace(v, covers=tuple(c for c in v.covers if c.loop in loops)) for v in inner]
        first = Level(Bind.GRID, tuple(c for c in covers if c.loop in loops and c.loop not in main.loop_names))
        read = {u.buffer for u in main.uses if u.reads and not u.writes}
        stagings = tuple(replace(s, level=s.level - 1) for s in self.plan.stagings if s.operand in read)
        reductions = tuple(r for r in self.plan.reductions if r.loop in main.loop_names)
        return replace(self.plan, levels=(first, *levels), stagings=stagings, reductions=reductions)

    @property
    def corner(self) -> Affine:
        """The first row of a group."""
        tiles = -(-self.view.ranges[self.row] // self.rows)
        return Affine.var(f"{self.row}_g", self.rows) if tiles > 1 else Affine()

    @cached_property
    def weights(self) -> Refinement:
        """The weights of a piece, by their place in it and by rows."""
        stage = self.view.stages[self.kinds.values]
        name = next(u.buffer for u in stage.uses if u.buffer in self.kinds.wide)
        type = local_type((self.size, self.rows), (0, 1), self.view.type_of(name).dtype, PAD)
        return Refinement(Direction.ALLOC, f"{name}_local", "", (Affine(),) * 2, type, loc=GROUP_MEMORY)


def _named_apart(stage: Stage, other: Stage) -> Stage:
    """The stage with names for its accesses that the other does not have."""
    taken = {u.name for u in (*other.uses, *stage.uses)}
    new = {u.name: claim(u.name, taken) for u in stage.uses if any(u.name == o.name for o in other.uses)}
    uses = tuple(replace(u, name=new.get(u.name, u.name)) for u in stage.uses)
    body = tuple(
        replace(s, src=new.get(s.src, s.src)) if isinstance(s, Load)
        else replace(s, dst=new.get(s.dst, s.dst)) if isinstance(s, Store)
        else s
        for s in stage.body
    )  # fmt: skip
    return replace(stage, uses=uses, body=body)
