"""Reductions shared by several groups: partial results of each, then a kernel that combines them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from tile_ir.frozen import frozen, replace
from tile_ir.names import claim, fresh
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Direction, Index, Refinement, TensorType

from tile_opt.kernel.view import KernelView, Stage, Use, close_kernel
from tile_opt.kernel.work import merged_use
from tile_opt.plan.plan import Across, Cover, Plan, Reduction, Staging

Cells = tuple[Refinement, tuple[Affine, ...]]
"""The buffer of partial results, and where in it a group has its own."""


@frozen
class SharedReduction:
    """A kernel of partial results, the kernel after it, and the buffer between them."""

    partial: KernelView
    main: Stage
    """The stage of `partial` that aggregates."""
    shares: tuple[str, ...]
    """Its shared loops over the groups that share the reductions."""
    combining: KernelView
    """Aggregates the partial results and does the rest of the stages."""
    added: Stage
    """The stage of `combining` that aggregates them."""
    buffer: Refinement

    @property
    def combine(self) -> Block:
        """`combining` in normal form."""
        return close_kernel(self.combining)

    @property
    def ways(self) -> int:
        """Groups that share the reductions."""
        return prod(self.buffer.type.sizes[: len(self.shares)])

    @property
    def sums(self) -> str:
        """What `main` aggregates into: a plan of the whole kernel, which has no partial results, calls them by its name."""
        out = merged_use(self.main)
        assert out is not None
        return out.buffer

    def whole(self, staging: Staging) -> Staging:
        """A staging of `partial` as the whole kernel's plan has it."""
        if staging.operand != self.buffer.into:
            return staging
        return replace(staging, operand=self.sums, order=tuple(n for n in staging.order if n not in self.shares))

    def inner(self, staging: Staging) -> Staging:
        """A staging of the whole kernel's plan as that of `partial` has it: results are those of a share."""
        if staging.operand != self.sums:
            return staging
        return replace(staging, operand=self.buffer.into, order=(*self.shares, *staging.order))

    def plan(self, whole: Plan, stagings: Iterable[Staging]) -> Plan:
        """The whole kernel's plan as that of `partial`, a group for each share, with these stagings."""
        grid, *rest = whole.levels
        grid = replace(grid, covers=(*(Cover(n, 1) for n in self.shares), *grid.covers))
        return replace(unshared(whole), levels=(grid, *rest), stagings=tuple(stagings))


def unshared(plan: Plan) -> Plan:
    """The plan without groups that share a reduction."""
    serial = (Reduction(r.loop, Across.SERIAL) if r.across is Across.GROUPS else r for r in plan.reductions)
    return replace(plan, reductions=tuple(serial))


def even_share(extent: int, ways: int, deep: int) -> int:
    """Iterations of each share, in whole steps of `deep`."""
    size = -(-extent // ways)
    return -(-size // deep) * deep


def share_reduction(
    view: KernelView, main: Stage, sizes: Mapping[str, int], near: Sequence[str] = ()
) -> SharedReduction:
    """`main` aggregates so many iterations of some of its loops per group; the stages before and behind go with the combining.

    Partial results lie in the order of the kernel's loops; those along the loops `near` closest to each other, where the
    last loop is none of these.
    """
    out = merged_use(main)
    assert out is not None and out.agg is not None
    taken = {i.name for s in view.stages for i in s.loops} | {i.name for i in view.loops}
    shares = {n: Index(fresh(f"{n}_share", taken), -(-view.ranges[n] // size)) for n, size in sizes.items()}
    dtype = view.type_of(out.buffer).dtype
    apart = bool(view.loops) and view.loops[-1].name not in near
    cells = sorted(view.loops, key=lambda i: near.index(i.name) if apart and i.name in near else -1)
    dims = (*shares.values(), *cells)
    type = TensorType.row_major(dtype, tuple(i.range for i in dims), align=64)
    at = tuple(Affine.var(i.name) for i in dims)
    name = claim(f"{out.buffer}_partial", view.buffers)
    buffer = Refinement.allocation(name, type)
    partial, reduced = _partial(view, main, out, sizes, shares, (buffer, at))
    combining = _combine(view, main, out, tuple(shares.values()), (buffer, at))
    return SharedReduction(partial, reduced, tuple(i.name for i in shares.values()), *combining, buffer)


def _passed(buffer: Refinement, direction: Direction) -> Refinement:
    return replace(buffer, dir=direction, source=buffer.into)


def _partial(
    view: KernelView,
    main: Stage,
    out: Use,
    sizes: Mapping[str, int],
    shares: Mapping[str, Index],
    cells: Cells,
) -> tuple[KernelView, Stage]:
    buffer, at = cells
    forms = {n: Affine.var(shares[n].name, size) + Affine.var(n) for n, size in sizes.items()}
    loops = tuple(replace(i, range=sizes.get(i.name, i.range)) for i in main.loops)
    moved = replace(main.substitute(forms), loops=loops)
    ragged = (n for n, size in sizes.items() if shares[n].range * size > view.ranges[n])
    ends = tuple(forms[n] * -1 + (view.ranges[n] - 1) for n in ragged)
    moved = replace(moved, constraints=(*moved.constraints, *ends))
    first = [s for s in view.stages[: view.stages.index(main)] if any(u.buffer == out.buffer for u in s.uses)]
    told = Use("out", buffer.into, at, Direction.OUT)
    store = Stage.copy(f"{buffer.into}_store", (), Use("acc", out.buffer, out.forms, Direction.IN), told, value="$a")
    stages = (*first, moved, store)
    used = {u.buffer for s in stages for u in s.uses}
    refs = (*(r for r in view.refs if r.into in used), _passed(buffer, Direction.OUT))
    allocs = tuple(a for a in view.allocs if a.into in used)
    name = f"{view.name}_shares"
    return replace(
        view, name=name, loops=(*shares.values(), *view.loops), stages=stages, refs=refs, allocs=allocs
    ), moved


def _combine(
    view: KernelView, main: Stage, out: Use, shares: tuple[Index, ...], cells: Cells
) -> tuple[KernelView, Stage]:
    """The kernel with a sum over partial results in the place of `main`, and that."""
    buffer, at = cells
    reading = Use("partial", buffer.into, at, Direction.IN)
    stage = Stage.copy(f"{main.name}_combine", shares, reading, out, value="$p")
    stages = tuple(stage if s is main else s for s in view.stages)
    used = {u.buffer for s in stages for u in s.uses}
    refs = (*(r for r in view.refs if r.into in used), _passed(buffer, Direction.IN))
    return replace(view, name=f"{view.name}_combine", stages=stages, refs=refs), stage
