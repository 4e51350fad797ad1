"""Joining neighbouring elementwise stages into one, so that values pass in scalars instead of buffers."""

from __future__ import annotations

from dataclasses import replace

from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Const, Load, LoadIndex, Op, Statement, Store

from tile_opt.kernel.regroup import fresh_all
from tile_opt.kernel.unify import plain_loop
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import carries, is_elementwise

_SCALARS = (Load, Const, Op, LoadIndex)


def merge_stages(view: KernelView) -> KernelView:
    """Merge each elementwise stage into the one before it where they run over the same points."""
    stages: list[Stage] = []
    for stage in view.stages:
        merged = _merge(view, stages[-1], stage) if stages else None
        if merged is None:
            stages.append(stage)
        else:
            stages[-1] = merged
    return _without_dead_stores(replace(view, stages=tuple(stages)))


def _merge(view: KernelView, first: Stage, second: Stage) -> Stage | None:
    """One stage for both; None when they differ in points, or `second` reads `first` elsewhere."""
    if not (_writes_once(first) and is_elementwise(second)) or first.constraints or second.constraints:
        return None
    if first.guard or second.guard or not (_direct(first) and _direct(second)):
        return None
    renaming = _matched_loops(view, first, second)
    if renaming is None:
        return None
    moved = second.substitute({a: Affine.var(b) for a, b in renaming.items()})
    written = {u.buffer: u for u in first.uses if u.writes}
    for use in moved.uses:
        if use.buffer in written and (use.writes or use.forms != written[use.buffer].forms):
            return None
        if use.buffer in written and written[use.buffer].reads:
            return None
        if use.writes and any(u.buffer == use.buffer for u in first.uses):
            return None
    return concatenated(first, moved, written)


def _writes_once(stage: Stage) -> bool:
    """Each iteration stands alone, or hands a state on to the next; what it stores to any other buffer is final."""
    return is_elementwise(stage) or carries(stage)


def _direct(stage: Stage) -> bool:
    return all(not s.at for s in stage.body if isinstance(s, Load | Store))


def _matched_loops(view: KernelView, first: Stage, second: Stage) -> dict[str, str] | None:
    """Loops of `second` by the loops of `first` that subscript the buffers passed between them."""
    if len(first.loops) != len(second.loops):
        return None
    written = {u.buffer: u for u in first.uses if u.writes}
    pairs: dict[str, str] = {}
    for use in second.uses:
        if use.buffer not in written:
            continue
        sizes = view.type_of(use.buffer).sizes
        for mine, theirs, size in zip(written[use.buffer].forms, use.forms, sizes, strict=True):
            a, b = plain_loop(mine, first, size), plain_loop(theirs, second, size)
            if a is not None and b is not None:
                pairs[b] = a
    complete = len(pairs) == len(second.loops) == len(set(pairs.values()))
    return pairs if complete else None


def concatenated(first: Stage, second: Stage, written: dict[str, Use]) -> Stage:
    """One stage that does `first`, then `second`, which takes what `first` writes (by buffer) from its scalars."""
    scalars = {s.dst for s in first.body if isinstance(s, _SCALARS)}
    stored = {s.dst: s.src for s in first.body if isinstance(s, Store)}
    names = {u.name for u in first.uses}
    use_names = fresh_all((u.name for u in second.uses), names)
    source = {u.name: u.buffer for u in second.uses}
    alias: dict[str, str] = {}
    body: list[Statement] = list(first.body)
    for s in second.body:
        if isinstance(s, Load) and source[s.src] in written:
            alias[s.dst] = stored[written[source[s.src]].name]
        else:
            body.append(_renamed(s, alias, use_names, scalars))
    uses = tuple(replace(u, name=use_names[u.name]) for u in second.uses if u.buffer not in written)
    comment = "\n".join(c for c in (first.comment, second.comment) if c)
    return replace(first, uses=first.uses + uses, body=tuple(body), comment=comment)


def _renamed(s: Statement, alias: dict[str, str], uses: dict[str, str], taken: set[str]) -> Statement:
    match s:
        case Load():
            alias[s.dst] = claim(s.dst, taken)
            out: Statement = replace(s, dst=alias[s.dst], src=uses[s.src], deps=())
        case Op():
            args = tuple(alias[a] for a in s.args)
            alias[s.dst] = claim(s.dst, taken)
            out = replace(s, dst=alias[s.dst], args=args, deps=())
        case Const() | LoadIndex():
            alias[s.dst] = claim(s.dst, taken)
            out = replace(s, dst=alias[s.dst], deps=())
        case Store():
            return replace(s, dst=uses[s.dst], src=alias[s.src], deps=())
        case _:
            raise AssertionError(s)
    taken.add(alias[s.dst])
    return out


def _without_dead_stores(view: KernelView) -> KernelView:
    """Local buffers that nothing reads any more lose their stores and their allocation."""
    read = {u.buffer for s in view.stages for u in s.uses if u.reads}
    dead = {a.into for a in view.allocs if a.into not in read}
    if not dead:
        return view
    stages = tuple(without_buffers(s, dead) for s in view.stages)
    kept = tuple(s for s in stages if any(u.writes for u in s.uses))
    return replace(view, stages=kept, allocs=tuple(a for a in view.allocs if a.into not in dead))


def without_buffers(stage: Stage, dead: set[str]) -> Stage:
    """`stage` without its stores to the buffers `dead`."""
    names = {u.name for u in stage.uses if u.buffer in dead}
    if not names:
        return stage
    body = tuple(s for s in stage.body if not (isinstance(s, Store) and s.dst in names))
    return replace(stage, uses=tuple(u for u in stage.uses if u.name not in names), body=body)
