"""The products of a kernel over rows (`kernel.rows_in_steps`) on matrix instructions: `plan.builders.tensor_tiles` for one piece of a row.

Each sub-group has rows of its own, and all scores and results of these. What the first product gives lies in the lanes
as the second one takes it, so that weights never leave registers; teams of sub-groups take them from local memory:

    copy the first factors of all rows, and keys of the first piece
    pieces {
      Wait; Sync; copy the values of the piece; scores
      rows (`plan.builders.rows_in_steps`)
      Wait; Sync; copy the keys of the next piece; values
    }

Where local memory has everything that a piece reads twice, all of the next piece arrives while this one is computed:

    copy the first factors of all rows, and keys and values of the first piece
    pieces {
      Wait; Sync; copy the keys and values of the next piece; scores
      rows
      Sync, where weights are in local memory; values
    }

Several products may give rows, each by keys of its own, and several may weigh values of their own. Where keys are values,
too, a piece has them twice in any case: the next ones arrive while these are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tile_ir.frozen import replace
from tile_ir.matrix import (
    CHUNK_BYTES,
    LANES,
    MATRIX_INSTRUCTIONS,
    PANEL_BYTES,
    ROLES,
    MatrixInstruction,
    instruction_of,
)
from tile_ir.semtree.nodes import PRODUCTS
from tile_ir.stripe.affine import Affine, DivMod, DivModOp
from tile_ir.stripe.nodes import Bind, Const, Direction, Index, Refinement, Scope, Store, Sync, Wait

from tile_opt.kernel.instructions import Match, feeds
from tile_opt.kernel.masks import seen
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.plan.builders.cells import Cells
from tile_opt.plan.builders.product_views import match_on, product_views
from tile_opt.plan.builders.row_near import Near, near, of_pieces, of_rows
from tile_opt.plan.builders.row_parts import Piece, RowParts, Sharers
from tile_opt.plan.builders.tensor_plans import in_tile
from tile_opt.plan.builders.tensor_tiles import TensorTile
from tile_opt.plan.plan import Cover, Level, Plan
from tile_opt.plan.steps.groups.banks import panel_swizzle
from tile_opt.plan.steps.groups.copy import GroupCopy
from tile_opt.plan.steps.groups.fragments import LANE_INDEXES, Walk, shares_of, walk
from tile_opt.plan.steps.groups.tensorise import tile_name
from tile_opt.plan.tree import Nest, Node

TURNS = 2
"""Versions of what arrives while a piece before it is used."""
WORD = 4
ROOM = 200
"""Registers of an item for sums, scores, and what is loaded beside them."""
CELL = "cell"
"""What the indexes over a lane's elements of a matrix start with."""


def _each_of(own: tuple[Index, ...]) -> Cells:
    """An element for each iteration of a lane's own loops."""
    return Cells((*LANE_INDEXES, *own), tuple(Affine.var(i.name) for i in own), tuple(i.range for i in own))


def _step_of(tile: TensorTile) -> str:
    """The loop over a product's steps."""
    return f"{tile.loops['k']}_s"


