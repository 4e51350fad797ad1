"""Short rows through local memory: a group copies so many whole rows that lie side by side, and each item takes rows of its own.

Rows that are no whole vectors long begin anywhere: items that share them do little each, and items that have them alone
load and store a few elements of each sector. So neighbouring items copy neighbouring elements into the group's memory, and
results go back the same way.
"""

from __future__ import annotations

from math import prod

from tile_ir.frozen import frozen, replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import Bind, Block, Const, Direction, Index, Refinement, Store, TensorType

from tile_opt.kernel.strides import flat_offset, flat_stride
from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.plan.plan import Cover, Level, Plan
from tile_opt.plan.steps.groups.spread import Spread
from tile_opt.plan.tree import ARRAY


def row_length(view: KernelView, stage: Stage, use: Use) -> int:
    """Elements of the rows, one for each iteration of the one shared loop, that an access walks through memory; 0 for others."""
    own = [n for n in stage.loop_names if n in names_in(use.forms)]
    if use.extent or is_indirect(stage, use) or view.is_local(use.buffer) or len(own) != 1 or len(view.loops) != 1:
        return 0
    (shared,), length = view.loops, view.ranges[own[0]]
    whole = view.type_of(use.buffer)
    steps = flat_stride(view, use, own[0]), flat_stride(view, use, shared.name), flat_offset(view, use)
    return length if steps == (1, length, 0) and prod(whole.sizes) == whole.extent == length * shared.range else 0


