"""Building a kernel view around given shared loops, and taking one apart again."""

from __future__ import annotations

from collections.abc import Iterable, Set

from tile_ir.frozen import replace
from tile_ir.names import claim
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Layout, Location, Refinement, Scope, TensorType, row_major_strides

from tile_opt.kernel.unify import SharedLoop
from tile_opt.kernel.view import KernelView, Stage, Use

LOCAL = Location("LOCAL", scope=Scope.THREAD)


def joined(a: KernelView, b: KernelView) -> KernelView:
    """Stages of `a`, then of `b`, whose allocations are renamed where they clash; all loops are in the stages."""
    taken = {r.into for r in (*a.refs, *a.allocs, *b.refs)}
    rename = fresh_all((r.into for r in b.allocs), taken)
    stages = tuple(s.with_buffers(rename) for s in b.stages)
    refs = {r.into: r for r in b.refs} | {r.into: r for r in a.refs}
    both = replace(
        a,
        stages=a.stages + stages,
        refs=tuple(refs.values()),
        allocs=a.allocs + tuple(replace(r, into=rename[r.into]) for r in b.allocs),
        comment="\n".join(c for c in (a.comment, b.comment) if c),
    )
    return unique_loops(both, len(a.stages))


def localised(view: KernelView, mine: Set[str]) -> KernelView:
    """What the view writes of the buffers `mine` become its own allocations."""
    written = {u.buffer for u in view.uses if u.writes}
    own = [r for r in view.refs if r.into in written and r.into in mine]
    if not own:
        return view
    names = {r.into for r in own}
    allocs = tuple(Refinement.allocation(r.into, packed(r.type, r.type.sizes), LOCAL) for r in own)
    return replace(view, refs=tuple(r for r in view.refs if r.into not in names), allocs=view.allocs + allocs)


def share(view: KernelView, shared: tuple[SharedLoop, ...]) -> KernelView:
    """`view` (all loops in its stages) with the shared loops moved around the stages; local buffers lose their dimensions."""
    return shrunk(around(view, shared))


def around(view: KernelView, shared: tuple[SharedLoop, ...]) -> KernelView:
    """`view` (all loops in its stages) with the shared loops moved around the stages."""
    names = {loop.index.name for loop in shared}
    stages = tuple([_with_shared(stage, k, shared, names) for k, stage in enumerate(view.stages)])
    return replace(view, loops=tuple(loop.index for loop in shared), stages=stages)


def _with_shared(stage: Stage, k: int, shared: tuple[SharedLoop, ...], names: set[str]) -> Stage:
    mine = {loop.members[k]: loop.index.name for loop in shared}
    own = tuple(i for i in stage.loops if i.name not in mine)
    assert not names & {i.name for i in own}, "loop names are unique within a kernel"
    if not mine:
        return stage
    return replace(stage.substitute({a: Affine.var(b) for a, b in mine.items()}), loops=own)


def shrunk(view: KernelView) -> KernelView:
    """`view` whose local buffers have no dimensions that the loops around its stages subscript."""
    if not view.allocs:
        return view
    lost: dict[str, set[int]] = {a.into: set() for a in view.allocs}
    names = {loop.name for loop in view.loops}
    for use in view.uses:
        if use.buffer in lost:
            lost[use.buffer].update([d for d, f in enumerate(use.forms) if not names.isdisjoint(f.names)])
    stages = tuple([s.map_uses(lambda use: _shrunk(use, lost.get(use.buffer))) for s in view.stages])
    return replace(view, stages=stages, allocs=tuple([_without(a, lost[a.into]) for a in view.allocs]))


def _shrunk(use: Use, dims: set[int] | None) -> Use:
    return replace(use, forms=tuple([Affine() if d in dims else f for d, f in enumerate(use.forms)])) if dims else use


def _without(alloc: Refinement, dims: set[int]) -> Refinement:
    sizes = tuple([1 if d in dims else size for d, size in enumerate(alloc.type.sizes)])
    return replace(alloc, type=packed(alloc.type, sizes))


def packed(old: TensorType, sizes: tuple[int, ...]) -> TensorType:
    """The same element type, row-major over `sizes`."""
    return TensorType(old.dtype, sizes, Layout(row_major_strides(sizes), old.layout.align))


def drop_unit_loops(view: KernelView) -> KernelView:
    """Loops of one iteration vanish: their name becomes 0."""
    stages: list[Stage] = []
    for stage in view.stages:
        unit = {i.name: Affine() for i in stage.loops if i.range == 1}
        loops = tuple(i for i in stage.loops if i.range != 1)
        stages.append(replace(stage.substitute(unit), loops=loops) if unit else stage)
    return replace(view, stages=tuple(stages))


def fresh_all(names: Iterable[str], taken: set[str]) -> dict[str, str]:
    """A new name for each of `names`, all different; they are `taken` from then on."""
    return {name: claim(name, taken) for name in names}


def unique_loops(view: KernelView, done: int = 0) -> KernelView:
    """Stages whose loop names are all different, so that a name has one range in the whole kernel.

    Those of the first `done` stages are known to be.
    """
    stages = list(view.stages[:done])
    taken = {i.name for i in view.loops} | {i.name for s in stages for i in s.loops}
    for stage in view.stages[done:]:
        clashes = [n for n in stage.loop_names if n in taken]
        stages.append(stage.renamed(fresh_all(clashes, taken | set(stage.loop_names))))
        taken.update(stages[-1].loop_names)
    return replace(view, stages=tuple(stages))
