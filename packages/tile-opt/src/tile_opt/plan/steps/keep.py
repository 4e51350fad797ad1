"""Rows kept near the items that walk them, or computed again where they would not fit."""

from __future__ import annotations

from tile_ir.frozen import replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import Direction, Load, Refinement, Store, TensorType

from tile_opt.kernel.merge_stages import concatenated, without_buffers
from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import is_elementwise
from tile_opt.plan.tree import ARRAY


def shared_row(view: KernelView, buffer: str) -> Use | None:
    """The one access by which several stages read `buffer` along loops of their own; None when they differ."""
    users = view.users(buffer)
    first = users[0][1]
    own = names_in(first.forms) & set(users[0][0].loop_names)
    known = own | {i.name for i in view.loops}
    limits = {s.constraints for s, _ in users}
    alone = len(users) > 1 and own and len(limits) == 1 and all(known >= set(c.names) for c in users[0][0].constraints)
    plain = not any(u.writes or u.extent or is_indirect(s, u) for s, u in users)
    same = all(u.forms == first.forms and own <= set(s.loop_names) for s, u in users)
    return first if alone and plain and same and not view.is_local(buffer) else None


def keep(view: KernelView, buffer: str) -> KernelView:
    """`view` with the row of `buffer` that several stages read loaded once, into a row of its own."""
    use = shared_row(view, buffer)
    if use is None:
        return view
    number = next(k for k, s in enumerate(view.stages) if use in s.uses)
    own = names_in(use.forms)
    loops = tuple(i for i in view.stages[number].loops if i.name in own)
    name = claim(f"{buffer}_row", view.buffers)
    type = TensorType.row_major(view.type_of(buffer).dtype, tuple(i.range for i in loops))
    alloc = Refinement.allocation(name, type, ARRAY)
    row = tuple(Affine.var(i.name) for i in loops)
    target = Use("dst", name, row, Direction.OUT)
    load = Stage.copy(f"load_{buffer}", loops, replace(use, name="src"), target, view.stages[number].constraints)
    stages = [s.redirected(buffer, name, row) for s in view.stages]
    stages.insert(number, load)
    return replace(view, stages=tuple(stages), allocs=(*view.allocs, alloc))


def maker(view: KernelView, row: str) -> Stage | None:
    """The one stage that makes the local `row`, element by element, from what stays as it is until it is read."""
    writers = [s for s in view.stages if any(u.buffer == row and u.writes for u in s.uses)]
    if len(writers) != 1 or writers[0].constraints or writers[0].guard or not is_elementwise(writers[0]):
        return None
    made = writers[0]
    out = [u for u in made.uses if u.writes]
    readers = [(s, u) for s in view.stages for u in s.uses if u.buffer == row and s is not made]
    plain = len(out) == 1 and all(
        u.forms == out[0].forms and set(made.loop_names) <= set(s.loop_names) for s, u in readers
    )
    later = view.stages[view.stages.index(made) + 1 :]
    stays = not any(w.writes and w.buffer == u.buffer for u in made.uses if u.reads for s in later for w in s.uses)
    direct = all(not s.at for w in (made, *(r for r, _ in readers)) for s in w.body if isinstance(s, Load | Store))
    return made if plain and stays and direct else None


def recompute(view: KernelView, row: str) -> KernelView:
    """`view` with the local `row` computed again by every stage that reads it, where one stage makes it plainly."""
    made = maker(view, row)
    if made is None:
        return view
    stages = tuple(_with(s, made, row) for s in view.stages if s is not made)
    return replace(view, stages=stages, allocs=tuple(a for a in view.allocs if a.into != row))


def _with(stage: Stage, made: Stage, row: str) -> Stage:
    if not any(u.buffer == row for u in stage.uses):
        return stage
    both = without_buffers(concatenated(made, stage, {row: next(u for u in made.uses if u.writes)}), {row})
    return replace(stage, uses=both.uses, body=both.body)
