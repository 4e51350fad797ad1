"""A kernel over rows that are walked piece by piece, on the items of groups: what `kernel.rows_in_steps` finds, scheduled.

    kernel [grid] {                                    one group per tile of rows
      weights, panels and partial results in local memory
      group [items] {
        start the largest element and the sums
        pieces {
          scores of the piece, in registers            (`plan.builders.row_parts`)
          its largest elements; exchange; the largest so far
          sums times exp(old largest - new largest)
          what the first piece alone shows of the row
          weights
          sums; values                                 (`plan.builders.row_parts`)
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
from itertools import groupby

from tile_ir.dtype import DType
from tile_ir.frozen import replace
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import Bind, Block, Const, Direction, Index, Load, Op, Refinement, Store, TensorType

from tile_opt.kernel.rows_in_steps import RowsInSteps
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import merged_use
from tile_opt.plan.builders.cells import Cells
from tile_opt.plan.builders.pivots import apart, bounded, final
from tile_opt.plan.builders.row_parts import Piece, RowParts
from tile_opt.plan.tree import GROUP_MEMORY, Nest, Node, close_tree
from tile_opt.program.chunks import LOWEST


def local_bytes(parts: RowParts) -> int:
    """Of a group's memory; ValueError for a plan that cannot be built."""
    return sum(r.type.nbytes * r.versions for r in _Tiles(parts).nest().allocs)


def build_rows_in_steps(parts: RowParts) -> Block:
    """The scheduled kernel; ValueError for a plan that cannot be built."""
    return close_tree(parts.view, _Tiles(parts).nest())


