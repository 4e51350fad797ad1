"""Ordered loops that a group's items share: each takes a run of neighbouring cells, behind what the runs before it hold.

    total[s] = aggregate of run s         carry[s] = carry of the tile, and total[0] to total[s - 1]
    cell[s, i] = carry[s] and elements 0 to i of run s

Items keep their elements between the two steps. Of what goes through local memory each takes in, where runs are many, the totals
of its span of them, then those of the spans before it.

A group walks its rows in tiles. Cells that are neighbours in memory go through local memory, where a team of items
copies runs side by side; elsewhere the rows are the neighbours, and each item reads its run from where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd

from tile_ir.frozen import replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import (
    Bind,
    Block,
    Direction,
    Index,
    Layout,
    Load,
    Location,
    Order,
    Refinement,
    Store,
    Sync,
    TensorType,
)

from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.plan.plan import Plan
from tile_opt.plan.steps.groups.carries import moving_uses, shareable
from tile_opt.plan.steps.groups.homes import private
from tile_opt.plan.steps.groups.parts import Version, item_kernel
from tile_opt.plan.steps.groups.scan_shares import PART, TEAM, Piece, Shares
from tile_opt.plan.steps.groups.shared_scan import SharedScan
from tile_opt.plan.tree import GROUP_MEMORY, Nest, Node

AT_ONCE = 16
"""Copies of an item that are under way together."""


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
        base = {n: Affine.var(f"{n}_g") if count > 1 else Affine() for n, count in counts.items()}
        self.base = {n: at * rows if n == self.row else at for n, at in base.items()}

    def build(self) -> Block:
        """The scheduled kernel."""
        homes = {a.into: private(a, ()).alloc for a in self.view.allocs}
        moving = [u for u in moving_uses(self.view, self.scan) if u.buffer in self.staged]
        tiles = self._tiles(moving)
        shared = SharedScan(self, tiles) if self.shares.runs > 1 else None
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

    def _walked(
        self, moving: list[Use], tiles: Mapping[str, Refinement], shared: SharedScan | None, piece: Piece
    ) -> Node:
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
