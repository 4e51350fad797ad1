"""A kernel over rows that are walked piece by piece, on the items of groups: what `kernel.rows_in_steps` finds, scheduled.

    kernel [grid] {                                    one group per tile of rows
      weights, panels and partial results in local memory
      group [items] {
        start the largest element and the sums
        pieces {
          scores of the piece, in registers            (`plan.group_tiles`)
          its largest elements; exchange; the largest so far
          sums times exp(old largest - new largest)
          weights, in registers and in local memory
          sums; values                                 (`plan.group_tiles`)
        }
        put the items' partial sums together; finish
      }
    }

An item has the same rows in both products, so what belongs to rows stays in its registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from math import prod

from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Const,
    Direction,
    Index,
    Load,
    Op,
    Refinement,
    Store,
    Sync,
    TensorType,
)

from tile_opt.kernel.rows_in_steps import RowsInSteps
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import merged_use
from tile_opt.plan.group_tiles import GroupTile
from tile_opt.plan.plan import Plan
from tile_opt.plan.row_products import Piece, Products, RowProducts
from tile_opt.plan.steps.combine import identities
from tile_opt.plan.tree import GROUP_MEMORY, REGISTER, Nest, Node, close_tree
from tile_opt.program.chunks import LOWEST


def local_bytes(kinds: RowsInSteps, plan: Plan) -> int:
    """Of a group's memory; ValueError for a plan that cannot be built."""
    return sum(r.type.nbytes * r.versions for r in _Tiles(RowProducts(kinds, plan)).nest().allocs)


def build_rows_in_steps(kinds: RowsInSteps, plan: Plan) -> Block:
    """The scheduled kernel; ValueError for a plan that cannot be built."""
    return close_tree(kinds.view, _Tiles(RowProducts(kinds, plan)).nest())


