"""Plans for ordered loops along memory: an item per row, and tiles of rows through local memory."""

from __future__ import annotations

from collections.abc import Iterator

from tile_ir.stripe.nodes import Bind, Order, Scope
from tile_ir.target import Target

from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import merged_use
from tile_opt.plan.plan import Across, Cover, Level, Plan, Reduction, Staging

ROWS = 16
"""Rows of a group, an item each."""
ITEMS_EACH = 8
"""Items for each row: all of them copy."""
CELLS = (128, 64, 32)
"""Cells of a row that a group takes at once."""


def plans(view: KernelView, target: Target) -> Iterator[Plan]:
    """Legal plans, best first."""
    scan = _scan(view)
    uses = () if scan is None else _along(view, scan)
    if scan is None or not uses or target.settings.threads < ROWS:
        return
    row = max(view.loops, key=lambda i: i.range).name
    width = sum(view.type_of(u.buffer).dtype.bytes for u in uses)
    for cells in CELLS:
        if ROWS * (cells + 4) * width <= target.settings.max_mem:
            yield _plan(view, scan, uses, row, cells, min(ITEMS_EACH, target.settings.threads // ROWS))


def _scan(view: KernelView) -> Stage | None:
    """The one stage with a loop, when that is ordered and longer than a piece, and rows keep apart."""
    own = [s for s in view.stages if s.loops]
    if len(own) != 1 or len(own[0].loops) != 1 or not view.loops or max(i.range for i in view.loops) < ROWS:
        return None
    loop = own[0].loops[0]
    plain = not any(s.guard for s in view.stages) and all(
        not u.extent and not is_indirect(s, u) for s in view.stages for u in s.uses
    )
    ordered = loop.order is Order.ORDERED and loop.bind is Bind.NONE and loop.range >= CELLS[-1]
    cells = all(size == 1 for a in view.allocs for size in a.type.sizes)
    return own[0] if ordered and plain and cells and merged_use(own[0]) is None else None


def _along(view: KernelView, scan: Stage) -> tuple[Use, ...]:
    """What the scan reads and writes of memory, all of it along the loop; nothing where that is not so."""
    loop = scan.loops[0].name
    moving = [u for u in scan.uses if not view.is_local(u.buffer) and flat_stride(view, u, loop)]
    once = len({u.buffer for u in moving}) == len(moving) and not any(u.reads and u.writes for u in moving)
    others = {u.buffer for s in view.stages if s is not scan for u in s.uses}
    apart = not others & {u.buffer for u in moving}
    return tuple(moving) if once and apart and all(flat_stride(view, u, loop) == 1 for u in moving) else ()


def _plan(view: KernelView, scan: Stage, uses: tuple[Use, ...], row: str, cells: int, each: int) -> Plan:
    loop = scan.loops[0].name
    grid = Level(Bind.GRID, tuple(Cover(i.name, ROWS if i.name == row else 1) for i in view.loops))
    group = Level(Bind.GROUP, (Cover(row, 1),))
    serial = Level(Bind.NONE, (Cover(loop, cells),), ordered=True)
    stagings = tuple(
        Staging(u.buffer, 2, "LOCAL", scope=Scope.GROUP, pad=max(1, 4 // view.type_of(u.buffer).dtype.bytes))
        for u in uses
    )
    reason = f"{ROWS} rows side by side, {cells} cells at a time through local memory"
    return Plan((grid, group, serial), stagings, (Reduction(loop, Across.SCAN, each),), reason=reason)
