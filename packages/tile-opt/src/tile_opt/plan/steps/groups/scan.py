"""Ordered loops that a group's items share: each takes a run of neighbouring cells, behind what the runs before it hold.

    total[s] = aggregate of run s         carry[s] = carry of the tile, and total[0] to total[s - 1]
    cell[s, i] = carry[s] and elements 0 to i of run s

Items keep their elements between the two steps. Of what goes through local memory each takes in, where runs are many, the totals
of its span of them, then those of the spans before it.

A group walks its rows in tiles. Cells that are neighbours in memory go through local memory, where a team of items
copies runs side by side; elsewhere the rows are the neighbours, and each item reads its run from where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd

from tile_ir.dtype import DType
from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Const,
    Direction,
    Index,
    Layout,
    Load,
    Location,
    Op,
    Order,
    Refinement,
    Statement,
    Store,
    Sync,
    TensorType,
)

from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.plan.plan import Plan
from tile_opt.plan.steps.groups.carries import carry_of, moving_uses, shareable
from tile_opt.plan.steps.groups.homes import private
from tile_opt.plan.steps.groups.parts import Version, item_kernel
from tile_opt.plan.tree import GROUP_MEMORY, REGISTER, Nest, Node

AT_ONCE = 16
"""Copies of an item that are under way together."""
KEPT = 64
"""Elements that an item keeps in registers."""
SPAN, MANY = 8, 32
"""Runs of a span, and runs from which on items take in spans: one after the other they would wait for longer than for a barrier."""
TEAM, PART, ROW, SPANS, RUN = "team", "part", "row", "span", "run"
"""Indexes of a group's items: over the teams of several rows, those of one row, the rows of a team, their spans of runs, and runs."""


