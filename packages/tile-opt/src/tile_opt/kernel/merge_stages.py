"""Joining neighbouring elementwise stages into one, so that values pass in scalars instead of buffers."""

from __future__ import annotations

from tile_ir.frozen import replace
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Const, Load, LoadIndex, Op, Store
from tile_ir.stripe.walk import renamed

from tile_opt.kernel.regroup import fresh_all
from tile_opt.kernel.unify import moves_alone, plain_loop
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.kernel.work import carries, is_elementwise

_SCALARS = (Load, Const, Op, LoadIndex)


def merge_stages(view: KernelView) -> KernelView:
    """Merge each elementwise stage into the one before it where they run over the same points."""
    runs: list[_Run] = []
    for stage in view.stages:
        if not (runs and runs[-1].take(view, stage)):
            runs.append(_Run(stage))
    return _without_dead_stores(replace(view, stages=tuple(run.stage() for run in runs)))


def concatenated(first: Stage, second: Stage, written: dict[str, Use]) -> Stage:
    """One stage that does `first`, then `second`, which takes what `first` writes (by buffer) from its scalars."""
    run = _Run(first, written)
    run.append(second)
    return run.stage()


class _Run:
    """Stages that become one, which is grown and not made again for each: a run may have hundreds."""

    def __init__(self, first: Stage, written: dict[str, Use] | None = None) -> None:
        self.first = first
        self.body = list(first.body)
        self.uses = list(first.uses)
        self.names = {u.name for u in first.uses}
        self.buffers = {u.buffer for u in first.uses}
        own = {u.buffer: u for u in first.uses if u.writes}
        self.written = own if written is None else dict(written)
        self.comments = [first.comment] if first.comment else []
        self.scalars = {s.dst for s in first.body if isinstance(s, _SCALARS)}
        self.stored = {s.dst: s.src for s in first.body if isinstance(s, Store)}
        self.open = not (first.constraints or first.guard) and _writes_once(first) and _direct(first)
        """Others may join."""

    def stage(self) -> Stage:
        if len(self.body) == len(self.first.body) and len(self.uses) == len(self.first.uses):
            return self.first
        comment = "\n".join(self.comments)
        return replace(self.first, uses=tuple(self.uses), body=tuple(self.body), comment=comment)

    def take(self, view: KernelView, second: Stage) -> bool:
        """Append a stage; False when it differs in points, or reads what was written elsewhere."""
        if not self.open or second.constraints or second.guard or not (is_elementwise(second) and _direct(second)):
            return False
        renaming = self._matched_loops(view, second)
        if renaming is None:
            return False
        moved = second.substitute({a: Affine.var(b) for a, b in renaming.items()})
        if not all(map(self._allows, moved.uses)):
            return False
        self.append(moved)
        return True

    def _allows(self, use: Use) -> bool:
        """What was written is read in place, by the point that wrote it, and nothing that was touched is written."""
        before = self.written.get(use.buffer)
        if before is not None and (use.writes or before.reads or use.forms != before.forms or not self._own(before)):
            return False
        return not (use.writes and use.buffer in self.buffers)

    def _own(self, written: Use) -> bool:
        """Each point writes a cell of its own: a scatter may write one from all of its points, and the last stays."""
        return all(moves_alone(written, i.name, self.first) for i in self.first.loops if i.range > 1)

    def _matched_loops(self, view: KernelView, second: Stage) -> dict[str, str] | None:
        """Loops of `second` by those here that subscript the buffers passed between them."""
        if len(self.first.loops) != len(second.loops):
            return None
        pairs: dict[str, str] = {}
        for use in second.uses:
            if use.buffer not in self.written:
                continue
            sizes = view.type_of(use.buffer).sizes
            for mine, theirs, size in zip(self.written[use.buffer].forms, use.forms, sizes, strict=True):
                a, b = plain_loop(mine, self.first, size), plain_loop(theirs, second, size)
                if a is not None and b is not None:
                    pairs[b] = a
        complete = len(pairs) == len(second.loops) == len(set(pairs.values()))
        return pairs if complete else None

    def append(self, second: Stage) -> None:
        """`second` comes last, and takes what is written here from scalars."""
        source = {u.name: u.buffer for u in second.uses}
        kept = [u for u in second.uses if u.buffer not in self.written]
        use_names = fresh_all((u.name for u in kept), self.names)
        alias: dict[str, str] = {}
        for s in second.body:
            if isinstance(s, Load) and source[s.src] in self.written:
                alias[s.dst] = self.stored[self.written[source[s.src]].name]
                continue
            statement = renamed(s, alias, use_names, self.scalars)
            self.body.append(statement)
            if isinstance(statement, Store):
                self.stored[statement.dst] = statement.src
        made = [replace(u, name=use_names[u.name]) for u in kept]
        self.uses += made
        self.buffers.update(u.buffer for u in made)
        self.written.update((u.buffer, u) for u in made if u.writes)
        self.comments += [second.comment] if second.comment else []


def _writes_once(stage: Stage) -> bool:
    """Each iteration stands alone, or hands a state on to the next; what it stores to any other buffer is final."""
    return is_elementwise(stage) or carries(stage)


def _direct(stage: Stage) -> bool:
    return all(not s.at for s in stage.body if isinstance(s, Load | Store))


def _without_dead_stores(view: KernelView) -> KernelView:
    """Local buffers that nothing reads any more lose their stores and their allocation."""
    read = {u.buffer for u in view.uses if u.reads}
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