@dataclass(frozen=True)
class _Tiles:
    """What the groups of a kernel do."""

    parts: RowProducts

    @property
    def kinds(self) -> RowsInSteps:
        return self.parts.kinds

    @property
    def view(self) -> KernelView:
        return self.kinds.view

    @property
    def first(self) -> Products:
        return self.parts.first

    # --- buffers ----------------------------------------------------------------------------------------

    @cached_property
    def run(self) -> tuple[Index, ...]:
        """An item's rows."""
        return tuple(replace(i, bind=Bind.UNROLL, lanes=1) for i in self.parts.run_of(self.first.scores))

    @cached_property
    def dtype(self) -> DType:
        """In which sums are kept."""
        return self.view.type_of(self.kinds.results).dtype

    def _cells(self, buffer: str) -> tuple[Index, ...]:
        """The loops over what an item has of an own buffer."""
        if buffer in self.kinds.wide:
            return self.first.scores.run
        return self.first.values.run if buffer == self.kinds.results else self.run

    def _home(self, buffer: str) -> Refinement:
        alloc = next(a for a in self.view.allocs if a.into == buffer)
        return _registers(buffer, alloc.type.dtype, len(alloc.type.sizes), self._cells(buffer))

    def _row_cells(self, name: str, dtype: DType) -> Refinement:
        return _registers(name, dtype, 0, self.run)

    @cached_property
    def pivot(self) -> Refinement:
        """Below what weights and sums are at present."""
        return self._row_cells(f"{self.kinds.largest}_pivot", self.view.type_of(self.kinds.largest).dtype)

    @cached_property
    def factor(self) -> Refinement:
        """By what sums are multiplied when the pivot changes."""
        return self._row_cells(f"{self.kinds.largest}_factor", self.dtype)

    @cached_property
    def shares(self) -> dict[str, Refinement]:
        """An item's part of what belongs to rows, by the name of the whole."""
        names = [n for n in (self.kinds.largest, *self.kinds.sums) if n != self.kinds.results]
        return {n: self._row_cells(f"{n}_share", self.view.type_of(n).dtype) for n in names}

    @cached_property
    def exchanged(self) -> dict[str, Refinement]:
        """The items' parts, in local memory: by row and item."""
        return {n: self._exchange(f"{n}_exchange", share.type.dtype) for n, share in self.shares.items()}

    def _exchange(self, name: str, dtype: DType) -> Refinement:
        type = TensorType.row_major(dtype, (self.parts.rows, prod(i.range for i in self.across)), align=16)
        return Refinement(Direction.ALLOC, name, "", (Affine(),) * 2, type, loc=GROUP_MEMORY)

    @cached_property
    def across(self) -> tuple[Index, ...]:
        """The items' indexes that share rows."""
        form = self.first.scores.forms[self.parts.row]
        return tuple(i for i in self.first.scores.items if i.name not in form.names)

    # --- the tree ---------------------------------------------------------------------------------------

    def nest(self) -> Nest:
        """The tree of the scheduled kernel."""
        tiles = self.first
        grid = tuple(a.grid for a in tiles.scores.axes if a.grid is not None)
        stages = range(len(self.view.stages))
        begin = [self._stage(k) for k in stages if self.kinds.before(k)]
        end = [self._stage(k) for k in stages if k not in self.kinds.pieces and not self.kinds.before(k)]
        body = (*begin, *self._start(), *self._pieces(), *self._finish(), *end)
        homes = [self._home(a.into) for a in self.view.allocs]
        own = (*homes, self.pivot, self.factor, *self.shares.values())
        copies = {r.into: r for r in tiles.allocs}
        local = [r for r in copies.values() if r.loc == GROUP_MEMORY]
        held = [r for r in copies.values() if r.loc != GROUP_MEMORY]
        items = Nest(f"{self.view.name}_items", tiles.scores.items, body, allocs=(*own, *held))
        return Nest(self.view.name, grid, (items,), allocs=(*local, self.parts.weights, *self.exchanged.values()))

    def _pieces(self) -> Iterator[Node]:
        if self.parts.loop.range > 1:
            yield Nest(f"{self.view.name}_pieces", (self.parts.loop,), tuple(self._piece(self.parts.whole)))
        elif self.parts.loop.range:
            yield from self._piece(self.parts.whole)
        if self.parts.rest is not None:
            yield Nest(f"{self.view.name}_rest", (), tuple(self._piece(self.parts.rest)))

    def _piece(self, piece: Piece) -> Iterator[Node]:
        """What is done of one piece."""
        tiles = self.parts.products(piece)
        scores, values = tiles.nodes
        early = list(takewhile(lambda n: isinstance(n, Stage), values))
        for k in sorted(self.kinds.pieces):
            if k == self.kinds.scores:
                # What the other product fetches first is on its way while rows are weighed.
                yield from (*scores, *early)
            elif k == self.kinds.values:
                yield from (self._put(), *values[len(early) :])
            elif self._merges(k) == self.kinds.largest:
                yield from self._grown(k, piece, tiles)
            else:
                yield self._stage(k, piece, tiles)

    def _merges(self, number: int) -> str:
        """The buffer of rows that a stage merges into."""
        use = merged_use(self.view.stages[number])
        return use.buffer if use is not None else ""

    # --- what belongs to rows ---------------------------------------------------------------------------

    def _start(self) -> Iterator[Stage]:
        """The pivot, and what items have of the sums."""
        lowest = LOWEST[self.pivot.type.dtype]
        body = (Const("$z", lowest, self.pivot.type.dtype), Store("pivot", "$z"))
        yield self._over_rows("start", (self._use("pivot", self.pivot, Direction.OUT),), body)
        for name, share in self.shares.items():
            if name != self.kinds.largest:
                yield identities(f"{name}_start", share, self._aggregate(name), self.run)

    def _aggregate(self, name: str) -> Aggregation:
        return Aggregation.MAX if name == self.kinds.largest else Aggregation.SUM

    def _grown(self, number: int, piece: Piece, tiles: Products) -> Iterator[Node]:
        """The largest elements with those of a piece, and the sums below them."""
        name = self.kinds.largest
        yield identities(f"{name}_share_start", self.shares[name], self._aggregate(name), self.run)
        yield self._stage(number, piece, tiles)
        yield from self._gathered(name)
        yield self._turned(bounded=True)
        yield from self._scaled()

    def _gathered(self, name: str) -> Iterator[Node]:
        """Every item merges the parts of all that share its rows."""
        share, exchange = self.shares[name], self.exchanged[name]
        row = self.first.scores.forms[self.parts.row] - self.parts.corner
        number, count = Affine(), 1
        for item in reversed(self.across):
            number, count = number + Affine.var(item.name, count), count * item.range
        move = (Load("$x", "src"), Store("dst", "$x"))
        told = Use("dst", exchange.into, (row, number), Direction.OUT)
        yield self._over_rows(f"{name}_tell", (self._use("src", share, Direction.IN), told), move)
        yield Sync()
        other = Index(f"{name}_other", count, bind=Bind.UNROLL)
        heard = Use("src", exchange.into, (row, Affine.var(other.name)), Direction.IN)
        whole = replace(self._use("dst", self._home(name), Direction.INOUT), agg=self._aggregate(name))
        yield self._over_rows(f"{name}_hear", (heard, whole), move, (other,))

    def _turned(self, *, bounded: bool) -> Stage:
        """The new pivot, and ``exp(old - new)``; `bounded`, it is a number that something can be subtracted from."""
        near, dtype = self.pivot.type.dtype, self.dtype
        bound = (Const("$low", LOWEST[near], near), Op("$new", "max", ("$m", "$low"), near))
        body = (
            Load("$m", "largest"),
            *(bound if bounded else (Op("$new", "ident", ("$m",), near),)),
            Load("$old", "pivot"),
            Op("$a", "cast", ("$old",), dtype),
            Op("$b", "cast", ("$new",), dtype),
            Op("$apart", "sub", ("$a", "$b"), dtype),
            Op("$k", "exp", ("$apart",), dtype),
            Store("factor", "$k"),
            Store("pivot", "$new"),
        )
        uses = (
            self._use("largest", self._home(self.kinds.largest), Direction.IN),
            self._use("pivot", self.pivot, Direction.INOUT),
            self._use("factor", self.factor, Direction.OUT),
        )
        return self._over_rows("turn", uses, body)

    def _scaled(self) -> Iterator[Stage]:
        """All sums times the factor."""
        for name in self.kinds.sums:
            cells = self.first.values.run if name == self.kinds.results else self.run
            home = self._home(name) if name == self.kinds.results else self.shares[name]
            dtype = home.type.dtype
            body = (
                Load("$x", "sum"),
                Load("$k", "factor"),
                *((Op("$f", "cast", ("$k",), dtype),) if dtype is not self.dtype else ()),
                Op("$y", "mul", ("$x", "$k" if dtype is self.dtype else "$f"), dtype),
                Store("sum", "$y"),
            )
            zeros = (Affine(),) * (len(home.type.sizes) - len(cells))
            place = (*zeros, *(Affine.var(i.name) for i in cells))
            uses = (Use("sum", home.into, place, Direction.INOUT), self._use("factor", self.factor, Direction.IN))
            yield Stage(f"{name}_scale", cells, (), uses, body)

    def _finish(self) -> Iterator[Node]:
        """The sums below the largest elements themselves, whatever these are."""
        yield self._turned(bounded=False)
        yield from self._scaled()
        for name in self.shares:
            if name != self.kinds.largest:
                yield from self._gathered(name)

    # --- stages -----------------------------------------------------------------------------------------

    def _over_rows(
        self,
        name: str,
        uses: tuple[Use, ...],
        body: tuple[Load | Op | Const | Store, ...],
        more: tuple[Index, ...] = (),
    ) -> Stage:
        return Stage(f"{self.kinds.largest}_{name}", (*self.run, *more), (), uses, body)

    def _use(self, name: str, home: Refinement, direction: Direction) -> Use:
        zeros = (Affine(),) * (len(home.type.sizes) - len(self.run))
        return Use(name, home.into, (*zeros, *(Affine.var(i.name) for i in self.run)), direction)

    def _put(self) -> Stage:
        """The weights of a piece, for all items."""
        tile = self.first.scores
        name = self.parts.weights.into.removesuffix("_local")
        cells = tuple(Affine.var(i.name) for i in tile.run)
        zeros = (Affine(),) * len(self.view.type_of(name).sizes)
        place = (tile.forms[self.kinds.row], tile.forms[self.parts.row] - self.parts.corner)
        uses = (
            Use("src", name, (*zeros, *cells), Direction.IN),
            Use("dst", self.parts.weights.into, place, Direction.OUT),
        )
        return Stage(f"put_{name}", tile.run, (), uses, (Load("$x", "src"), Store("dst", "$x")))

    def _stage(self, number: int, piece: Piece | None = None, tiles: Products | None = None) -> Stage:
        """A stage other than a product, over what each item has of it."""
        stage, kinds = self.view.stages[number], self.kinds
        both = tiles or self.first
        values, run, tile = dict(both.scores.forms), self.run, both.scores
        start = Affine() if piece is None else piece.start
        if number in kinds.pieces:
            values[kinds.pieces[number]] = values[kinds.row] + start
            run = tile.run
        elif number in kinds.columns:
            tile = both.values
            moved = {n: f.substitute(both.renamed) for n, f in tile.forms.items()}
            values = moved | {kinds.columns[number]: moved[kinds.column]}
            run = tile.run
        merges = self._merges(number)
        if merges:
            run = tuple(replace(i, bind=Bind.UNROLL, lanes=1) for i in run)
        uses = tuple(self._at_home(u, number, merges) for u in stage.uses)
        own = {kinds.pieces.get(number), kinds.columns.get(number)}
        left = tuple(i for i in stage.loops if i.name not in own)
        limits = self._limits(stage, number, tile)
        if tile is both.values:
            limits = tuple(c.substitute(both.renamed) for c in limits)
        inner = replace(stage, loops=(*run, *left)).substitute(values)
        moved_uses = {u.name: u for u in uses}
        return replace(
            inner,
            uses=tuple(moved_uses[u.name] if self.view.is_local(stage.use(u.name).buffer) else u for u in inner.uses),
            constraints=(*inner.constraints, *limits),
        )

    def _limits(self, stage: Stage, number: int, tile: GroupTile) -> tuple[Affine, ...]:
        """Rows and columns that are not there touch no memory; scores that are not there are merged into nothing."""
        outside = any(not self.view.is_local(u.buffer) for u in stage.uses)
        names = {self.parts.row, self.kinds.column} if outside else set[str]()
        return tile.limits(names | ({self.kinds.row} if number in self.kinds.pieces else set[str]()))

    def _at_home(self, use: Use, number: int, merged: str) -> Use:
        """An access to an own buffer where an item has it; below the pivot, what is to be below the largest element."""
        if not self.view.is_local(use.buffer):
            return use
        if use.buffer == merged and merged in self.shares:
            return replace(self._use(use.name, self.shares[merged], use.dir), agg=use.agg)
        if use.buffer == self.kinds.largest and number in self.kinds.pieces:
            return self._use(use.name, self.pivot, use.dir)
        cells = tuple(Affine.var(i.name) for i in self._cells(use.buffer))
        return replace(use, forms=((Affine(),) * len(use.forms) + cells))


def _registers(name: str, dtype: DType, rank: int, cells: tuple[Index, ...]) -> Refinement:
    sizes = (1,) * rank + tuple(i.range for i in cells)
    type = TensorType.row_major(dtype, sizes, align=16)
    return Refinement(Direction.ALLOC, name, "", (Affine(),) * len(sizes), type, loc=REGISTER)
