"""Plans for rows so short, and of so odd a length, that neither one item nor several take them well from memory."""

from __future__ import annotations

from collections.abc import Iterator

from tile_ir.stripe.affine import names_in
from tile_ir.stripe.nodes import Bind, Scope
from tile_ir.target import Target

from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import KernelView
from tile_opt.kernel.work import merged_use
from tile_opt.plan.plan import Cover, Level, Plan, Staging
from tile_opt.plan.space.facts import Facts
from tile_opt.plan.space.gpu.rows import prepared
from tile_opt.plan.steps.groups.row_tiles import row_length

SHORT = 64
"""Bytes from which rows are long enough for several items to share."""
ITEMS = 128
"""Of a group: rows of as many are little memory, and several groups run at once."""
EACH = 24
"""Elements of an item, about."""
NARROW = 2
"""Bytes of an element below which to copy one by one takes as long as all that is saved."""
SEVERAL = 4
"""Elements of an access of which items that share rows make enough."""
LEAST = 4
"""Groups for each unit without which few rows are better shared by items."""


def plans(view: KernelView, target: Target) -> Iterator[Plan]:
    """The plan, where it applies."""
    view = prepared(view)
    if len(view.loops) != 1 or view.constraints or target.settings.use_global or not target.machine.is_gpu:
        return
    facts, (loop,) = Facts(view), view.loops
    lengths: dict[str, set[int]] = {}
    for stage, use in facts.accesses:
        lengths.setdefault(use.buffer, set()).add(row_length(view, stage, use))
    staged = [b for b, found in lengths.items() if 0 not in found]
    length = max((n for b in staged for n in lengths[b]), default=0)
    alike = all(lengths[b] == {length} for b in staged)
    reduces = any(s.loops and merged_use(s) is not None for s in view.stages)
    if not (staged and alike and reduces and _is_plain(view) and _is_odd(facts, length, target)) or _has_others(
        facts, staged
    ):
        return
    row = length * sum(view.type_of(b).dtype.bytes for b in staged)
    rows = min(max(1, EACH // length), target.settings.max_mem // (ITEMS * row))
    if not rows or loop.range < LEAST * target.settings.cores * ITEMS * rows:
        return
    own = dict.fromkeys(n for s in view.stages for n in s.loop_names)
    levels = (
        Level(Bind.GRID, (Cover(loop.name, ITEMS * rows),)),
        Level(Bind.GROUP, (Cover(loop.name, rows),)),
        Level(Bind.UNROLL, (Cover(loop.name, 1), *(Cover(n, 1) for n in own))),
    )
    stagings = tuple(Staging(b, 0, "LOCAL", scope=Scope.GROUP) for b in sorted(staged))
    yield Plan(levels, stagings, reason=f"rows of {length} elements through local memory, {rows} of each item")


def _is_plain(view: KernelView) -> bool:
    """Every stage does all of its iterations, by places that no data chooses, and none reads what another one stores."""
    free = not any(s.constraints or s.guard for s in view.stages)
    direct = not any(u.extent or is_indirect(s, u) for s in view.stages for u in s.uses)
    return free and direct and view.reads().isdisjoint(view.writes())


def _has_others(facts: Facts, staged: list[str]) -> bool:
    """Something else in memory has an element for each of the rows' elements."""
    moved = ((u, names_in(u.forms)) for s, u in facts.accesses if s.loops)
    return any(u.buffer not in staged and len(n & facts.loops.keys()) > 1 for u, n in moved)


def _is_odd(facts: Facts, length: int, target: Target) -> bool:
    """Rows are short, and no whole accesses, nor several elements at a time."""
    width = max(facts.bytes(u) for _, u in facts.accesses)
    own = next((n for n in facts.loops if facts.extent(n) == length and n not in facts.shared), "")
    if not own or length < 2 or length * width >= SHORT or min(facts.bytes(u) for _, u in facts.accesses) < NARROW:
        return False
    most = 4 * target.settings.vec_size
    lanes = facts.lanes(own, most)
    return lanes < SEVERAL and lanes * width < most
