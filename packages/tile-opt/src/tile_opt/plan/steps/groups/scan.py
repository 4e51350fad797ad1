"""Ordered loops that a group's items share: each takes a run of neighbouring cells, behind what the runs before it hold.

    total[s] = aggregate of run s         carry[s] = carry of the tile, and total[0] to total[s - 1]
    cell[s, i] = carry[s] and elements 0 to i of run s

A group walks its rows in tiles. Cells that are neighbours in memory go through local memory, where a team of items
copies runs side by side; elsewhere the rows are the neighbours, and each item reads its run from where it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from tile_ir.dtype import DType
from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.ops import Aggregation
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

from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import merged_use
from tile_opt.plan.plan import Plan
from tile_opt.plan.steps.groups.homes import private
from tile_opt.plan.steps.groups.parts import Version, item_kernel
from tile_opt.plan.tree import GROUP_MEMORY, REGISTER, Nest, Node

AT_ONCE = 16
"""Copies of an item that are under way together."""
TEAM, PART, ROW, RUN = "team", "part", "row", "run"
"""Indexes of a group's items: over the teams of several rows, those of one row, the rows of a team, and their runs."""


@frozen
class Carry:
    """What an ordered stage hands from cell to cell, and how it takes an element in."""

    buffer: str
    agg: Aggregation
    old: str
    new: str
    element: str


def carry_of(view: KernelView, stage: Stage) -> Carry | None:
    """The one cell of the kernel's own that takes in an element in every iteration; None where there is no such one."""
    loads = {s.dst: s.src for s in stage.body if isinstance(s, Load)}
    stored = {s.src: s.dst for s in stage.body if isinstance(s, Store)}
    owners = {u.name: u.buffer for u in stage.uses if view.is_local(u.buffer)}
    aggregations = {a.value: a for a in Aggregation}
    for op in (s for s in stage.body if isinstance(s, Op) and s.name in aggregations and len(s.args) == 2):
        name = next((loads[a] for a in op.args if loads.get(a) in owners), None)
        if name is None or not any(s.src == op.dst and s.dst == name for s in stage.body if isinstance(s, Store)):
            continue
        old = next(a for a in op.args if loads.get(a) == name)
        (element,) = (a for a in op.args if a != old) if op.args[0] != op.args[1] else ("",)
        alone = sum(isinstance(s, Op) and old in s.args for s in stage.body) == 1
        if element and alone and op.dst in stored:
            return Carry(owners[name], aggregations[op.name], old, op.dst, element)
    return None


def shareable(view: KernelView) -> Stage | None:
    """The one stage with a loop, when that is ordered and carries what runs of it can be summed up in."""
    own = [s for s in view.stages if s.loops]
    if len(own) != 1 or len(own[0].loops) != 1:
        return None
    loop = own[0].loops[0]
    plain = not any(s.guard for s in view.stages) and all(
        not u.extent and not is_indirect(s, u) for s in view.stages for u in s.uses
    )
    ordered = loop.order is Order.ORDERED and loop.bind is Bind.NONE
    cells = all(size == 1 for a in view.allocs for size in a.type.sizes)
    fits = ordered and plain and cells and merged_use(own[0]) is None
    return own[0] if fits and carry_of(view, own[0]) is not None and _is_apart(view, own[0]) else None


def moving_uses(view: KernelView, scan: Stage) -> tuple[Use, ...]:
    """What the scan reads and writes of memory as it goes along."""
    return tuple(u for u in scan.uses if not view.is_local(u.buffer) and flat_stride(view, u, scan.loops[0].name))


