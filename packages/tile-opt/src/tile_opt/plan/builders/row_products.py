"""Both products of a kernel over rows (`kernel.rows_in_steps`), each on the items of groups: `plan.builders.group_tiles` for one piece of a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from math import prod

from tile_ir.frozen import replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Direction, Index, Load, Refinement, Store, Sync, TensorType, number_of

from tile_opt.kernel.view import Stage, Use
from tile_opt.kernel.work import merged_use
from tile_opt.plan.builders.cells import Cells
from tile_opt.plan.builders.group_tiles import GroupTile, group_tile
from tile_opt.plan.builders.row_parts import Piece, RowParts, Sharers
from tile_opt.plan.plan import Level, Plan
from tile_opt.plan.steps.groups.copy import local_type
from tile_opt.plan.tree import GROUP_MEMORY, Nest, Node, substitute

PAD = 4
"""Elements added to each line of weights in local memory: whole vectors."""


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
class RowProducts(RowParts):
    """Products whose factors items multiply one by one."""

    # --- products ---------------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        """The product that weighs: there is one of either kind."""
        return self.kinds.lasts[0]

    @property
    def _column(self) -> str:
        return self.kinds.columns[self.last]

    @cached_property
    def first(self) -> Products:
        """The products of the first piece: what items have, and where, is the same for all."""
        return self._tiles(self.whole if self.loop.range else self._rest)

    @property
    def _rest(self) -> Piece:
        assert self.rest is not None
        return self.rest

    @cached_property
    def _known(self) -> dict[Piece, Products]:
        return {}

    def _tiles(self, piece: Piece) -> Products:
        """The products of a piece, made once."""
        if piece not in self._known:
            self._known[piece] = self.products(piece)
        return self._known[piece]

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
        stage = self.view.stages[kinds.firsts[0]]
        moved = with_cell(stage).substitute({name: Affine.var(name) + piece.start})
        main = replace(moved, loops=tuple(i for i in stage.loops if i.name != name))
        return self._tile(main, Index(name, piece.count))

    def _values(self, piece: Piece) -> GroupTile:
        kinds, depth = self.kinds, self.kinds.pieces[self.last]
        stage = named_apart(self.view.stages[self.last], self.view.stages[kinds.firsts[0]])
        weights = next(u for u in stage.uses if u.buffer in kinds.wide)
        place = (Affine.var(depth), Affine.var(self.row) - self.corner)
        moved = with_cell(stage).substitute({depth: Affine.var(depth) + piece.start})
        local = Use(weights.name, self.weights.into, place, Direction.IN)
        uses = tuple(local if u.name == weights.name else u for u in moved.uses)
        loops = (replace(i, range=piece.count) if i.name == depth else i for i in stage.loops)
        column = next(i for i in stage.loops if i.name == self._column)
        return self._tile(replace(moved, uses=uses, loops=tuple(i for i in loops if i.name != column.name)), column)

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

    @cached_property
    def weights(self) -> Refinement:
        """The weights of a piece, by their place in it and by rows."""
        name = self.kinds.weights(self.last)
        type = local_type((self.size, self.rows), (0, 1), self.view.type_of(name).dtype, PAD)
        return Refinement.allocation(f"{name}_local", type, GROUP_MEMORY)

    # --- what items have --------------------------------------------------------------------------------

    @cached_property
    def rows_of_item(self) -> Cells:
        return _registers(self.run_of(self.first.scores)).one_by_one

    def cells(self, buffer: str) -> Cells:
        if buffer in self.kinds.wide:
            return _registers(self.first.scores.run)
        return _registers(self.first.values.run) if buffer in self.kinds.across else self.rows_of_item

    def over(self, number: int) -> Cells:
        if number in self.kinds.pieces:
            return _registers(self.first.scores.run)
        return _registers(self.first.values.run) if number in self.kinds.columns else self.rows_of_item

    def where(self, number: int, piece: Piece) -> dict[str, Affine]:
        kinds, tiles = self.kinds, self._tiles(piece)
        if number in kinds.pieces:
            return tiles.scores.forms | {kinds.pieces[number]: tiles.scores.forms[kinds.row] + piece.start}
        if number in kinds.columns:
            moved = {n: f.substitute(tiles.renamed) for n, f in tiles.values.forms.items()}
            return moved | {kinds.columns[number]: moved[self._column]}
        return dict(tiles.scores.forms)

    def limits(self, number: int, piece: Piece, names: Set[str]) -> tuple[Affine, ...]:
        tiles = self._tiles(piece)
        if number in self.kinds.columns and number not in self.kinds.pieces:
            return tuple(c.substitute(tiles.renamed) for c in tiles.values.limits(names))
        return tiles.scores.limits(names)

    @cached_property
    def sharers(self) -> Sharers:
        form = self.first.scores.forms[self.row]
        items = [i for i in self.first.scores.items if i.name not in form.names]
        return Sharers(form - self.corner, number_of(items), prod(i.range for i in items), Sync())

    # --- what they do -----------------------------------------------------------------------------------

    def begun(self) -> Iterator[Node]:
        yield from ()

    def scored(self, number: int, piece: Piece) -> Iterator[Node]:
        del number
        scores, _ = self._tiles(piece).nodes
        # What the other product fetches first is on its way while rows are weighed.
        yield from (*scores, *self._early(piece))

    def valued(self, number: int, piece: Piece) -> Iterator[Node]:
        del number
        _, values = self._tiles(piece).nodes
        yield from (self._put(), *values[len(self._early(piece)) :])

    def _early(self, piece: Piece) -> list[Node]:
        return list(takewhile(lambda n: isinstance(n, Stage), self._tiles(piece).nodes[1]))

    def _put(self) -> Stage:
        """The weights of a piece, for all items."""
        tile = self.first.scores
        name = self.weights.into.removesuffix("_local")
        source = Use("src", name, self.cells(name).forms(len(self.view.type_of(name).sizes)), Direction.IN)
        place = (tile.forms[self.kinds.row], tile.forms[self.row] - self.corner)
        target = Use("dst", self.weights.into, place, Direction.OUT)
        return Stage.copy(f"put_{name}", tile.run, source, target)

    def around(self, body: tuple[Node, ...], own: tuple[Refinement, ...], shared: tuple[Refinement, ...]) -> Nest:
        tiles = self.first
        grid = tuple(a.grid for a in tiles.scores.axes if a.grid is not None)
        copies = {r.into: r for r in tiles.allocs}
        local = [r for r in copies.values() if r.loc == GROUP_MEMORY]
        held = [r for r in copies.values() if r.loc != GROUP_MEMORY]
        items = Nest(f"{self.view.name}_items", tiles.scores.items, body, allocs=(*own, *held))
        return Nest(self.view.name, grid, (items,), allocs=(*local, self.weights, *shared))


def _registers(loops: tuple[Index, ...]) -> Cells:
    """An element of its own for each iteration."""
    return Cells(loops, tuple(Affine.var(i.name) for i in loops), tuple(i.range for i in loops))


def with_cell(stage: Stage) -> Stage:
    """The product into one cell of its own, with the loop along its result shared."""
    out = merged_use(stage)
    assert out is not None
    cell = replace(out, forms=(Affine(),) * len(out.forms))
    return stage.map_uses(lambda use: cell if use is out else use)


def named_apart(stage: Stage, *others: Stage) -> Stage:
    """The stage with names for its accesses that the others do not have."""
    theirs = {u.name for other in others for u in other.uses}
    taken = theirs | {u.name for u in stage.uses}
    return with_names(stage, {u.name: claim(u.name, taken) for u in stage.uses if u.name in theirs})


def with_names(stage: Stage, new: Mapping[str, str]) -> Stage:
    """The stage with other names for some accesses."""
    uses = tuple(replace(u, name=new.get(u.name, u.name)) for u in stage.uses)
    body = tuple(
        replace(s, src=new.get(s.src, s.src)) if isinstance(s, Load)
        else replace(s, dst=new.get(s.dst, s.dst)) if isinstance(s, Store)
        else s
        for s in stage.body
    )  # fmt: skip
    return replace(stage, uses=uses, body=body)
