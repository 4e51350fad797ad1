"""Reading a scheduled kernel: its loops by binding, memory, barriers, group-wide reductions and source lines."""

from __future__ import annotations

from math import prod

from tile_ir.diagnostics import Span
from tile_ir.stripe.nodes import Bind, Block, Direction, Index, Reduce, Scope, Sync
from tile_ir.stripe.walk import blocks_in, spans_in

from tile_opt.explain.data import LoopReport, ScheduleReport


def schedule_of(kernel: Block) -> ScheduleReport:
    """The schedule that the kernel block holds."""
    blocks = list(blocks_in(kernel))
    loops = [i for b in blocks for i in b.indexes if i.value is None]
    allocs = [(b, r) for b in blocks for r in b.refs if r.dir is Direction.ALLOC]
    private: dict[str, int] = {}
    for block, ref in allocs:
        if ref.loc.scope is Scope.THREAD:
            private[block.name] = private.get(block.name, 0) + ref.type.nbytes
    return ScheduleReport(
        grid=_grid([i for i in kernel.indexes if i.bind is Bind.GRID and i.value is None]),
        items=_distinct(loops, Bind.GROUP),
        lanes=max((i.lanes for i in loops if i.bind is Bind.VECTOR), default=1),
        unrolled=_distinct(loops, Bind.UNROLL),
        local_bytes=sum(r.type.nbytes * r.versions for _, r in allocs if r.loc.scope is Scope.GROUP),
        private_bytes=max(private.values(), default=0),
        barriers=sum(isinstance(s, Sync) for b in blocks for s in b.body),
        reductions=tuple(
            f"{s.agg.value} of {s.src.removeprefix('$')} over {', '.join(s.over)}"
            for b in blocks for s in b.body if isinstance(s, Reduce)
        ),
    )  # fmt: skip


def _distinct(loops: list[Index], bind: Bind) -> tuple[LoopReport, ...]:
    found = {(i.name, i.range): LoopReport(i.name, i.range, i.axis) for i in loops if i.bind is bind}
    return tuple(found.values())


def _grid(indexes: list[Index]) -> tuple[LoopReport, ...]:
    """Several loops on one axis are packed, the last listed fastest."""
    found: list[LoopReport] = []
    for index in indexes:
        mine = [i for i in indexes if i.axis == index.axis]
        inner = prod(i.range for i in mine[mine.index(index) + 1 :])
        form = f"group{index.axis}" + (f" / {inner}" if inner > 1 else "")
        outermost = all(i.range == 1 for i in mine[: mine.index(index)])
        found.append(LoopReport(index.name, index.range, index.axis, form if outermost else f"{form} % {index.range}"))
    return tuple(found)


def origins(kernel: Block) -> tuple[Span, ...]:
    """Where in the sources the kernel's statements come from, each place once."""
    found: dict[tuple[str, int], Span] = {}
    for origin in spans_in(kernel):
        if origin.is_place:
            found.setdefault((origin.source.name, origin.line), origin)
    return tuple(found[key] for key in sorted(found))
