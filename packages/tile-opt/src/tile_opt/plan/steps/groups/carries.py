"""What ordered loops carry from cell to cell, and which of them the items of a group can share."""

from __future__ import annotations

from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.stripe.nodes import Bind, Load, Op, Order, Store

from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import merged_use


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
