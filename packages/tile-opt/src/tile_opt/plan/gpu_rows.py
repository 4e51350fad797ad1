"""Rows on work items: a group per iteration of the shared loops, its items side by side along the row.

Every stage walks the row with the same split, so what one stage keeps per element belongs to one item and
stays in its registers. A reduction along the row is a partial result per item, combined across the group.
Its operands come straight from memory, or (where the split says so) by way of local memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tile_ir.dtype import DType
from tile_ir.names import claim
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
    Order,
    Reduce,
    Refinement,
    Statement,
    Store,
    TensorType,
)
from tile_ir.target import HardwareSettings

from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.unify import plain_loop
from tile_opt.kernel.view import KernelView, Stage, Use, close_stage
from tile_opt.kernel.widen import widen, writes_each_point
from tile_opt.kernel.work import merged_use
from tile_opt.plan.nest import ARRAY, GROUP_MEMORY, REGISTER, scheduled, whole_refs
from tile_opt.plan.row_split import ITEM, MAX_UNROLLED, RowSplit
from tile_opt.plan.row_staging import StagedSteps, row_operands, staged_steps, with_staging

WIDE = 4


@dataclass(frozen=True, slots=True)
class Total:
    """Merge the items' partial results into a cell that each item keeps."""

    partial: str
    cell: str
    agg: Aggregation
    dtype: DType

    def statements(self) -> list[Statement]:
        own, all_, old, new = (f"${self.partial}_{n}" for n in ("own", "all", "old", "new"))
        return [
            Load(own, self.partial),
            Reduce(all_, own, self.agg, (ITEM,)),
            Load(old, self.cell),
            Op(new, self.agg.value, (old, all_), self.dtype),
            Store(self.cell, new),
        ]