@dataclass(frozen=True)
class _Tiles:
    """What the groups of a kernel do."""

    parts: RowParts

    @property
    def kinds(self) -> RowsInSteps:
        return self.parts.kinds

    @property
    def view(self) -> KernelView:
        return self.kinds.view

    # --- buffers ----------------------------------------------------------------------------------------

    @property
    def run(self) -> Cells:
        """An item's rows."""
        return self.parts.rows_of_item

    @cached_property
    def dtype(self) -> DType:
        """In which sums are kept."""
        return self.view.type_of(self.kinds.results[0]).dtype

    def _home(self, buffer: str) -> Refinement:
        alloc = next(a for a in self.view.allocs if a.into == buffer)
        return self.parts.cells(buffer).home(buffer, alloc.type.dtype, len(alloc.type.sizes))

    @cached_property
    def pivot(self) -> Refinement:
        """Below what weights and sums are at present."""
        return self.run.home(f"{self.kinds.largest}_pivot", self.view.type_of(self.kinds.largest).dtype)

    @cached_property
    def factor(self) -> Refinement:
        """By what sums are multiplied when the pivot changes."""
        return self.run.home(f"{self.kinds.largest}_factor", self.dtype)

    @cached_property
    def shares(self) -> dict[str, Refinement]:
        """An item's part of what belongs to rows, by the name of the whole."""
        kinds = self.kinds
        every = kinds.largest, *kinds.sums, *kinds.totals, *kinds.samples
        names = [n for n in every if n and n not in kinds.results]
        return {n: self.run.home(f"{n}_share", self.view.type_of(n).dtype) for n in names}

    @cached_property
    def exchanged(self) -> dict[str, Refinement]:
        """The items' parts, in local memory: by row and item."""
        return {n: self._exchange(f"{n}_exchange", share.type.dtype) for n, share in self.shares.items()}

    def _exchange(self, name: str, dtype: DType) -> Refinement:
        type = TensorType.row_major(dtype, (self.parts.rows, self.parts.sharers.count), align=16)
        return Refinement.allocation(name, type, GROUP_MEMORY)

    # --- the tree ---------------------------------------------------------------------------------------

    def nest(self) -> Nest:
        """The tree of the scheduled kernel."""
        stages = range(len(self.view.stages))
        begin = [self._stage(k) for k in stages if self.kinds.before(k)]
        ends = (k for k in stages if k not in self.kinds.pieces and not self.kinds.before(k))
        end = [node for k in ends for node in self._end(k)]
        start, finish = (self._start(), self._finish()) if self.kinds.largest else ((), ())
        body = (*self.parts.begun(), *begin, *start, *self._pieces(), *finish, *end)
        homes = [self._home(a.into) for a in self.view.allocs]
        common = tuple(h for h in homes if h.loc == GROUP_MEMORY)
        turned = (self.pivot, self.factor) if self.kinds.largest else ()
        near = (n.home for n in dict.fromkeys(self.parts.near.values()))
        own = (*(h for h in homes if h not in common), *turned, *self.shares.values(), *near)
        return self.parts.around(body, own, (*common, *self.exchanged.values()))

    def _end(self, number: int) -> Iterator[Node]:
        """What is done behind the pieces by one of the stages."""
        total = self._merges(number)
        if total not in self.kinds.totals:
            yield self._stage(number)
            return
        yield from (self._empty(f"{total}_share_start", total), self._stage(number))
        yield from self._gathered(total)

    def _pieces(self) -> Iterator[Node]:
        parts, name = self.parts, self.view.name
        if parts.together and parts.loop.range and parts.rest is not None:
            every = replace(parts.loop, range=parts.each)
            piece = Piece(parts.start + Affine.var(every.name), parts.size, parts.size)
            yield Nest(f"{name}_pieces", (every,), tuple(self._either(piece, parts.rest)), parts.wanted(piece))
            return
        if parts.loop.range > 1:
            yield Nest(f"{name}_pieces", (parts.loop,), tuple(self._piece(parts.whole)), parts.wanted(parts.whole))
        elif parts.loop.range:
            yield from self._where_wanted(f"{name}_piece", parts.whole)
        if parts.rest is not None:
            yield from self._where_wanted(f"{name}_rest", parts.rest)

    def _where_wanted(self, name: str, piece: Piece) -> Iterator[Node]:
        """A piece by itself."""
        yield Nest(name, (), tuple(self._piece(piece)), guard=self.parts.wanted(piece))

    def _piece(self, piece: Piece) -> Iterator[Node]:
        """What is done of one piece."""
        for k in sorted(self.kinds.pieces):
            yield from self._step(k, piece)

    def _either(self, piece: Piece, rest: Piece) -> Iterator[Node]:
        """What is done of any piece: of all that is no product, what a whole one needs, or the rest."""
        number = piece.number - rest.number
        products, last = self.kinds.products, self.kinds.firsts[-1]
        for product, stages in groupby(sorted(self.kinds.pieces), lambda k: k in products):
            steps = tuple(stages)
            if product or (steps[-1] < self.kinds.firsts[0] and not any(map(self._is_outside, steps))):
                yield from (node for k in steps for node in self._step(k, piece))
                continue
            for name, guard, kind in (("whole", number * -1 - 1, piece), ("rest", number, rest)):
                first = self.parts.weighing(kind) if last < steps[0] < self.kinds.lasts[0] else ()
                body = (*first, *(node for k in steps for node in self._step(k, kind)))
                yield Nest(f"{self.view.name}_{name}_{steps[0]}", (), body, guard=(guard,))

    def _step(self, number: int, piece: Piece) -> Iterator[Node]:
        """What is done of a piece by one of the stages."""
        if number in self.kinds.firsts:
            yield from self.parts.scored(number, piece)
            yield from self.parts.weighing(piece) if number == self.kinds.firsts[-1] else ()
        elif number in self.kinds.lasts:
            yield from self.parts.valued(number, piece)
        elif self.kinds.largest and self._merges(number) == self.kinds.largest:
            yield from self._grown(number, piece)
        elif self._merges(number) in self.kinds.samples:
            yield from self._sampled(number, piece)
        else:
            yield self._stage(number, piece)

    def _is_outside(self, number: int) -> bool:
        """The stage touches memory."""
        return any(map(self._in_memory, self.view.stages[number].uses))

    def _in_memory(self, use: Use) -> bool:
        return not self.view.is_local(use.buffer) and use not in self.parts.near

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
        for name in self.shares:
            if name in self.kinds.sums:
                yield self._empty(f"{name}_start", name)

    def _aggregate(self, name: str) -> Aggregation:
        merging = (use for stage in self.view.stages if (use := merged_use(stage)) is not None)
        return next(use.agg for use in merging if use.buffer == name and use.agg is not None)

    def _empty(self, name: str, rows: str) -> Stage:
        """An item's part of what belongs to rows, with nothing merged into it."""
        share = self.shares[rows]
        dtype = share.type.dtype
        nothing = Const("$empty", self._aggregate(rows).identity(dtype), dtype)
        return Stage(
            name, self.run.loops, (), (self._use("dst", share, Direction.OUT),), (nothing, Store("dst", "$empty"))
        )

    def _sampled(self, number: int, piece: Piece) -> Iterator[Node]:
        """What is known of the first few elements of rows, in the piece that has them."""
        name, at = self._merges(number), piece.number
        if self.view.ranges[self.kinds.pieces[number]] > self.parts.size:
            raise ValueError(f"a piece has fewer elements than {self.view.name!r} takes first of a row")
        if not (at.is_const and at.const):
            first = self._stage(number, replace(piece, number=Affine()))
            made = (self._stage(k) for k in range(len(self.view.stages)) if self.kinds.of_samples(k))
            body = (self._empty(f"{name}_share_start", name), first, *self._gathered(name), *made)
            yield Nest(f"{name}_sampled", (), body, guard=() if at.is_const else (at * -1,))

    def _grown(self, number: int, piece: Piece) -> Iterator[Node]:
        """The largest elements with those of a piece, and the sums below them."""
        name = self.kinds.largest
        yield self._empty(f"{name}_share_start", name)
        yield self._stage(number, piece)
        yield from self._gathered(name)
        yield self._turned(below=True)
        yield from self._scaled()

    def _gathered(self, name: str) -> Iterator[Node]:
        """Every item merges the parts of all that share its rows."""
        share, exchange, sharers = self.shares[name], self.exchanged[name], self.parts.sharers
        own = self._use("src", share, Direction.IN)
        told = Use("dst", exchange.into, (sharers.row, sharers.number), Direction.OUT)
        yield Stage.copy(f"{self.kinds.largest}_{name}_tell", self.run.loops, own, told)
        yield sharers.meet
        other = Index(f"{name}_other", sharers.count, bind=Bind.UNROLL)
        heard = Use("src", exchange.into, (sharers.row, Affine.var(other.name)), Direction.IN)
        whole = replace(self._use("dst", self._home(name), Direction.INOUT), agg=self._aggregate(name))
        yield Stage.copy(f"{self.kinds.largest}_{name}_hear", (*self.run.loops, other), heard, whole)

    def _turned(self, *, below: bool) -> Stage:
        """The new pivot, and ``exp(old - new)``; `below`, it is a number that something can be subtracted from."""
        near, largest = self.pivot.type.dtype, ("$m", "$new")
        body = (
            Load("$m", "largest"),
            *(bounded(*largest, near) if below else final(*largest, near, self.kinds.instead)),
            Load("$old", "pivot"),
            *apart("$old", "$new", "$k", self.dtype),
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
            mine = name in self.kinds.results
            cells, home = (self.parts.cells(name), self._home(name)) if mine else (self.run, self.shares[name])
            dtype = home.type.dtype
            body = (
                Load("$x", "sum"),
                Load("$k", "factor"),
                *((Op("$f", "cast", ("$k",), dtype),) if dtype is not self.dtype else ()),
                Op("$y", "mul", ("$x", "$k" if dtype is self.dtype else "$f"), dtype),
                Store("sum", "$y"),
            )
            uses = (cells.use("sum", home, Direction.INOUT), self._use("factor", self.factor, Direction.IN))
            yield Stage(f"{name}_scale", cells.loops, (), uses, body)

    def _finish(self) -> Iterator[Node]:
        """The sums below the largest elements themselves, whatever these are; those that groups share stay below numbers."""
        if not self.parts.share:
            yield from (self._as_stored(dtype) for dtype in self._stored())
            yield self._turned(below=False)
            yield from self._scaled()
        for name in self.shares:
            if name in self.kinds.sums:
                yield from self._gathered(name)

    def _stored(self) -> Iterator[DType]:
        """The shorter float that the largest elements are stored in, if they are: who reads them there finds sums below these."""
        home = self._home(self.kinds.largest).type.dtype
        ends = (s for k, s in enumerate(self.view.stages) if k not in self.kinds.pieces and not self.kinds.before(k))
        for stage in ends:
            told = [u for u in stage.uses if u.writes and not self.view.is_local(u.buffer)]
            if len(told) == 1 and {u.buffer for u in stage.uses if u.reads} == {self.kinds.largest}:
                dtype = self.view.type_of(told[0].buffer).dtype
                yield from (dtype,) if dtype.is_float and dtype.bytes < home.bytes else ()

    def _as_stored(self, dtype: DType) -> Stage:
        """The largest elements as this float has them."""
        home = self._home(self.kinds.largest)
        body = (
            Load("$m", "largest"),
            Op("$short", "cast", ("$m",), dtype),
            Op("$kept", "cast", ("$short",), home.type.dtype),
            Store("largest", "$kept"),
        )
        return self._over_rows("round", (self._use("largest", home, Direction.INOUT),), body)

    # --- stages -----------------------------------------------------------------------------------------

    def _over_rows(self, name: str, uses: tuple[Use, ...], body: tuple[Load | Op | Const | Store, ...]) -> Stage:
        return Stage(f"{self.kinds.largest}_{name}", self.run.loops, (), uses, body)

    def _use(self, name: str, home: Refinement, direction: Direction) -> Use:
        """An item's cell of what belongs to rows."""
        return self.run.use(name, home, direction)

    def _stage(self, number: int, piece: Piece | None = None) -> Stage:
        """A stage other than a product, over what each item has of it."""
        stage, kinds, parts = self.view.stages[number], self.kinds, self.parts
        near = piece or (parts.whole if parts.loop.range else parts.rest)
        assert near is not None
        merges = self._merges(number)
        cells = parts.over(number).one_by_one if merges else parts.over(number)
        own = {kinds.pieces.get(number), kinds.columns.get(number)}
        left = tuple(i for i in stage.loops if i.name not in own)
        inner = replace(stage, loops=(*cells.loops, *left)).substitute(parts.where(number, near))
        uses = tuple(self._found(*use, number, merges) for use in zip(stage.uses, inner.uses, strict=True))
        # What decides whether a row is there stands around all of the row: a branch for each, not for each element.
        rows = names_in(parts.limits(number, near, self._sides(number) & {parts.row}))
        loops = tuple(sorted(inner.loops, key=lambda i: i.name not in rows))
        limits = self._limits(stage, number, near)
        return replace(inner, loops=loops, uses=uses, constraints=(*inner.constraints, *limits))

    def _limits(self, stage: Stage, number: int, piece: Piece) -> tuple[Affine, ...]:
        """Rows and columns that are not there touch no memory; scores that are not there are merged into nothing."""
        names = self._sides(number) | ({self.kinds.row} if number in self.kinds.pieces else set[str]())
        alike = number not in {*self.kinds.pieces, *self.kinds.columns}
        stored = all(not self.view.is_local(u.buffer) for u in stage.uses if u.writes)
        # Of a row that goes on, some stages take the first few elements.
        own, few = self.kinds.pieces.get(number), self._merges(number) in self.kinds.samples
        last = ((self.parts.where(number, piece)[own] * -1 + (self.view.ranges[own] - 1)),) if own and few else ()
        # All items that share a row know what belongs to it: one of them stores it.
        first = (self.parts.sharers.number * -1,) if alike and stored else ()
        return (*self.parts.limits(number, piece, names), *last, *first)

    def _sides(self, number: int) -> set[str]:
        """Of rows and columns, the loops along which a stage walks through memory."""
        outside = filter(self._in_memory, self.view.stages[number].uses)
        moved, own = {n for u in outside for f in u.forms for n in f.names}, self.kinds.columns.get(number)
        last = self.kinds.last_of(number)
        column = set[str]() if last is None or own not in moved else {self.kinds.columns[last]}
        return (moved & {self.parts.row}) | column

    def _found(self, old: Use, new: Use, number: int, merged: str) -> Use:
        """An access, which is to memory at the item's iterations, where the item has the element."""
        if self.view.is_local(old.buffer):
            return self._at_home(old, number, merged)
        near = self.parts.near.get(old)
        return new if near is None else near.use(old.name)

    def _at_home(self, use: Use, number: int, merged: str) -> Use:
        """An access to an own buffer where an item has it; below the pivot, what is to be below the largest element."""
        if use.buffer == merged and merged in self.shares:
            return replace(self._use(use.name, self.shares[merged], use.dir), agg=use.agg)
        if self.kinds.largest == use.buffer and number in self.kinds.pieces:
            return self._use(use.name, self.pivot, use.dir)
        return replace(use, forms=self.parts.cells(use.buffer).forms(len(use.forms)))