@frozen
class Shares:
    """How the items of a group share its rows: `rows` of them, `runs` of each, `length` cells to a run."""

    rows: int
    runs: int
    length: int
    teamed: bool
    """Teams of as many items as a run has cells copy runs side by side."""

    @property
    def team(self) -> tuple[int, int]:
        """Rows of a team, and runs of each."""
        runs = min(self.runs, self.length) if self.teamed else self.runs
        return (self.length // runs if self.teamed else self.rows), runs

    @property
    def span(self) -> int:
        """Runs of a span; all of a team where items take in one after the other."""
        runs = self.team[1]
        return SPAN if self._are_many and runs % SPAN == 0 else runs

    @property
    def spans(self) -> int:
        """Spans of a row; one where items take in one run after the other."""
        return self.runs // self.span if self._are_many else 1

    @property
    def _are_many(self) -> bool:
        return self.teamed and self.runs >= MANY

    @property
    def indexes(self) -> tuple[Index, ...]:
        """The group's items, outermost first: neighbours copy neighbours."""
        rows, runs = self.team
        counts = {TEAM: self.rows // rows, PART: self.runs // runs, ROW: rows, SPANS: runs // self.span, RUN: self.span}
        order = (TEAM, PART, ROW, SPANS, RUN) if self.teamed else (TEAM, PART, SPANS, RUN, ROW)
        found = tuple(Index(n, counts[n], bind=Bind.GROUP) for n in order if counts[n] > 1)
        return found or (Index(RUN, 1, bind=Bind.GROUP),)

    def at(self, *parts: tuple[str, int]) -> Affine:
        """The sum of the named indexes, each times its step, of those that there are."""
        known = {i.name for i in self.indexes if i.range > 1}
        return Affine.of([(n, step) for n, step in parts if n in known])

    @property
    def row(self) -> Affine:
        return self.at((TEAM, self.team[0]), (ROW, 1))

    @property
    def run(self) -> Affine:
        return self.at((PART, self.team[1])) + self.of_team

    @property
    def of_team(self) -> Affine:
        """The item's run among those of its team."""
        return self.at((SPANS, self.span), (RUN, 1))

    @property
    def own_span(self) -> Affine:
        return self.at((PART, self.team[1] // self.span), (SPANS, 1))

    @property
    def member(self) -> Affine:
        """The item's place in its team."""
        return self.at((ROW, self.team[1])) + self.of_team

    def check(self) -> None:
        """Raises ValueError for numbers that do not come out even."""
        rows, runs = self.team
        if self.rows % rows or self.runs % runs or rows * runs != (self.length if self.teamed else self.rows * runs):
            raise ValueError(
                f"{self.rows} rows of {self.runs} runs do not make teams of {self.length} items, one for each cell of a run"
            )


def _checked(view: KernelView, plan: Plan) -> Stage:
    """The stage that the plan is about. Raises ValueError for plans of another form."""
    scan = shareable(view)
    if scan is None:
        raise ValueError(f"the kernel {view.name!r} has no scan that items of a group could share")
    loop = scan.loops[0].name
    binds = [(level.bind, level.ordered) for level in plan.levels]
    if binds != [(Bind.GRID, False), (Bind.NONE, True), (Bind.GROUP, False)]:
        raise ValueError("a scan that items share has three levels: the grid, tiles in order, and the group's items")
    grid, serial, group = plan.levels
    rows = [c for c in group.covers if c.loop != loop]
    beside = {c.loop for c in rows if c.size == 1}
    whole = all(c.size == 1 or c.loop in beside for c in grid.covers) and loop not in {c.loop for c in grid.covers}
    if len(rows) > 1 or len(beside) < len(rows) or not whole:
        raise ValueError("items of a group that share scans lie along one loop of the grid, one beside the other")
    if [c.loop for c in serial.covers] != [loop] or serial.covers[0].size % _length(plan, loop):
        raise ValueError(f"a tile has whole runs of {loop!r}, and nothing else")
    if any(s.unit != "LOCAL" for s in plan.stagings):
        raise ValueError("what a scan stages goes to local memory")
    return scan


def _length(plan: Plan, loop: str) -> int:
    """Cells of a run; of the whole tile where an item has a row for itself."""
    return next((c.size for c in plan.levels[2].covers if c.loop == loop), plan.levels[1].covers[0].size)


@frozen
class Piece:
    """Tiles of a row that are alike."""

    loops: tuple[Index, ...]
    """Over them, where they are several."""
    start: Affine
    """The first cell of one."""
    ragged: bool
    """It goes beyond the end of the row: items ask of each cell whether it lies inside, and load one after the other."""


class GroupScan:
    """Builds the kernel of a view with one stage that has an ordered loop."""

    def __init__(self, view: KernelView, plan: Plan) -> None:
        self.view = view
        self.scan = _checked(view, plan)
        self.cell = self.scan.loops[0]
        grid, serial, group = plan.levels
        self.row = next((c.loop for c in group.covers if c.loop != self.cell.name), "")
        self.cells = serial.covers[0].size
        self.staged = {s.operand: s for s in plan.stagings}
        length = _length(plan, self.cell.name)
        rows = next((c.size for c in grid.covers if c.loop == self.row), 1)
        self.shares = Shares(rows, self.cells // length, length, bool(self.staged))
        self.shares.check()
        self.taken = view.buffers
        counts = {i.name: -(-i.range // (rows if i.name == self.row else 1)) for i in view.loops}
        self.grid = tuple(Index(f"{n}_g", count, bind=Bind.GRID) for n, count in counts.items() if count > 1)
        base = {n: Affine.var(f"{n}_g") if count > 1 else Affine() for n, count in counts.items()}
        self.base = {n: at * rows if n == self.row else at for n, at in base.items()}

    def build(self) -> Block:
        """The scheduled kernel."""
        homes = {a.into: private(a, ()).alloc for a in self.view.allocs}
        moving = [u for u in moving_uses(self.view, self.scan) if u.buffer in self.staged]
        tiles = self._tiles(moving)
        shared = _Shared(self, tiles) if self.shares.runs > 1 else None
        walk = [self._walked(moving, tiles, shared, piece) for piece in self._pieces()]
        parts = [p for s in self.view.stages for p in (walk if s is self.scan else [self._at_row(s)])]
        own = (*homes.values(), *{t.into: t for t in tiles.values()}.values(), *(shared.allocs if shared else ()))
        return item_kernel(self.view, self.grid, self.shares.indexes, [Version(tuple(parts))], own)

    def _pieces(self) -> Iterator[Piece]:
        """The whole tiles of a row, and what is left of it."""
        whole, left = divmod(self.cell.range, self.cells)
        steps = Index(f"{self.cell.name}_t", whole, order=Order.ORDERED)
        if whole:
            several = whole > 1
            start = Affine.var(steps.name, self.cells) if several else Affine()
            yield Piece((steps,) if several else (), start, False)
        if left:
            yield Piece((), Affine((), whole * self.cells), True)

    def _walked(self, moving: list[Use], tiles: Mapping[str, Refinement], shared: _Shared | None, piece: Piece) -> Node:
        """Tiles, one after the other."""
        copies = {u.name: self._copy(u, tiles[u.name], piece) for u in moving}
        waits = (Sync(),) if moving else ()
        body: tuple[Node, ...] = (
            *(copies[u.name] for u in moving if not u.writes),
            *waits,
            *(shared.before(piece) if shared else ()),
            self.scanned(tiles, shared.kept_of(piece) if shared else {}, piece),
            *(shared.handed() if shared else ()),
            *(waits or ((Sync(),) if shared else ())),
            *(copies[u.name] for u in moving if u.writes),
            *(shared.taken_over() if shared else ()),
        )
        return Nest(f"{self.scan.name}_tiles", piece.loops, body)

    def _tiles(self, moving: list[Use]) -> dict[str, Refinement]:
        """Local memory of each access: results take the place of operands of their dtype."""
        tiles: dict[str, Refinement] = {}
        free: list[Refinement] = []
        for use in sorted(moving, key=lambda u: u.writes):
            dtype = self.view.type_of(use.buffer).dtype
            known = next((t for t in free if use.writes and t.type.dtype is dtype), None)
            tiles[use.name] = known or self._tile(use)
            free = [t for t in free if t is not known] if use.writes else [*free, tiles[use.name]]
        return tiles

    def _tile(self, use: Use) -> Refinement:
        """A row of the tile after the other, each in padded runs."""
        shares, pitch = self.shares, self.shares.length + self.staged[use.buffer].pad
        sizes = (shares.rows, shares.runs, shares.length)
        layout = Layout((shares.runs * pitch, pitch, 1), 16)
        return self.local(f"{use.buffer}_tile", TensorType(self.view.type_of(use.buffer).dtype, sizes, layout))

    def local(self, wanted: str, type: TensorType) -> Refinement:
        """Memory of the group."""
        return self.made(wanted, type, GROUP_MEMORY)

    def made(self, wanted: str, type: TensorType, loc: Location) -> Refinement:
        zeros = (Affine(),) * len(type.sizes)
        return Refinement(Direction.ALLOC, claim(wanted, self.taken), "", zeros, type, loc=loc)

    def _forms(self, row: Affine, cell: Affine) -> dict[str, Affine]:
        """Iterations of all loops, from those within the group's rows."""
        base = {n: at + row if n == self.row else at for n, at in self.base.items()}
        return {**base, self.cell.name: cell}

    def _limits(self, forms: dict[str, Affine], ragged: bool) -> tuple[Affine, ...]:
        """The ends of the group's rows, and of `ragged` ones."""
        beyond = [self.row] if self.row and self.view.ranges[self.row] % self.shares.rows else []
        beyond += [self.cell.name] if ragged else []
        return tuple(forms[n] * -1 + (self.view.ranges[n] - 1) for n in beyond)

    def _copy(self, use: Use, tile: Refinement, piece: Piece) -> Stage:
        """The items of a team copy the cells of a run, and the runs of all its items, some of them at once."""
        rows, runs = self.shares.team
        at_once = min(runs, AT_ONCE)
        beside = gcd(rows, AT_ONCE // at_once)
        loops = (
            Index("row_t", rows // beside),
            Index("run_t", runs // at_once),
            Index("row_u", beside, bind=Bind.UNROLL),
            Index("run_u", at_once, bind=Bind.UNROLL),
        )
        row = self.shares.at((TEAM, rows)) + Affine.var("row_t", beside) + Affine.var("row_u")
        run = self.shares.at((PART, runs)) + Affine.var("run_t", at_once) + Affine.var("run_u")
        cell = self.shares.member
        forms = self._forms(row, piece.start + run * self.shares.length + cell)
        outside = replace(use, name="memory", agg=None).substitute(forms)
        inside = Use("tile", tile.into, (row, run, cell), Direction.OUT)
        body = (Load("$x", "memory"), Store("tile", "$x"))
        if use.writes:
            inside, body = replace(inside, dir=Direction.IN), (Load("$x", "tile"), Store("memory", "$x"))
        given = tuple(c.substitute(forms) for c in self.scan.constraints)
        limits = (*given, *self._limits(forms, piece.ragged))
        return Stage(f"copy_{use.buffer}", loops, limits, (inside, outside), body)

    def scanned(self, tiles: Mapping[str, Refinement], kept: Mapping[str, Refinement], piece: Piece) -> Stage:
        """Each item takes the cells of its run in order; what it has `kept` of them it does not read again."""
        bind = Bind.UNROLL if kept else self.cell.bind
        inner = replace(self.cell, name=f"{self.cell.name}_c", range=self.shares.length, bind=bind)
        cell = Affine.var(inner.name)
        forms = self._forms(self.shares.row, piece.start + self.shares.run * self.shares.length + cell)
        moved = self.scan.substitute(forms)
        here = (self.shares.row, self.shares.run, cell)
        homes = {name: (t, here) for name, t in tiles.items()} | {name: (k, (cell,)) for name, k in kept.items()}
        found = ((u, homes.get(u.name)) for u in moved.uses)
        uses = tuple(u if home is None else replace(u, buffer=home[0].into, forms=home[1]) for u, home in found)
        limits = self._limits(forms, piece.ragged)
        return replace(moved, loops=(inner,), uses=uses, constraints=(*moved.constraints, *limits))

    def _at_row(self, stage: Stage) -> Stage:
        """What is stored to memory one item of a row stores; what items keep each of them makes."""
        forms = self._forms(self.shares.row, Affine())
        moved = stage.substitute({n: f for n, f in forms.items() if n != self.cell.name})
        stored = any(u.writes and not self.view.is_local(u.buffer) for u in stage.uses)
        first = (self.shares.run * -1,) if stored and self.shares.run.terms else ()
        return replace(moved, constraints=(*moved.constraints, *self._limits(forms, False), *first))


class _Shared:
    """The stages by which the items of a row hand on what their runs hold."""

    def __init__(self, group: GroupScan, tiles: dict[str, Refinement]) -> None:
        carry = carry_of(group.view, group.scan)
        if carry is None:
            raise ValueError(f"stage {group.scan.name!r} carries nothing that its items could find on their own")
        self.group, self.carry, self.shares, self.tiles = group, carry, group.shares, tiles
        self.kept = self._kept_elements()
        dtype = group.view.type_of(carry.buffer).dtype
        rows, runs = self.shares.rows, self.shares.runs
        self.total = group.made(f"{carry.buffer}_run", TensorType.row_major(dtype, (1,)), REGISTER)
        # Items of a row read the same entry, those of other rows lie in other banks.
        self.totals = group.local(f"{carry.buffer}_runs", TensorType.row_major(dtype, (rows, runs + 1), align=16))
        self.end = group.local(f"{carry.buffer}_end", TensorType.row_major(dtype, (rows,), align=16))
        self.spans = self._spans(dtype) if self.shares.spans > 1 else None
        follows = group.view.stages[-1] is not group.scan
        self.goes_on = group.cell.range > group.cells or follows
        own = (self.total, self.totals, *(self.spans or ()), *self.kept.values())
        self.allocs = (*own, *((self.end,) if self.goes_on else ()))

    def _spans(self, dtype: DType) -> tuple[Refinement, Refinement]:
        """What is in front of an item's run in its span, and the aggregates of a row's spans."""
        group, name, shares = self.group, self.carry.buffer, self.shares
        ahead = group.made(f"{name}_front", TensorType.row_major(dtype, (1,)), REGISTER)
        spans = TensorType.row_major(dtype, (shares.rows, shares.spans + 1), align=16)
        return ahead, group.local(f"{name}_spans", spans)

    def _kept_elements(self) -> dict[str, Refinement]:
        """Registers for what elements are made of, by the access that reads it."""
        read = {s.src for s in self._element(self.group.scan.body) if isinstance(s, Load)}
        moving = [u for u in moving_uses(self.group.view, self.group.scan) if u.name in read]
        if len(moving) * self.shares.length > KEPT:
            return {}
        types = {
            u.name: TensorType.row_major(self.group.view.type_of(u.buffer).dtype, (self.shares.length,)) for u in moving
        }
        return {u.name: self.group.made(f"{u.buffer}_run", types[u.name], REGISTER) for u in moving}

    def kept_of(self, piece: Piece) -> dict[str, Refinement]:
        """What an item keeps of its run; nothing of one that ends with the row, where it reads as far as that goes."""
        return {} if piece.ragged and not self.shares.teamed else self.kept

    @property
    def _carried(self) -> Use:
        use = next(u for u in self.group.scan.uses if u.buffer == self.carry.buffer)
        return replace(use, name="carry", dir=Direction.INOUT, agg=None)

    def before(self, piece: Piece) -> Iterator[Node]:
        """The aggregate of every run, and what is in front of this item's."""
        total = _at("total", self.total)
        entry = Use("entry", self.totals.into, (self.shares.row, self.shares.run), Direction.OUT)
        yield self._empty(total)
        yield self._summed(total, piece)
        yield _moved("hand_total", replace(total, dir=Direction.IN), entry)
        yield Sync()
        if self.spans is None:
            yield self._taken("take_in", self._carried, self.totals, Affine(), self.shares.run)
        else:
            yield from self._through(*self.spans)

    def _through(self, ahead: Refinement, spans: Refinement) -> Iterator[Node]:
        """What is in front of the item's run in its span, then the spans in front of that."""
        shares, front = self.shares, _at("front", ahead)
        place = shares.at((RUN, 1))
        yield self._empty(front)
        yield self._taken("take_runs", front, self.totals, shares.own_span * shares.span, place)
        entry = Use("entry", spans.into, (shares.row, shares.own_span), Direction.OUT)
        both = (Load("$old", "front"), Load("$x", "total"), self._joined, Store("entry", "$new"))
        read = (replace(front, dir=Direction.IN), replace(_at("total", self.total), dir=Direction.IN))
        yield Stage("hand_span", (), (place + -(shares.span - 1),), (*read, entry), both)
        yield Sync()
        yield self._taken("take_spans", self._carried, spans, Affine(), shares.own_span)
        both = (Load("$old", "carry"), Load("$x", "front"), self._joined, Store("carry", "$new"))
        yield Stage("take_front", (), (), (read[0], self._carried), both)

    @property
    def _joined(self) -> Op:
        return Op("$new", self.carry.agg.value, ("$old", "$x"), self.total.type.dtype)

    def _empty(self, use: Use) -> Stage:
        """The identity, in the place of `use`."""
        dtype = self.total.type.dtype
        start = Const("$z", dtype.number(self.carry.agg.identity(dtype)), dtype)
        return Stage("empty", (), (), (replace(use, dir=Direction.OUT),), (start, Store(use.name, "$z")))

    def _taken(self, name: str, into: Use, source: Refinement, start: Affine, count: Affine) -> Stage:
        """`count` entries of the item's row from `start` on."""
        most = count.bounds({i.name: (0, i.range - 1) for i in self.shares.indexes})[1]
        earlier = Index("earlier", most, order=Order.ORDERED)
        known = (count + Affine.var(earlier.name, -1) + -1,)
        entry = Use("entry", source.into, (self.shares.row, start + Affine.var(earlier.name)), Direction.IN)
        taken = (Load("$old", into.name), Load("$x", "entry"), self._joined, Store(into.name, "$new"))
        return Stage(name, (earlier,), known, (entry, into), taken)

    def _summed(self, total: Use, piece: Piece) -> Stage:
        """The elements of this item's run."""
        stage, kept = self.group.scanned(self.tiles, {}, piece), self.kept_of(piece)
        body = [*self._element(stage.body)]
        sum_ = Op("$sum", self.carry.agg.value, ("$total", self.carry.element), self.total.type.dtype)
        loads = [s for s in body if isinstance(s, Load)]
        names = {s.src for s in loads}
        read = tuple(replace(u, dir=Direction.IN) for u in stage.uses if u.name in names)
        cell = (Affine.var(stage.loops[0].name),)
        keep = tuple(Use(f"keep_{n}", k.into, cell, Direction.OUT) for n, k in kept.items())
        stores = tuple(Store(f"keep_{s.src}", s.dst) for s in loads if s.src in kept)
        loops = tuple(replace(i, bind=Bind.UNROLL if keep else i.bind) for i in stage.loops)
        body = (*body, *stores, Load("$total", "total"), sum_, Store("total", "$sum"))
        return replace(stage, name="total", loops=loops, uses=(*read, *keep, total), body=body)

    def _element(self, body: Sequence[Statement]) -> Iterator[Statement]:
        """What makes the element that is taken in."""
        behind = {self.carry.old}
        for s in body:
            match s:
                case Op() if behind & set(s.args):
                    behind.add(s.dst)
                case Load() if s.dst in behind or (s.at and behind & set(s.at)):
                    behind.add(s.dst)
                case Store():
                    pass
                case _:
                    yield s

    def handed(self) -> Iterator[Stage]:
        """The item of the last run hands the carried value on."""
        if self.goes_on:
            last = (self.shares.run + -(self.shares.runs - 1),)
            end = Use("end", self.end.into, (self.shares.row,), Direction.OUT)
            yield replace(_moved("hand_end", replace(self._carried, dir=Direction.IN), end), constraints=last)

    def taken_over(self) -> Iterator[Stage]:
        """All items of a row take it."""
        if self.goes_on:
            end = Use("end", self.end.into, (self.shares.row,), Direction.IN)
            yield _moved("take_end", end, replace(self._carried, dir=Direction.OUT))


def _at(name: str, register: Refinement) -> Use:
    """An item's register."""
    return Use(name, register.into, (Affine(),), Direction.INOUT)


def _moved(name: str, source: Use, target: Use) -> Stage:
    """``target = source``, once."""
    return Stage(name, (), (), (source, target), (Load("$x", source.name), Store(target.name, "$x")))
