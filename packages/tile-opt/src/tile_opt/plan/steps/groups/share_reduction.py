"""One reduction shared by several groups: partial results of each, then a kernel that combines them."""

from __future__ import annotations

from tile_ir.frozen import frozen, replace
from tile_ir.names import claim, fresh
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Block, Direction, Index, Load, Refinement, Store, TensorType

from tile_opt.kernel.view import KernelView, Stage, Use, close_kernel
from tile_opt.kernel.work import merged_use
from tile_opt.plan.plan import Staging


@frozen
class SharedReduction:
    """A kernel of partial results, the kernel after it, and the buffer between them."""

    partial: KernelView
    main: Stage
    """The stage of `partial` that aggregates."""
    shares: str
    """Its shared loop over the groups that share the reduction."""
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
        """Groups that share the reduction."""
        return self.buffer.type.sizes[0]

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
        return replace(staging, operand=self.sums, order=tuple(n for n in staging.order if n != self.shares))

    def inner(self, staging: Staging) -> Staging:
        """A staging of the whole kernel's plan as that of `partial` has it: results are those of a share."""
        if staging.operand != self.sums:
            return staging
        return replace(staging, operand=self.buffer.into, order=(self.shares, *staging.order))


def even_share(extent: int, ways: int, deep: int) -> int:
    """Iterations of each share, in whole steps of `deep`."""
    size = -(-extent // ways)
    return -(-size // deep) * deep


def share_reduction(view: KernelView, main: Stage, loop: str, size: int) -> SharedReduction:
    """`main` aggregates `size` iterations of its loop `loop` per group; the stages before and behind go with the combining."""
    out = merged_use(main)
    assert out is not None and out.agg is not None
    taken = {i.name for s in view.stages for i in s.loops} | {i.name for i in view.loops}
    shares = Index(fresh(f"{loop}_share", taken), -(-view.ranges[loop] // size))
    cells = view.type_of(out.buffer)
    type = TensorType.row_major(cells.dtype, (shares.range, *(i.range for i in view.loops)), align=64)
    name = claim(f"{out.buffer}_partial", view.buffers)
    buffer = Refinement.allocation(name, type)
    partial, reduced = _partial(view, main, out, loop, size, shares, buffer)
    return SharedReduction(partial, reduced, shares.name, *_combine(view, main, out, shares, buffer), buffer)


def _passed(buffer: Refinement, direction: Direction) -> Refinement:
    return replace(buffer, dir=direction, source=buffer.into)


def _at(view: KernelView, shares: str) -> tuple[Affine, ...]:
    return (Affine.var(shares), *(Affine.var(i.name) for i in view.loops))


def _partial(
    view: KernelView, main: Stage, out: Use, loop: str, size: int, shares: Index, buffer: Refinement
) -> tuple[KernelView, Stage]:
    extent = view.ranges[loop]
    form = Affine.var(shares.name, size) + Affine.var(loop)
    loops = tuple(replace(i, range=size) if i.name == loop else i for i in main.loops)
    moved = replace(main.substitute({loop: form}), loops=loops)
    if shares.range * size > extent:
        moved = replace(moved, constraints=(*moved.constraints, form * -1 + (extent - 1)))
    first = [s for s in view.stages[: view.stages.index(main)] if any(u.buffer == out.buffer for u in s.uses)]
    store = Stage(
        f"{buffer.into}_store", (), (),
        (Use("acc", out.buffer, out.forms, Direction.IN), Use("out", buffer.into, _at(view, shares.name), Direction.OUT)),
        (Load("$a", "acc"), Store("out", "$a")),
    )  # fmt: skip
    stages = (*first, moved, store)
    used = {u.buffer for s in stages for u in s.uses}
    refs = (*(r for r in view.refs if r.into in used), _passed(buffer, Direction.OUT))
    allocs = tuple(a for a in view.allocs if a.into in used)
    name = f"{view.name}_shares"
    return replace(view, name=name, loops=(shares, *view.loops), stages=stages, refs=refs, allocs=allocs), moved


def _combine(view: KernelView, main: Stage, out: Use, shares: Index, buffer: Refinement) -> tuple[KernelView, Stage]:
    """The kernel with a sum over partial results in the place of `main`, and that."""
    reading = Use("partial", buffer.into, _at(view, shares.name), Direction.IN)
    body = (Load("$p", "partial"), Store(out.name, "$p"))
    stage = Stage(f"{main.name}_combine", (shares,), (), (reading, out), body)
    stages = tuple(stage if s is main else s for s in view.stages)
    used = {u.buffer for s in stages for u in s.uses}
    refs = (*(r for r in view.refs if r.into in used), _passed(buffer, Direction.IN))
    return replace(view, name=f"{view.name}_combine", stages=stages, refs=refs), stage
