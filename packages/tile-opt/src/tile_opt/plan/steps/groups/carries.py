"""What ordered loops carry from cell to cell, and which of them the items of a group can share."""

from __future__ import annotations

from collections.abc import Sequence, Set

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation
from tile_ir.stripe.nodes import Bind, Load, Op, Order, Statement, Store

from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import merged_use
from tile_opt.plan.steps.groups.linear import times


@frozen
class Carry:
    """What an ordered stage hands from cell to cell, and how it takes an element in."""

    buffer: str
    agg: Aggregation | None
    """None where a step is linear in what is carried, and no aggregation."""
    olds: frozenset[str]
    """The scalars that hold it as it was."""
    new: str
    dtype: DType


def carry_of(view: KernelView, stage: Stage) -> Carry | None:
    """The one cell of the kernel's own that changes from iteration to iteration; None where runs of them cannot be summed up."""
    own = {u.name: u.buffer for u in stage.uses if view.is_local(u.buffer)}
    stores = [s for s in stage.body if isinstance(s, Store) and s.dst in own]
    if len(stores) != 1:
        return None
    buffer, new = own[stores[0].dst], stores[0].src
    olds = frozenset(s.dst for s in stage.body if isinstance(s, Load) and own.get(s.src) == buffer)
    carry = Carry(buffer, _aggregation(stage, olds, new), olds, new, view.type_of(buffer).dtype)
    linear = carry.agg is None and times(stage.body, olds, new, "$start") is not None
    return carry if olds and (carry.agg is not None or linear) else None


def _aggregation(stage: Stage, olds: frozenset[str], new: str) -> Aggregation | None:
    """The one that takes something into the carried value that does not depend on it."""
    op = next((s for s in stage.body if isinstance(s, Op) and s.dst == new), None)
    known = {a.value: a for a in Aggregation}
    if op is None or op.name not in known or sum(a in olds for a in op.args) != 1:
        return None
    (element,) = (a for a in op.args if a not in olds)
    return None if element in dependent(stage.body, olds) else known[op.name]


def dependent(body: Sequence[Statement], olds: Set[str]) -> set[str]:
    """The scalars that depend on some."""
    found = set(olds)
    for s in body:
        match s:
            case Op() if found & set(s.args):
                found.add(s.dst)
            case Load() if found & set(s.at):
                found.add(s.dst)
            case _:
                pass
    return found


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