@dataclass(frozen=True)
class RowFragments(RowParts):
    """Products on matrix instructions. ValueError, from its properties, for a plan that cannot be built."""

    collective: bool = False
    """The lanes of a sub-group load 16-bit fragments together."""

    # --- products ---------------------------------------------------------------------------------------

    @cached_property
    def instruction(self) -> MatrixInstruction:
        name = self.plan.instruction.name if self.plan.instruction is not None else ""
        found = MATRIX_INSTRUCTIONS.get(name)
        if found is None or not feeds(found):
            raise ValueError(f"{name!r} does not give sums as it takes factors")
        return found

    @cached_property
    def _views(self) -> tuple[KernelView, ...]:
        return product_views(self.kinds)

    @cached_property
    def firsts(self) -> dict[int, TensorTile]:
        """The products that give rows, by their stages; their tiles along these are the pieces."""
        found = {
            k: (view, self._match(view, self.kinds.row))
            for k, view in zip(self.kinds.firsts, self._views, strict=False)
        }
        return {k: TensorTile(v, m, self._plan_of(v, m), self.collective, alone=True) for k, (v, m) in found.items()}

    @property
    def scores(self) -> TensorTile:
        """The first of them."""
        return self.firsts[self.kinds.firsts[0]]

    @property
    def values(self) -> TensorTile:
        """The first of those that weigh."""
        return self.lasts[self.kinds.lasts[0]]

    @cached_property
    def lasts(self) -> dict[int, TensorTile]:
        """The products of weights, by their stages; their steps are the pieces."""
        views = self._views[len(self.kinds.firsts) :]
        return {k: self._weighing(k, view) for k, view in zip(self.kinds.lasts, views, strict=True)}

    def _weighing(self, last: int, view: KernelView) -> TensorTile:
        match = self._match(view, self.kinds.columns[last])
        held = {match.left: self._home(self.kinds.weights(last))}
        return TensorTile(view, match, self._plan_of(view, match), self.collective, held, alone=True)

    @cached_property
    def _factors(self) -> tuple[str, ...]:
        """The weights, as products take them."""
        return tuple(dict.fromkeys(map(self.kinds.weights, self.kinds.lasts)))

    @property
    def _team(self) -> bool:
        """Several sub-groups multiply together, factors from local memory."""
        return self.instruction.team > 1

    def _match(self, view: KernelView, column: str) -> Match:
        """The product with rows as the instruction's rows, as many columns at once as the plan says."""
        m, _, k = self.instruction.shape
        wide = next(c.size for c in self.plan.levels[-1].covers if c.loop == column)
        instruction = instruction_of((m, wide, k), self.instruction.a.dtype)
        match = instruction and match_on(view, instruction, self.row, column)
        if match is None:
            raise ValueError(f"{self.instruction.name!r} does not compute a product of {self.view.name!r}")
        return match

    def _plan_of(self, view: KernelView, match: Match) -> Plan:
        """The part of the plan that is about one product."""
        grid, pieces, warps, steps, last = self.plan.levels
        sizes = {c.loop: c.size for level in (grid, pieces, steps) for c in level.covers}
        sizes |= dict.fromkeys((self.kinds.pieces[k] for k in self.kinds.lasts), self.size)
        _, column, depth = (dict(match.loops)[role] for role in ROLES)
        levels = (
            Level(Bind.GRID, tuple(Cover(i.name, sizes[i.name]) for i in view.loops)),
            Level(Bind.SUBGROUP, (*warps.covers, Cover(column, sizes[column]))),
            Level(Bind.NONE, (Cover(depth, sizes[depth]),), ordered=True),
            replace(last, covers=tuple(c for c in last.covers if c.loop in view.ranges)),
        )
        read = {u.buffer for u in match.main.uses if u.reads and not u.writes}
        return replace(self.plan, levels=levels, stagings=tuple(s for s in self.plan.stagings if s.operand in read))

    # --- pieces -----------------------------------------------------------------------------------------

    @property
    def together(self) -> bool:
        # The assembler orders the products of teams one by one where the same sums are those of several loops.
        return self._team or bool(self.share)

    @property
    def loop_name(self) -> str:
        """That of the first product's tiles."""
        return f"{self.kinds.row}_g"

    @cached_property
    def _seen(self) -> tuple[Affine, ...]:
        """Of a piece, what is >= 0 where some row of the group gives one of its scores a weight.

        Rows see pieces up to one of them, from another one on: of forms that say where they begin there is one at most.
        """
        kinds, row = self.kinds, self.kinds.row
        corner, last = self.scores.corner(), {self.row: self.rows - 1, row: self.size - 1}
        found: list[Affine] = []
        for form in seen(kinds):
            far = sum(c * last.get(n, 0) for n, c in form.terms if c > 0)
            begins = [f for f in found if f.coefficient(self.loop.name) > 0]
            if form.coefficient(row) <= 0 or not begins:
                found.append(form.substitute(corner) + far)
        return tuple(found)

    def wanted(self, piece: Piece) -> tuple[Affine, ...]:
        there = (piece.number * -1 + (self.count - 1),) if self._is_uneven else ()
        return (*there, *(f.substitute({self.loop.name: piece.number}) for f in self._seen))

    @property
    def _is_uneven(self) -> bool:
        """The last groups that share a row have fewer pieces than others."""
        return bool(self.share) and self.count % self.each > 0

    def _first_wanted(self, piece: Piece) -> tuple[Affine, ...]:
        """What is >= 0 where the piece before is not wanted, so that nobody has copied this one's keys; empty where all are."""
        begins = (f for f in self._seen if f.coefficient(self.loop.name) > 0)
        return tuple(f.substitute({self.loop.name: piece.number - 1}) * -1 - 1 for f in begins)

    # --- what items have --------------------------------------------------------------------------------

    def _tiles(self, loop: str, size: int, side: int) -> Index:
        """The matrices of sums of a sub-group along a loop."""
        return Index(tile_name(loop), size // self.instruction.c.sizes[side], bind=Bind.UNROLL)

    @cached_property
    def _down(self) -> Index:
        """Those along rows."""
        return self._tiles(self.row, self.scores.warp[self.row], 0)

    @cached_property
    def _lane(self) -> Walk:
        """A lane's elements of a matrix of sums."""
        return walk(self.instruction.c, CELL)

    @cached_property
    def rows_of_item(self) -> Cells:
        shares = shares_of(self.instruction.c)
        at = walk(shares, CELL)
        place = (Affine.var(self._down.name), at.row, at.column)
        return Cells((self._down, *LANE_INDEXES, *at.registers), place, (self._down.range,), shares)

    def _matrices(self, across: Index) -> Cells:
        """Sums over a sub-group's rows, and instructions across."""
        at = self._lane
        *outer, last = at.registers
        loops = (self._down, across, *LANE_INDEXES, *outer, replace(last, bind=Bind.VECTOR, lanes=last.range))
        place = (Affine.var(self._down.name), Affine.var(across.name), at.row, at.column)
        return Cells(loops, place, (self._down.range, across.range), self.instruction.c)

    @cached_property
    def _scores(self) -> Cells:
        return self._matrices(self._tiles(self.kinds.row, self.size, 1))

    def _results(self, last: int) -> Cells:
        column = self.kinds.columns[last]
        return self._matrices(self._tiles(column, self.lasts[last].warp[column], 1))

    @cached_property
    def _weights(self) -> Cells:
        """Scores where the second product takes them."""
        return self._common_weights if self._team else self._own_weights

    @property
    def _common_weights(self) -> Cells:
        """In local memory."""
        within = self._within(self.scores)
        place = tuple(within[n] for n in (self.row, self.kinds.row))
        return Cells(self._scores.loops, place, (self.rows, self.size), panels=panel_swizzle(self.instruction))

    @property
    def _own_weights(self) -> Cells:
        """In the lanes that have them: some matrices of sums are one factor."""
        cells, wide = self._scores, self.instruction.c.sizes[1]
        _, across, row, column = cells.place
        several = self.instruction.a.sizes[1] // wide
        assert isinstance(across, Affine) and isinstance(column, Affine)
        within = DivMod(across, several, DivModOp.MOD, wide, column)
        place = (cells.place[0], DivMod(across, several, DivModOp.DIV), row, within)
        return replace(
            cells, place=place, tiles=(cells.tiles[0], cells.tiles[1] // several), operand=self.instruction.a
        )

    @cached_property
    def near(self) -> Mapping[Use, Near]:
        return {**self._near_rows, **self._near_pieces}

    @cached_property
    def _near_rows(self) -> Mapping[Use, Near]:
        """Loaded before the first piece."""
        own = (self._down, *(i for i in self._lane.registers if self._lane.row.coefficient(i.name)))
        return near(self.kinds, of_rows(self.kinds, self.row), _each_of(own)) if self._team else {}

    @cached_property
    def _near_pieces(self) -> Mapping[Use, Near]:
        """Loaded with each piece, where there is room."""
        *outer, last = (i for i in self._lane.registers if self._lane.column.coefficient(i.name))
        across = self._tiles(self.kinds.row, self.size, 1)
        own = (across, *outer, replace(last, bind=Bind.VECTOR, lanes=last.range))
        found = near(self.kinds, of_pieces(self.kinds, self.row), _each_of(own)) if self._team else {}
        each, wide = prod(i.range for i in own), sum(t.warp[self.kinds.columns[k]] for k, t in self.lasts.items())
        held = self._lane_rows * (wide + len(self.firsts) * self.size) // LANES
        more = sum(each * n.home.type.dtype.bytes // WORD for n in {*found.values()})
        return found if held + more <= ROOM else {}

    @property
    def _lane_rows(self) -> int:
        """Rows of a sub-group."""
        return self.scores.warp[self.row]

    def cells(self, buffer: str) -> Cells:
        if buffer in self._factors:
            return self._weights
        if buffer in self.kinds.wide:
            return self._scores
        last = self.kinds.across.get(buffer)
        return self.rows_of_item if last is None else self._results(last)

    def _home(self, buffer: str) -> Refinement:
        type = self.view.type_of(buffer)
        return self.cells(buffer).home(buffer, type.dtype, len(type.sizes))

    def over(self, number: int) -> Cells:
        if number in self.kinds.pieces:
            return self._scores
        last = self.kinds.last_of(number)
        return self.rows_of_item if last is None else self._results(last)

    def where(self, number: int, piece: Piece) -> dict[str, Affine]:
        kinds, last = self.kinds, self.kinds.last_of(number)
        if last is not None and number not in kinds.pieces:
            found = self._forms(self.lasts[last])
            return found | {kinds.columns[number]: found[kinds.columns[last]]}
        found = self._forms(self.scores)
        found[kinds.row] = found[kinds.row].substitute({self.loop.name: piece.number})
        return found | ({kinds.pieces[number]: found[kinds.row]} if number in kinds.pieces else {})

    def _forms(self, tile: TensorTile) -> dict[str, Affine]:
        """The iterations of shared loops at a lane's elements."""
        within = self._within(tile)
        return {n: c + within[n] if n in within else c for n, c in tile.corner().items()}

    def _within(self, tile: TensorTile) -> dict[str, Affine]:
        """Those inside the group's tile."""
        sides = zip("mn", self.instruction.c.sizes, (self._lane.row, self._lane.column), strict=True)
        inside = {
            in_tile(tile.loops[role]): Affine.var(tile_name(tile.loops[role]), size) + at for role, size, at in sides
        }
        return {n: form.substitute(inside) for n, form in tile.within_group().items()}

    def limits(self, number: int, piece: Piece, names: Set[str]) -> tuple[Affine, ...]:
        at, ranges = self.where(number, piece), self.view.ranges
        ragged = {self.row} if ranges[self.row] % self.rows else set[str]()
        ragged |= set() if piece.whole else {self.kinds.row}
        columns = ((self.kinds.columns[k], tile) for k, tile in self.lasts.items())
        ragged |= {n for n, tile in columns if ranges[n] % tile.group[n]}
        return tuple(at[n] * -1 + (ranges[n] - 1) for n in sorted(names & ragged & {*at}))

    @cached_property
    def sharers(self) -> Sharers:
        row = self._forms(self.scores)[self.row] - self.corner
        at = walk(shares_of(self.instruction.c), CELL)
        return Sharers(row, at.column, shares_of(self.instruction.c).sizes[1], Sync(Scope.SUBGROUP))

    # --- what they do -----------------------------------------------------------------------------------

    @cached_property
    def _of_rows(self) -> tuple[GroupCopy, ...]:
        """Copies of the first factors, one for all pieces."""
        return tuple(t.copies(Affine())[0] for t in self.firsts.values())

    @cached_property
    def _keys(self) -> tuple[GroupCopy, ...]:
        """Of the second ones, at the tile of a piece."""
        return tuple(t.copies(Affine())[1] for t in self.firsts.values())

    @cached_property
    def _others(self) -> tuple[GroupCopy, ...]:
        """Of the values, at the step of a piece; none where they are keys, and lie as these do."""
        every = (copy for tile in self.lasts.values() for copy in tile.copies(Affine.var(_step_of(tile))))
        return tuple(copy for copy in every if not self._is_key(copy))

    def _is_key(self, values: GroupCopy) -> bool:
        alike = [c.local for c in self._keys if c.local.into == values.local.into]
        if alike and (alike != [values.local] or values.local.versions < TURNS):
            raise ValueError(
                f"{values.use.buffer!r} lies in {TURNS} versions, and in one way, for both of its products"
            )
        return bool(alike)

    @property
    def _copies(self) -> tuple[GroupCopy, ...]:
        return *self._of_rows, *self._keys, *self._others

    @cached_property
    def _ahead(self) -> bool:
        """All that a piece reads arrives while the piece before it is computed."""
        return all(c.local.versions >= TURNS for c in (*self._keys, *self._others))

    @property
    def _early(self) -> tuple[GroupCopy, ...]:
        """Copies for a piece that are under way before it begins."""
        return (*self._keys, *self._others) if self._ahead else self._keys

    @property
    def suits_teams(self) -> bool:
        """Teams have whole tiles of rows, and what is copied lies in local memory as they read it, and goes there in whole chunks."""
        (m, _, _), width, team = self.instruction.shape, self.instruction.a.dtype.bytes, self.instruction.team
        if team == 1:
            return True
        swizzle = panel_swizzle(self.instruction)
        whole = self.scores.warp[self.row] == m and self.rows % (team * m) == 0
        turned = all(s.swizzle == swizzle and not s.pad for s in self.plan.stagings)
        line = PANEL_BYTES // width
        panels = all(c.panels(line, shifts=False) and c.plan.lanes * width == CHUNK_BYTES for c in self._copies)
        sides = (tile.match.instruction.sides["n"] for tile in self.lasts.values())
        return whole and turned and panels and all(n % line == 0 or line % n == 0 for n in sides)

    def _copied(self, copy: GroupCopy, number: Affine) -> Stage:
        """The copy for a piece; it arrives behind a wait."""
        at = dict.fromkeys((self.loop.name, *map(_step_of, self.lasts.values())), number)
        return copy.ahead(Affine.var(self.loop.name), LANE_INDEXES).substitute(at)

    def _arrived(self) -> Iterator[Node]:
        """All copies under way, and all sub-groups."""
        yield from (Wait(), Sync())

    def begun(self) -> Iterator[Node]:
        if not self.suits_teams:
            raise ValueError(
                f"{self.instruction.name!r} takes whole panels of local memory, and a sub-group rows of one product"
            )
        yield from (self._copied(copy, self.start) for copy in (*self._of_rows, *self._early))
        at, limits = self.where(first := self.kinds.firsts[0], self.whole), self.limits(first, self.whole, {self.row})
        yield from (n.loaded(at, limits) for n in dict.fromkeys(self._near_rows.values()))

    def scored(self, number: int, piece: Piece) -> Iterator[Node]:
        if number == self.kinds.firsts[0]:
            yield from self._loaded(piece)
            yield from self._keys_here(piece)
            yield from self._next(piece) if self._ahead else (self._copied(c, piece.number) for c in self._others)
        yield from self._multiplied(self.firsts, number, piece)

    def _loaded(self, piece: Piece) -> Iterator[Node]:
        """What belongs to the scores of a piece, whether it is whole or the rest."""
        if self._near_pieces and self.rest is not None and self.loop.range and piece.whole:
            number = piece.number - self.rest.number
            for name, guard, kind in (("whole", number * -1 - 1, piece), ("rest", number, self.rest)):
                yield Nest(f"{self.view.name}_{name}", (), tuple(self._loads(kind)), guard=(guard,))
        else:
            yield from self._loads(piece)

    def _loads(self, piece: Piece) -> Iterator[Stage]:
        first = self.kinds.firsts[0]
        at, limits = self.where(first, piece), self.limits(first, piece, {self.kinds.row})
        yield from (n.loaded(at, limits) for n in dict.fromkeys(self._near_pieces.values()))

    def _keys_here(self, piece: Piece) -> Iterator[Node]:
        """The keys of a piece have arrived."""
        yield from self._arrived()
        first, before = self._first_wanted(piece), piece.number - self.start - 1
        if first and not (before.is_const and before.const < 0):
            body = (*(self._copied(copy, piece.number) for copy in self._early), *self._arrived())
            yield Nest(f"{self.view.name}_first", (), body, guard=(*first, before))

    def _multiplied(self, tiles: Mapping[int, TensorTile], number: int, piece: Piece) -> Iterator[Node]:
        """One of these products of a piece; behind the last one all are complete, a team's go on beside one another."""
        yield tiles[number].multiply(piece.number, 0, tiles[number].slices)
        if self._team and number == max(tiles):
            yield Wait(PRODUCTS)

    def weighing(self, piece: Piece) -> Iterator[Node]:
        yield from () if piece.whole else map(self._no_weights, self._factors)

    def valued(self, number: int, piece: Piece) -> Iterator[Node]:
        if number == self.kinds.lasts[0]:
            yield from self._weighed(piece)
        yield from self._multiplied(self.lasts, number, piece)

    def _weighed(self, piece: Piece) -> Iterator[Node]:
        """All weights of a piece are there, and its values."""
        if not self._ahead:
            yield from (*self._arrived(), *self._next(piece))
        elif self._team:  # weights are where all of the team reads them
            yield Sync()

    def _next(self, piece: Piece) -> Iterator[Stage]:
        """What is early for the next piece, if there is one that is wanted."""
        left = (piece.number - self.start) * -1 + (self.each - 2)
        if not left.is_const or left.const >= 0:
            next = replace(piece, number=piece.number + 1)
            for later in (self._copied(copy, next.number) for copy in self._early):
                yield replace(later, constraints=(*later.constraints, left, *self.wanted(next)))

    def _no_weights(self, name: str) -> Stage:
        """What is beyond the end of a row weighs nothing."""
        home, cells = self._home(name), self._weights
        body = (Const("$z", 0.0, home.type.dtype), Store("dst", "$z"))
        return Stage("no_weights", cells.loops, (), (cells.use("dst", home, Direction.OUT),), body)

    def around(self, body: tuple[Node, ...], own: tuple[Refinement, ...], shared: tuple[Refinement, ...]) -> Nest:
        warps = {i.name: i for tile in (self.scores, *self.lasts.values()) for i in tile.warps}
        inner = Nest(f"{self.view.name}_warps", tuple(warps.values()), body, allocs=own)
        local = (c.local for c in self._copies)
        return Nest(self.view.name, self.values.grid, (inner,), allocs=(*local, *shared))