def plan_rows(view: KernelView, settings: HardwareSettings, least: int = 32) -> RowSplit | None:
    """The split when every stage with a loop of its own walks rows of one length, at least `least`, contiguously; else None."""
    view = widen(view)
    loops = [s.loops for s in view.stages if s.loops]
    if not loops or any(len(own) != 1 or own[0].order is not Order.FREE for own in loops):
        return None
    extents = {own[0].range for own in loops}
    if len(extents) != 1 or any(s.constraints and not writes_each_point(s) for s in view.stages):
        return None
    extent = extents.pop()
    if extent < least or not all(_walks_rows(view, s) if s.loops else _keeps_to_cells(view, s) for s in view.stages):
        return None
    if not all(_row_of_its_own(view, buffer) for buffer in view.writes()):
        return None
    wide = WIDE if settings.vec_size >= WIDE and extent % WIDE == 0 and _aligned(view) else 1
    items = min(settings.threads, 1 << max(0, (extent // wide - 1).bit_length()))
    return RowSplit(extent, items, wide)


def _walks_rows(view: KernelView, stage: Stage) -> bool:
    """Memory is walked with stride 0 or 1, local rows plainly, and at least one tensor contiguously."""
    loop = stage.loops[0].name
    strides = [flat_stride(view, u, loop) for u in stage.uses if not view.is_local(u.buffer)]
    merged = merged_use(stage)
    if merged is not None and not view.is_local(merged.buffer):
        return False
    for use in stage.uses:
        if not view.is_local(use.buffer):
            if use.writes and flat_stride(view, use, loop) != 1:
                return False
            continue
        along = [f for f in use.forms if loop in f.names]
        size = view.type_of(use.buffer).sizes
        plain = [plain_loop(f, stage, s) for f, s in zip(use.forms, size, strict=True)]
        if along and loop not in plain:
            return False
        if not along and not (_one_cell(view, use) and (use is merged or not use.writes)):
            return False
    return all(s in (0, 1) for s in strides) and (1 in strides or not strides)


def _row_of_its_own(view: KernelView, buffer: str) -> bool:
    """What an item writes of a row in memory, no other item of the group reads or writes: nothing makes it wait."""
    users = [(k, s, u) for k, s in enumerate(view.stages) for u in s.uses if u.buffer == buffer]
    along = any(s.loops and s.loops[0].name in f.names for _, s, u in users for f in u.forms)
    return not along or _same_row(users)


def _keeps_to_cells(view: KernelView, stage: Stage) -> bool:
    """Rows are spread over the items: a stage that every item runs for itself cannot touch single cells of them."""
    return all(_one_cell(view, u) for u in stage.uses if view.is_local(u.buffer))


def _one_cell(view: KernelView, use: Use) -> bool:
    return all(size == 1 for size in view.type_of(use.buffer).sizes)


def _aligned(view: KernelView) -> bool:
    """Rows start on multiples of four elements of four bytes."""
    for stage in view.stages:
        for use in stage.uses:
            whole = view.type_of(use.buffer)
            if whole.dtype.bytes != 4:
                return False
            for loop in view.loops:
                if (
                    flat_stride(view, use, loop.name) % WIDE
                    and stage.loops
                    and flat_stride(view, use, stage.loops[0].name)
                ):
                    return False
    return True


def plan_staging(view: KernelView, split: RowSplit, settings: HardwareSettings) -> RowSplit:
    """`split` with the rows that reach their reductions through local memory, or why none does."""
    return with_staging(_rows_kept(view), split, settings)


Part = Stage | StagedSteps | Total


def build_gpu_rows(whole: KernelView, split: RowSplit) -> Block:
    """The scheduled kernel: grid over the shared loops, one group per row."""
    view = _rows_kept(whole)
    grid = tuple(Index(f"{i.name}_g", i.range, bind=Bind.GRID) for i in view.loops)
    forms = {i.name: Affine.var(f"{i.name}_g") for i in view.loops}
    parts, allocs = _parts(view, split)
    moved = [p if isinstance(p, Total) else p.substitute(forms) for p in parts]
    shared = tuple(a for a in allocs if a.loc == GROUP_MEMORY)
    private = tuple(a for a in allocs if a.loc != GROUP_MEMORY)
    names = tuple(i.name for i in grid)
    used = {n for p in moved if not isinstance(p, Total) for n in p.names()}
    item = Block(
        f"{view.name}_item",
        indexes=(
            *tuple(Index(n, 1, Affine.var(n)) for n in names if n in used),
            Index(ITEM, split.items, bind=Bind.GROUP),
        ),
        refs=whole_refs(view, view.stages)
        + tuple(replace(a, dir=Direction.INOUT, source=a.into) for a in shared)
        + private,
        body=tuple(s for p in moved for s in _statements(p, view, allocs, (*names, ITEM))),
    )
    return scheduled(view, grid, (item,), shared)


def _parts(view: KernelView, split: RowSplit) -> tuple[list[Part], tuple[Refinement, ...]]:
    """What an item does, in order, and the registers and local memory for it."""
    taken = {r.into for r in (*view.refs, *view.allocs)}
    allocs = [_private(view, a, split) for a in view.allocs]
    made: list[Part] = []
    for stage in view.stages:
        parts, more = _row_stages(view, stage, split, taken)
        made += parts
        allocs += more
    return made, tuple(allocs)


def _statements(
    part: Part, view: KernelView, allocs: tuple[Refinement, ...], outer: tuple[str, ...]
) -> list[Statement]:
    buffers = {r.into: r for r in (*view.refs, *allocs)}
    match part:
        case Total():
            return part.statements()
        case StagedSteps():
            return [part.block(view, buffers, outer)]
        case Stage():
            return [close_stage(part, buffers, outer)]


def _rows_kept(view: KernelView) -> KernelView:
    """Stages as long as the rows, whose shared rows of memory are loaded once, into local rows."""
    view = widen(view)
    for buffer in sorted(view.reads() - view.writes()):
        users = [(k, s, u) for k, s in enumerate(view.stages) for u in s.uses if u.buffer == buffer]
        # Under constraints alone the row may not exist.
        if len({k for k, _, _ in users}) > 1 and _same_row(users) and not all(s.constraints for _, s, _ in users):
            view = _row_kept(view, users)
    return view


def _same_row(users: list[tuple[int, Stage, Use]]) -> bool:
    """All accesses are the same form of each stage's own loop."""
    forms = {
        tuple(f.substitute({s.loops[0].name: Affine.var("row")}) for f in u.forms) if s.loops else None
        for _, s, u in users
    }
    return len(forms) == 1 and None not in forms and any("row" in f.names for f in next(iter(forms)) or ())


def _row_kept(view: KernelView, users: list[tuple[int, Stage, Use]]) -> KernelView:
    first, stage, use = users[0]
    loop = stage.loops[0]
    name = claim(f"{use.buffer}_row", {r.into for r in (*view.refs, *view.allocs)})
    type = TensorType.row_major(view.type_of(use.buffer).dtype, (loop.range,))
    alloc = Refinement(Direction.ALLOC, name, "", (Affine(),), type, loc=ARRAY)
    row = (Affine.var(loop.name),)
    load = Stage(
        f"load_{use.buffer}", (loop,), (),
        (replace(use, name="src"), Use("dst", name, row, Direction.OUT)),
        (Load("$x", "src"), Store("dst", "$x")),
    )  # fmt: skip
    stages = [
        replace(
            s,
            uses=tuple(
                replace(u, buffer=name, forms=(Affine.var(s.loops[0].name),)) if u.buffer == use.buffer else u
                for u in s.uses
            ),
        )
        for s in view.stages
    ]
    stages.insert(first, load)
    return replace(view, stages=tuple(stages), allocs=(*view.allocs, alloc))


def _private(view: KernelView, alloc: Refinement, split: RowSplit) -> Refinement:
    """A local row shrinks to one item's share of it: ``[step][lane]`` in place of the row's dimension."""
    if not _is_row(view, alloc.into):
        return replace(alloc, loc=REGISTER)
    sizes = tuple(1 for _ in alloc.type.sizes) + tuple(i.range for i in split.indexes())
    register = split.steps <= MAX_UNROLLED
    type = TensorType.row_major(alloc.type.dtype, sizes, align=16)
    return replace(alloc, type=type, access=(Affine(),) * len(sizes), loc=REGISTER if register else ARRAY)


def _is_row(view: KernelView, buffer: str) -> bool:
    return any(
        s.loops and s.loops[0].name in {n for f in u.forms for n in f.names}
        for s in view.stages
        for u in s.uses
        if u.buffer == buffer
    )


def _row_stages(
    view: KernelView, stage: Stage, split: RowSplit, taken: set[str]
) -> tuple[list[Part], list[Refinement]]:
    uses = tuple(_local_use(view, stage, u, split) for u in stage.uses)
    if not stage.loops:
        alone = any(u.writes and not view.is_local(u.buffer) for u in stage.uses)
        constraints = stage.constraints + ((Affine.var(ITEM, -1),) if alone else ())
        return [replace(stage, uses=uses, constraints=constraints)], []
    limit = (split.form() * -1 + (split.extent - 1),) if split.ragged else ()
    moved = replace(stage, loops=split.indexes(), uses=uses)
    moved = moved.substitute({stage.loops[0].name: split.form()})
    moved = replace(moved, constraints=moved.constraints + limit)
    whole, merged = merged_use(stage), merged_use(moved)
    if whole is None or merged is None or flat_stride(view, whole, stage.loops[0].name):
        return [moved], []
    staged = frozenset(u.name for u in row_operands(view, stage) if u.buffer in split.staged)
    return _reduced(view, moved, merged, split, staged, taken)


def _local_use(view: KernelView, stage: Stage, use: Use, split: RowSplit) -> Use:
    """Local rows are subscripted by an item's own step and lane."""
    if not view.is_local(use.buffer) or not _is_row(view, use.buffer) or not stage.loops:
        return use
    own = tuple(Affine.var(i.name) for i in split.indexes())
    return replace(use, forms=(Affine(),) * len(use.forms) + own)


def _reduced(
    view: KernelView, stage: Stage, merged: Use, split: RowSplit, staged: frozenset[str], taken: set[str]
) -> tuple[list[Part], list[Refinement]]:
    """A partial result per item, then one value for all of them."""
    assert merged.agg is not None
    name = claim(f"{merged.buffer}_partial", taken)
    dtype = view.type_of(merged.buffer).dtype
    alloc = Refinement(Direction.ALLOC, name, "", (Affine(),), TensorType.row_major(dtype, (1,)), loc=REGISTER)
    cell = (Affine(),)
    start = Stage(
        f"{stage.name}_start", (), (), (Use("acc", name, cell, Direction.OUT),),
        (Const("$z", merged.agg.identity(dtype), dtype), Store("acc", "$z")),
    )  # fmt: skip
    target = replace(merged, buffer=name, forms=cell)
    partial = replace(stage, uses=tuple(target if u.name == merged.name else u for u in stage.uses))
    total = Total(name, merged.buffer, merged.agg, dtype)
    if not staged:
        return [start, partial, total], [alloc]
    steps, pieces = staged_steps(view, partial, staged, split, taken)
    return [start, steps, total], [alloc, *pieces]
