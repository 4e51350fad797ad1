"""Rows that are walked piece by piece (`kernel.rows_in_steps`), shared by several groups: what each finds, then a kernel that combines it.

A group has some pieces of its rows, their largest element, and the sums below it. For the whole row each sum counts
``exp(the group's largest element - the row's)`` times, whatever the pieces are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tile_ir.frozen import frozen, replace
from tile_ir.names import claim, fresh
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Const, Direction, Index, Load, Op, Refinement, Store, TensorType

from tile_opt.kernel.merging import merged
from tile_opt.kernel.regroup import unique_loops
from tile_opt.kernel.rows_in_steps import RowsInSteps
from tile_opt.kernel.unrounded import unrounded
from tile_opt.kernel.view import KernelView, Stage, Use, close_kernel
from tile_opt.kernel.work import merged_use
from tile_opt.plan.builders.pivots import apart, bounded, final
from tile_opt.plan.plan import Across, Cover, Plan


@frozen
class SharedRows:
    """A kernel of what groups find of their pieces, the kernel after it, and the buffers between them."""

    partial: RowsInSteps
    share: str
    """Its loop over the groups that share rows."""
    combining: KernelView
    buffers: tuple[Refinement, ...]

    @property
    def combine(self) -> Block:
        """`combining` in normal form."""
        return merged(close_kernel(self.combining))

    def plan(self, whole: Plan) -> Plan:
        """Of the partial kernel: a group for each share."""
        grid, *rest = whole.levels
        return replace(whole, levels=(replace(grid, covers=(Cover(self.share, 1), *grid.covers)), *rest))


def shared_rows(kinds: RowsInSteps, plan: Plan) -> SharedRows | None:
    """The kernel of a plan by which groups share rows; None for others. ValueError where they cannot."""
    ways = ways_of(plan)
    if ways == 1:
        return None
    if not may_share(kinds):
        raise ValueError(f"groups cannot share the rows of {kinds.view.name!r}")
    return share(unrounded(kinds), ways)


def ways_of(plan: Plan) -> int:
    """Groups that share a row."""
    return max((r.ways for r in plan.reductions if r.across is Across.GROUPS), default=1)


def may_share(kinds: RowsInSteps) -> bool:
    """Sums of one product are below a largest element, and all that becomes of them is made of each result by itself."""
    ends = _ends(kinds)
    alone = all(
        k in kinds.columns or all(kinds.view.is_local(u.buffer) for u in kinds.view.stages[k].uses) for k in ends
    )
    return bool(kinds.largest) and len(kinds.lasts) == 1 and not (kinds.totals or kinds.samples) and alone


def share(kinds: RowsInSteps, ways: int) -> SharedRows:
    """The rows of a kernel that `may_share`, by so many groups."""
    taken = {i.name for s in kinds.view.stages for i in s.loops} | {i.name for i in kinds.view.loops}
    groups = Index(fresh(f"{kinds.row}_share", taken), ways)
    sharing = _Sharing(kinds, groups)
    return SharedRows(sharing.partial, groups.name, unique_loops(sharing.combining), sharing.buffers)


def _ends(kinds: RowsInSteps) -> list[int]:
    """The stages behind the pieces."""
    return [k for k in range(len(kinds.view.stages)) if k not in kinds.pieces and not kinds.before(k)]


@frozen
class _Sharing:
    kinds: RowsInSteps
    share: Index

    @property
    def view(self) -> KernelView:
        return self.kinds.view

    @property
    def _passed(self) -> tuple[str, ...]:
        """What groups find."""
        return self.kinds.largest, *self.kinds.sums

    @property
    def _columns(self) -> Index:
        """The loop along the results."""
        (last,) = self.kinds.lasts
        return next(i for i in self.view.stages[last].loops if i.name == self.kinds.columns[last])

    def _dims(self, name: str) -> tuple[Index, ...]:
        """The loops that have a cell each of what groups find."""
        return self.share, *self.view.loops, *((self._columns,) if name in self.kinds.results else ())

    def _buffer(self, name: str) -> Refinement:
        sizes = tuple(i.range for i in self._dims(name))
        type = TensorType.row_major(self.view.type_of(name).dtype, sizes, align=64)
        return Refinement.allocation(claim(f"{name}_partial", self.view.buffers), type)

    @property
    def buffers(self) -> tuple[Refinement, ...]:
        return tuple(map(self._buffer, self._passed))

    def _at(self, name: str, use: str, direction: Direction) -> Use:
        forms = tuple(Affine.var(i.name) for i in self._dims(name))
        return Use(use, self._buffer(name).into, forms, direction)

    def _refs(self, stages: Sequence[Stage], direction: Direction) -> tuple[Refinement, ...]:
        used = {u.buffer for s in stages for u in s.uses}
        passed = (replace(b, dir=direction, source=b.into) for b in self.buffers)
        return (*(r for r in self.view.refs if r.into in used), *passed)

    def _allocs(self, stages: Sequence[Stage]) -> tuple[Refinement, ...]:
        used = {u.buffer for s in stages for u in s.uses}
        return tuple(a for a in self.view.allocs if a.into in used)

    def _use(self, name: str, use: str) -> Use:
        """What a stage merges into, as others read it."""
        merges = (merged_use(self.view.stages[k]) for k in self.kinds.pieces)
        found = next(u for u in merges if u is not None and u.buffer == name)
        return replace(found, name=use, dir=Direction.IN, agg=None)

    # --- what groups do ---------------------------------------------------------------------------------

    @property
    def partial(self) -> RowsInSteps:
        """What a group finds instead of what is made of all."""
        ends = _ends(self.kinds)
        kept = [k for k in range(len(self.view.stages)) if k not in ends]
        stages = (*(self.view.stages[k] for k in kept), *map(self._told, self._passed))
        told = {len(kept) + k: self._columns.name for k, n in enumerate(self._passed) if n in self.kinds.results}
        view = replace(
            self.view, name=f"{self.view.name}_shares", loops=(self.share, *self.view.loops), stages=stages,
            refs=self._refs(stages, Direction.OUT), allocs=self._allocs(stages),
        )  # fmt: skip
        return _renumbered(replace(self.kinds, view=view), {k: n for n, k in enumerate(kept)}, told)

    def _told(self, name: str) -> Stage:
        loops = self._dims(name)[1 + len(self.view.loops) :]
        return Stage.copy(f"{name}_told", loops, self._use(name, "src"), self._at(name, "dst", Direction.OUT))

    # --- what becomes of it -----------------------------------------------------------------------------

    @property
    def combining(self) -> KernelView:
        """Each result by itself, from those of all groups."""
        begins = (k for k in range(len(self.view.stages)) if self.kinds.before(k))
        first, last = ([self._by_itself(k) for k in ks] for ks in (begins, _ends(self.kinds)))
        stages = (*first, self._largest(), *map(self._summed, self.kinds.sums), *last)
        allocs = (self._cell(a) for a in self._allocs(stages))
        return replace(
            self.view, name=f"{self.view.name}_combine", loops=(*self.view.loops, self._columns), stages=stages,
            refs=self._refs(stages, Direction.IN), allocs=tuple(allocs),
        )  # fmt: skip

    def _cell(self, alloc: Refinement) -> Refinement:
        return replace(alloc, type=TensorType.row_major(alloc.type.dtype, (1,) * len(alloc.type.sizes)))

    def _by_itself(self, number: int) -> Stage:
        """A stage at one of the results."""
        stage, own = self.view.stages[number], self.kinds.columns.get(number, "")
        loops = tuple(i for i in stage.loops if i.name != own)
        moved = replace(stage, loops=loops).substitute({own: Affine.var(self._columns.name)} if own else {})
        return moved.map_uses(self._in_cell)

    def _in_cell(self, use: Use) -> Use:
        return replace(use, forms=(Affine(),) * len(use.forms)) if self.view.is_local(use.buffer) else use

    def _merging(self, name: str, use: str, agg: Aggregation) -> Use:
        return replace(self._in_cell(self._use(name, use)), dir=Direction.INOUT, agg=agg)

    def _largest(self) -> Stage:
        name = self.kinds.largest
        ends = self._at(name, "part", Direction.IN), self._merging(name, "whole", Aggregation.MAX)
        return Stage.copy(f"{name}_combine", (self.share,), *ends)

    def _summed(self, name: str) -> Stage:
        """A sum of all groups', each below the row's largest element."""
        largest = self.kinds.largest
        uses = (
            self._at(name, "part", Direction.IN),
            self._at(largest, "below", Direction.IN),
            self._in_cell(self._use(largest, "largest")),
            self._merging(name, "whole", Aggregation.SUM),
        )
        return Stage(f"{name}_combine", (self.share,), (), uses, tuple(self._weighed(name)))

    def _weighed(self, name: str) -> Iterator[Load | Const | Op | Store]:
        dtype, near = self.view.type_of(name).dtype, self.view.type_of(self.kinds.largest).dtype
        yield from (Load("$x", "part"), Load("$part", "below"), Load("$whole", "largest"))
        yield from (*bounded("$part", "$old", near), *final("$whole", "$new", near, self.kinds.instead))
        yield from apart("$old", "$new", "$k", dtype)
        yield from (Op("$y", "mul", ("$x", "$k"), dtype), Store("whole", "$y"))


def _renumbered(kinds: RowsInSteps, moved: Mapping[int, int], told: Mapping[int, str]) -> RowsInSteps:
    """With stages where `moved` says, and others behind them that go over results by the loops `told`."""
    pieces, columns = ({moved[k]: n for k, n in m.items() if k in moved} for m in (kinds.pieces, kinds.columns))
    firsts, lasts = (tuple(moved[k] for k in ks) for ks in (kinds.firsts, kinds.lasts))
    across = {b: moved[k] for b, k in kinds.across.items()}
    return replace(kinds, firsts=firsts, lasts=lasts, pieces=pieces, columns={**columns, **told}, across=across)
