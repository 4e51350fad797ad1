"""Ordered loops along memory, an item per row: tiles of rows go through local memory, so that both sides run along it."""

from __future__ import annotations

from dataclasses import replace

from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block, Direction, Index, Layout, Load, Order, Refinement, Store, Sync, TensorType

from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.plan.plan import Plan
from tile_opt.plan.steps.homes import private
from tile_opt.plan.steps.parts import Version, item_kernel
from tile_opt.plan.tree import GROUP_MEMORY, Nest, Node

AT_ONCE = 16
"""Copies of an item that are under way together."""
LANES = 32
"""Items that copy neighbouring cells."""
ITEM, LANE, PART = "item", "lane", "part"
"""Indexes of a group's items: over rows, over the lanes beyond them, over parts of the rows."""


class GroupScan:
    """Builds the kernel of a view with one stage that has an ordered loop."""

    def __init__(self, view: KernelView, plan: Plan) -> None:
        self.view = view
        self.scan = next(s for s in view.stages if s.loops)
        self.cell = self.scan.loops[0]
        grid, group, serial = plan.levels[:3]
        self.row = group.covers[0].loop
        self.rows = next(c.size for c in grid.covers if c.loop == self.row)
        self.cells = serial.covers[0].size
        self.staged = {s.operand: s for s in plan.stagings}
        ways = max(r.ways for r in plan.reductions)
        self.beside = min(ways, max(1, LANES // self.rows))
        self.parts = ways // self.beside
        self.taken = {r.into for r in (*view.refs, *view.allocs)}
        counts = {i.name: -(-i.range // (self.rows if i.name == self.row else 1)) for i in view.loops}
        self.grid = tuple(Index(f"{n}_g", count, bind=Bind.GRID) for n, count in counts.items() if count > 1)
        self.steps = Index(f"{self.cell.name}_t", -(-self.cell.range // self.cells), order=Order.ORDERED)
        base = {n: Affine.var(f"{n}_g") if count > 1 else Affine() for n, count in counts.items()}
        self.base = {**base, self.row: base[self.row] * self.rows}

    def build(self) -> Block:
        """The scheduled kernel."""
        homes = {a.into: private(a, ()) for a in self.view.allocs}
        moving = [u for u in self.scan.uses if u.buffer in self.staged and flat_stride(self.view, u, self.cell.name)]
        tiles = self._tiles(moving)
        copies = {u.name: self._copy(u, tiles[u.name]) for u in moving}
        body: tuple[Stage | Sync, ...] = (
            *(copies[u.name] for u in moving if not u.writes),
            Sync(),
            self._scanned(tiles),
            Sync(),
            *(copies[u.name] for u in moving if u.writes),
        )
        loop = Nest(f"{self.scan.name}_tiles", (self.steps,) if self.steps.range > 1 else (), body)
        parts: list[Node] = [loop if s is self.scan else self._at_row(s) for s in self.view.stages]
        allocs = (*(h.alloc for h in homes.values()), *{t.into: t for t in tiles.values()}.values())
        counts = {PART: self.parts, LANE: self.beside, ITEM: self.rows}
        items = tuple(Index(n, count, bind=Bind.GROUP) for n, count in counts.items() if count > 1 or n == ITEM)
        return item_kernel(self.view, self.grid, items, [Version(tuple(parts))], allocs)

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
        pad = self.staged[use.buffer].pad
        dtype = self.view.type_of(use.buffer).dtype
        type = TensorType(dtype, (self.rows, self.cells), Layout((self.cells + pad, 1), 16))
        name = claim(f"{use.buffer}_tile", self.taken)
        return Refinement(Direction.ALLOC, name, "", (Affine(), Affine()), type, loc=GROUP_MEMORY)

    def _forms(self, row: Affine, cell: Affine) -> dict[str, Affine]:
        """Iterations of all loops, from those within a tile."""
        start = Affine.var(self.steps.name, self.cells) if self.steps.range > 1 else Affine()
        return {**self.base, self.row: self.base[self.row] + row, self.cell.name: start + cell}

    def _limits(self, forms: dict[str, Affine], *loops: str) -> tuple[Affine, ...]:
        sizes = {self.row: self.rows, self.cell.name: self.cells}
        ragged = [n for n in loops if self.view.ranges[n] % sizes[n]]
        return tuple(forms[n] * -1 + (self.view.ranges[n] - 1) for n in ragged)

    def _copy(self, use: Use, tile: Refinement) -> Stage:
        """Neighbouring items copy neighbouring cells of a row, several rows at once."""
        lanes, rows = self.rows * self.beside, self.rows // self.parts
        pieces = -(-self.cells // lanes)
        together = min(rows, max(1, AT_ONCE // pieces))
        loops = (
            Index("row_t", rows // together),
            Index("row_u", together, bind=Bind.UNROLL),
            Index("piece", pieces, bind=Bind.UNROLL),
        )
        row = Affine.var("row_t", together) + Affine.var("row_u") + self._item(PART, rows)
        cell = Affine.var(ITEM) + self._item(LANE, self.rows) + Affine.var("piece", lanes)
        forms = self._forms(row, cell)
        outside = replace(use, name="memory", agg=None).substitute(forms)
        inside = Use("tile", tile.into, (row, cell), Direction.OUT)
        body = (Load("$x", "memory"), Store("tile", "$x"))
        if use.writes:
            inside, body = replace(inside, dir=Direction.IN), (Load("$x", "tile"), Store("memory", "$x"))
        given = tuple(c.substitute(forms) for c in self.scan.constraints)
        limits = (*given, *self._limits(forms, self.row, self.cell.name))
        return Stage(f"copy_{use.buffer}", loops, limits, (inside, outside), body)

    def _item(self, name: str, step: int) -> Affine:
        """The part of an item's position that an index of several items makes."""
        return Affine.var(name, step) if {PART: self.parts, LANE: self.beside}[name] > 1 else Affine()

    @property
    def _first(self) -> tuple[Affine, ...]:
        """What only the items that have a row do."""
        return tuple(f for n in (PART, LANE) if (f := self._item(n, -1)).terms)

    def _scanned(self, tiles: dict[str, Refinement]) -> Stage:
        """Each item takes the cells of its row in order."""
        inner = replace(self.cell, name=f"{self.cell.name}_c", range=self.cells)
        cell = Affine.var(inner.name)
        forms = self._forms(Affine.var(ITEM), cell)
        moved = self.scan.substitute(forms)
        here = (Affine.var(ITEM), cell)
        uses = tuple(replace(u, buffer=tiles[u.name].into, forms=here) if u.name in tiles else u for u in moved.uses)
        limits = self._limits(forms, self.row, self.cell.name)
        return replace(moved, loops=(inner,), uses=uses, constraints=(*moved.constraints, *limits, *self._first))

    def _at_row(self, stage: Stage) -> Stage:
        forms = self._forms(Affine.var(ITEM), Affine())
        moved = stage.substitute({n: f for n, f in forms.items() if n != self.cell.name})
        return replace(moved, constraints=(*moved.constraints, *self._limits(forms, self.row), *self._first))
