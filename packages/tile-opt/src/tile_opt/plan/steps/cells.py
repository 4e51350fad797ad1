"""What several stages make of one cell stays in a register until the last of them is done, and is stored once.

So does what one item would store and others read, and what a stage stores beside what every item needs: all make it
for themselves, and one stores it.
"""

from __future__ import annotations

from tile_ir.frozen import replace
from tile_ir.names import claim
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import Direction, Refinement, TensorType

from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.plan.tree import ARRAY

Users = list[tuple[int, Stage, Use]]


def write_once(view: KernelView) -> KernelView:
    """`view` with a cell of its own for each that it starts, then changes; own loops in its subscripts make a row of cells."""
    for buffer in sorted({u.buffer for u in view.uses if u.writes}):
        users = _first_users(view, buffer)
        if _is_worth(view, buffer, users):
            view = _in_a_cell(view, buffer, users)
    return view


def _first_users(view: KernelView, buffer: str) -> Users:
    """The stages that use `buffer`, as long as they do so at the same cell."""
    users = [(k, s, u) for k, s in enumerate(view.stages) for u in s.uses if u.buffer == buffer]
    first = users[0][2]
    end = next((n for n, (_, _, u) in enumerate(users) if u.forms != first.forms), len(users))
    return users[:end] if end < 2 or end == len(users) or users[end][0] > users[end - 1][0] else []


def _is_worth(view: KernelView, buffer: str, users: Users) -> bool:
    """The first stage sets every cell, others change it; a buffer of the kernel's own is then read at other cells.

    Or it sets cells of memory that not every item sets, and others read the one cell, or it makes something else, too.
    """
    if not users:
        return False
    _, start, first = users[0]
    own = _own(start, first)
    if sum(u.writes for _, _, u in users) < 2 and not _is_shown(view, buffer, users):
        return False
    sets = (
        first.dir is Direction.OUT
        and first.agg in (None, Aggregation.ASSIGN)
        and not (start.constraints or start.guard)
    )
    plain = all(not u.extent and not is_indirect(s, u) for _, s, u in users)
    alike = all(set(own) <= set(s.loop_names) for _, s, _ in users)
    loops = [f.names for f in first.forms if set(f.names) & set(own)]
    single = all(len(names) == 1 for names in loops) and len(loops) == len(own) == len(start.loops)
    elsewhere = any(u.buffer == buffer and u.forms != first.forms for u in view.uses)
    return sets and plain and alike and single and (not view.is_local(buffer) or elsewhere)


def _is_shown(view: KernelView, buffer: str, users: Users) -> bool:
    """Items that share loops which the first stage lacks would leave `buffer` to one of them, but all need the stage."""
    start = users[0][1]
    if view.is_local(buffer) or all(set(s.loop_names) <= set(start.loop_names) for s in view.stages):
        return False
    makes_own = any(u.writes and view.is_local(u.buffer) for u in start.uses)
    return makes_own or (len(users) > 1 and not start.loops)


def _own(stage: Stage, use: Use) -> tuple[str, ...]:
    """Own loops that the access moves with."""
    moving = names_in(use.forms)
    return tuple(n for n in stage.loop_names if n in moving)


def _in_a_cell(view: KernelView, buffer: str, users: Users) -> KernelView:
    _, start, first = users[0]
    loops = tuple(i for i in start.loops if i.name in _own(start, first))
    name = claim(f"{buffer}_cell", view.buffers)
    type = TensorType.row_major(view.type_of(buffer).dtype, tuple(i.range for i in loops) or (1,))
    alloc = Refinement.allocation(name, type, ARRAY)
    cell = tuple(Affine.var(i.name) for i in loops) or (Affine(),)
    last = users[-1][0]
    stages = [s.redirected(buffer, name, cell) if k <= last else s for k, s in enumerate(view.stages)]
    out = replace(first, name="out", dir=Direction.OUT, agg=None)
    store = Stage.copy(f"{buffer}_store", loops, Use("acc", name, cell, Direction.IN), out, value="$a")
    stages.insert(last + 1, store)
    return replace(view, stages=tuple(stages), allocs=(*view.allocs, alloc))