def _is_apart(view: KernelView, scan: Stage) -> bool:
    """Nothing else is at what the scan reads and writes as it goes along."""
    moving = moving_uses(view, scan)
    once = len({u.buffer for u in moving}) == len(moving) and not any(u.reads and u.writes for u in moving)
    others = {u.buffer for s in view.stages if s is not scan for u in s.uses}
    fixed = any(u.writes and not view.is_local(u.buffer) and u not in moving for u in scan.uses)
    return bool(moving) and once and not fixed and not others & {u.buffer for u in moving}


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
    def indexes(self) -> tuple[Index, ...]:
        """The group's items, outermost first: neighbours copy neighbours."""
        rows, runs = self.team
        counts = {TEAM: self.rows // rows, PART: self.runs // runs, ROW: rows, RUN: runs}
        order = (TEAM, PART, ROW, RUN) if self.teamed else (TEAM, PART, RUN, ROW)
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
        return self.at((PART, self.team[1]), (RUN, 1))

    @property
    def member(self) -> Affine:
        """The item's place in its team."""
        return self.at((ROW, self.team[1]), (RUN, 1))

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
        self.steps = Index(f"{self.cell.name}_t", -(-self.cell.range // self.cells), order=Order.ORDERED)
        base = {n: Affine.var(f"{n}_g") if count > 1 else Affine() for n, count in counts.items()}
        self.base = {n: at * rows if n == self.row else at for n, at in base.items()}

    def build(self) -> Block:
        """The scheduled kernel."""
        homes = {a.into: private(a, ()).alloc for a in self.view.allocs}
        moving = [u for u in moving_uses(self.view, self.scan) if u.buffer in self.staged]
        tiles = self._tiles(moving)
        shared = _Shared(self, tiles) if self.shares.runs > 1 else None
        copies = {u.name: self._copy(u, tiles[u.name]) for u in moving}
        waits = (Sync(),) if moving else ()
        body: tuple[Node, ...] = (
            *(copies[u.name] for u in moving if not u.writes),
            *waits,
            *(shared.before() if shared else ()),
            self.scanned(tiles),
            *(shared.handed() if shared else ()),
            *(waits or ((Sync(),) if shared else ())),
            *(copies[u.name] for u in moving if u.writes),
            *(shared.taken_over() if shared else ()),
        )
        loop = Nest(f"{self.scan.name}_tiles", (self.steps,) if self.steps.range > 1 else (), body)
        parts: list[Node] = [loop if s is self.scan else self._at_row(s) for s in self.view.stages]
        own = (*homes.values(), *{t.into: t for t in tiles.values()}.values(), *(shared.allocs if shared else ()))
        return item_kernel(self.view, self.grid, self.shares.indexes, [Version(tuple(parts))], own)

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
        """Iterations of all loops, from those within a tile."""
        start = Affine.var(self.steps.name, self.cells) if self.steps.range > 1 else Affine()
        base = {n: at + row if n == self.row else at for n, at in self.base.items()}
        return {**base, self.cell.name: start + cell}

    def _limits(self, forms: dict[str, Affine], *loops: str) -> tuple[Affine, ...]:
        sizes = {self.row: self.shares.rows, self.cell.name: self.cells}
        ragged = [n for n in loops if n and self.view.ranges[n] % sizes[n]]
        return tuple(forms[n] * -1 + (self.view.ranges[n] - 1) for n in ragged)

    def _copy(self, use: Use, tile: Refinement) -> Stage:
        """The items of a team copy the cells of a run, and the runs of all its items one after the other."""
        rows, runs = self.shares.team
        at_once = min(runs, AT_ONCE)
        loops = (
            Index("row_t", rows),
            Index("run_t", runs // at_once),
            Index("run_u", at_once, bind=Bind.UNROLL),
        )
        row = self.shares.at((TEAM, rows)) + Affine.var("row_t")
        run = self.shares.at((PART, runs)) + Affine.var("run_t", at_once) + Affine.var("run_u")
        cell = self.shares.member
        forms = self._forms(row, run * self.shares.length + cell)
        outside = replace(use, name="memory", agg=None).substitute(forms)
        inside = Use("tile", tile.into, (row, run, cell), Direction.OUT)
        body = (Load("$x", "memory"), Store("tile", "$x"))
        if use.writes:
            inside, body = replace(inside, dir=Direction.IN), (Load("$x", "tile"), Store("memory", "$x"))
        given = tuple(c.substitute(forms) for c in self.scan.constraints)
        limits = (*given, *self._limits(forms, self.row, self.cell.name))
        return Stage(f"copy_{use.buffer}", loops, limits, (inside, outside), body)

    def scanned(self, tiles: dict[str, Refinement]) -> Stage:
        """Each item takes the cells of its run in order."""
        inner = replace(self.cell, name=f"{self.cell.name}_c", range=self.shares.length)
        cell = Affine.var(inner.name)
        forms = self._forms(self.shares.row, self.shares.run * self.shares.length + cell)
        moved = self.scan.substitute(forms)
        here = (self.shares.row, self.shares.run, cell)
        uses = tuple(replace(u, buffer=tiles[u.name].into, forms=here) if u.name in tiles else u for u in moved.uses)
        limits = self._limits(forms, self.row, self.cell.name)
        return replace(moved, loops=(inner,), uses=uses, constraints=(*moved.constraints, *limits))

    def _at_row(self, stage: Stage) -> Stage:
        """What is stored to memory one item of a row stores; what items keep each of them makes."""
        forms = self._forms(self.shares.row, Affine())
        moved = stage.substitute({n: f for n, f in forms.items() if n != self.cell.name})
        stored = any(u.writes and not self.view.is_local(u.buffer) for u in stage.uses)
        first = (self.shares.run * -1,) if stored and self.shares.run.terms else ()
        return replace(moved, constraints=(*moved.constraints, *self._limits(forms, self.row), *first))


class _Shared:
    """The stages by which the items of a row hand on what their runs hold."""

    def __init__(self, group: GroupScan, tiles: dict[str, Refinement]) -> None:
        carry = carry_of(group.view, group.scan)
        if carry is None:
            raise ValueError(f"stage {group.scan.name!r} carries nothing that its items could find on their own")
        self.group, self.carry, self.shares = group, carry, group.shares
        self.stage = group.scanned(tiles)
        dtype = group.view.type_of(carry.buffer).dtype
        rows, runs = self.shares.rows, self.shares.runs
        self.total = group.made(f"{carry.buffer}_run", TensorType.row_major(dtype, (1,)), REGISTER)
        # Items of a row read the same entry, those of other rows lie in other banks.
        self.totals = group.local(f"{carry.buffer}_runs", TensorType.row_major(dtype, (rows, runs + 1), align=16))
        self.end = group.local(f"{carry.buffer}_end", TensorType.row_major(dtype, (rows,), align=16))
        follows = group.view.stages[-1] is not group.scan
        self.goes_on = group.steps.range > 1 or follows
        self.allocs = (self.total, self.totals, *((self.end,) if self.goes_on else ()))

    @property
    def _kept(self) -> Use:
        use = next(u for u in self.group.scan.uses if u.buffer == self.carry.buffer)
        return replace(use, name="carry", dir=Direction.INOUT, agg=None)

    def before(self) -> Iterator[Node]:
        """The aggregate of every run, and what is in front of this item's."""
        dtype, agg = self.total.type.dtype, self.carry.agg
        value = agg.identity(dtype)
        typed = float(value) if dtype.is_float else bool(value) if dtype is DType.BOOL else value
        total = Use("total", self.total.into, (Affine(),), Direction.OUT)
        entry = Use("entry", self.totals.into, (self.shares.row, self.shares.run), Direction.OUT)
        yield Stage("empty", (), (), (total,), (Const("$z", typed, dtype), Store("total", "$z")))
        yield self._summed(replace(total, dir=Direction.INOUT))
        yield _moved("hand_total", replace(total, dir=Direction.IN), entry)
        yield Sync()
        earlier = Index("earlier", self.shares.runs - 1, order=Order.ORDERED)
        known = (self.shares.run + Affine.var(earlier.name, -1) + -1,)
        entry = Use("entry", self.totals.into, (self.shares.row, Affine.var(earlier.name)), Direction.IN)
        taken = (Load("$old", "carry"), Load("$x", "entry"), Op("$new", agg.value, ("$old", "$x"), dtype))
        yield Stage("take_in", (earlier,), known, (entry, self._kept), (*taken, Store("carry", "$new")))

    def _summed(self, total: Use) -> Stage:
        """The elements of this item's run."""
        body = [*self._element()]
        load, op = (
            Load("$total", "total"),
            Op("$sum", self.carry.agg.value, ("$total", self.carry.element), self.total.type.dtype),
        )
        read = {s.src for s in body if isinstance(s, Load)}
        uses = tuple(replace(u, dir=Direction.IN) for u in self.stage.uses if u.name in read)
        return replace(self.stage, name="total", uses=(*uses, total), body=(*body, load, op, Store("total", "$sum")))

    def _element(self) -> Iterator[Statement]:
        """What makes the element that is taken in."""
        behind = {self.carry.old}
        for s in self.stage.body:
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
            yield replace(_moved("hand_end", replace(self._kept, dir=Direction.IN), end), constraints=last)

    def taken_over(self) -> Iterator[Stage]:
        """All items of a row take it."""
        if self.goes_on:
            end = Use("end", self.end.into, (self.shares.row,), Direction.IN)
            yield _moved("take_end", end, replace(self._kept, dir=Direction.OUT))


def _moved(name: str, source: Use, target: Use) -> Stage:
    """``target = source``, once."""
    return Stage(name, (), (), (source, target), (Load("$x", source.name), Store(target.name, "$x")))