@frozen
class RowTiles:
    """Builds the kernel of a view with one shared loop, whose rows `plan` stages in local memory."""

    view: KernelView
    plan: Plan
    local_bytes: int

    def build(self) -> Block:
        (loop,) = self.view.loops
        tile, rows = (
            next(c.size for c in self.plan.bound(b)[0].covers if c.loop == loop.name) for b in (Bind.GRID, Bind.GROUP)
        )
        made = _Tiles(self.view, loop, tile // rows, rows, {s.operand for s in self.plan.stagings})
        view = made.view_of_tiles()
        return Spread(view, made.plan(view, self.plan.reason), self.local_bytes).build()


class _Tiles:
    def __init__(self, view: KernelView, loop: Index, items: int, rows: int, staged: set[str]) -> None:
        self.view, self.loop, self.items, self.rows, self.staged = view, loop, items, rows, staged
        taken = {*view.buffers, loop.name, *(i.name for s in view.stages for i in s.loops)}
        self.item, self.row, self.piece = (claim(n, taken) for n in ("item", "row", "piece"))
        self.tiles = {b: claim(f"{b}_tile", taken) for b in sorted(staged)}
        self.lengths = {u.buffer: row_length(view, s, u) for s in view.stages for u in s.uses if u.buffer in staged}

    def view_of_tiles(self) -> KernelView:
        """A shared iteration is a tile; the rows of a tile, and the pieces in which it is copied, are loops of stages."""
        view, size = self.view, self.items * self.rows
        read = [b for b in self.tiles if b in view.reads()]
        stages = (
            *(self._copied(b, inwards=True) for b in read),
            *(self._filled(b) for b in read if not self._even),
            *map(self._tiled, view.stages),
            *(self._copied(b, inwards=False) for b in self.tiles if b not in read),
        )
        refs = tuple(self._flat(r) if r.into in self.staged else r for r in view.refs)
        allocs = (*map(self._for_each_row, view.allocs), *map(self._tile, self.tiles))
        loops = (replace(self.loop, range=-(-self.loop.range // size)),)
        return replace(view, loops=loops, stages=stages, refs=refs, allocs=allocs)

    def plan(self, view: KernelView, reason: str) -> Plan:
        """That of a view of tiles."""
        inner = dict.fromkeys(i.name for s in view.stages for i in s.loops if i.name != self.item)
        levels = (
            Level(Bind.GRID, (Cover(self.loop.name, 1),)),
            Level(Bind.GROUP, (Cover(self.item, 1),)),
            Level(Bind.UNROLL, tuple(Cover(n, 1) for n in inner)),
        )
        return Plan(levels, reason=reason)

    # --- buffers --------------------------------------------------------------------------------------

    def _flat(self, ref: Refinement) -> Refinement:
        """All rows as one, in the last dimension."""
        ones = (1,) * (len(ref.type.sizes) - 1)
        return replace(ref, type=TensorType.row_major(ref.type.dtype, (*ones, ref.type.extent)))

    def _for_each_row(self, alloc: Refinement) -> Refinement:
        sizes = (self.rows, self.items, *alloc.type.sizes)
        return Refinement.allocation(alloc.into, TensorType.row_major(alloc.type.dtype, sizes), ARRAY)

    def _tile(self, buffer: str) -> Refinement:
        size = self.items * self.rows * self.lengths[buffer]
        type = TensorType.row_major(self.view.type_of(buffer).dtype, (size,))
        return Refinement.allocation(self.tiles[buffer], type, ARRAY)

    # --- stages ---------------------------------------------------------------------------------------

    @property
    def _place(self) -> Affine:
        """The row of an item within its tile: neighbours have neighbouring ones."""
        return Affine.var(self.row, self.items) + Affine.var(self.item)

    def _loops(self) -> tuple[Index, Index]:
        return Index(self.row, self.rows), Index(self.item, self.items)

    def _copied(self, buffer: str, inwards: bool) -> Stage:
        """The tile, by neighbouring items element by element."""
        length = self.lengths[buffer]
        at = Affine.var(self.piece, self.items) + Affine.var(self.item)
        whole = Affine.var(self.loop.name, self.items * self.rows * length) + at
        limits = () if self._even else (whole * -1 + (self.loop.range * length - 1),)
        forms = (*(Affine(),) * (len(self.view.type_of(buffer).sizes) - 1), whole)
        outside = Use("src" if inwards else "dst", buffer, forms, Direction.IN if inwards else Direction.OUT)
        inside = Use("dst" if inwards else "src", self.tiles[buffer], (at,), Direction.OUT if inwards else Direction.IN)
        source, target = (outside, inside) if inwards else (inside, outside)
        loops = Index(self.piece, self.rows * length), Index(self.item, self.items)
        return Stage.copy(f"{'load' if inwards else 'store'}_{buffer}", loops, source, target, limits)

    def _filled(self, buffer: str) -> Stage:
        """Rows of the last tile that there are not: items go over them as over all others, and store none."""
        copied = self._copied(buffer, inwards=True)
        (target,) = (u for u in copied.uses if u.writes)
        zero = Const("$zero", 0, self.view.type_of(buffer).dtype)
        beyond = tuple(c * -1 - 1 for c in copied.constraints)
        return replace(
            copied, name=f"fill_{buffer}", uses=(target,), constraints=beyond, body=(zero, Store("dst", "$zero"))
        )

    @property
    def _even(self) -> bool:
        return self.loop.range % (self.items * self.rows) == 0

    def _tiled(self, stage: Stage) -> Stage:
        row = Affine.var(self.loop.name, self.items * self.rows) + self._place
        uses = tuple(self._use(stage, u) for u in stage.uses)
        known = {*self.staged, *(a.into for a in self.view.allocs)}
        outside = any(u.buffer not in known and self.loop.name in names_in(u.forms) for u in stage.uses)
        limits = (row * -1 + (self.loop.range - 1),) if outside and not self._even else ()
        moved = replace(stage, uses=uses).substitute({self.loop.name: row})
        return replace(moved, loops=(*self._loops(), *stage.loops), constraints=limits)

    def _use(self, stage: Stage, use: Use) -> Use:
        if use.buffer in self.staged:
            (own,) = (n for n in stage.loop_names if n in names_in(use.forms))
            return replace(
                use, buffer=self.tiles[use.buffer], forms=(self._place * self.lengths[use.buffer] + Affine.var(own),)
            )
        if self.view.is_local(use.buffer):
            return replace(use, forms=(Affine.var(self.row), Affine.var(self.item), *use.forms))
        return use
