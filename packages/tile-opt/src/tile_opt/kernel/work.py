"""What a stage does, in numbers: points, operations, reuse of its operands."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import names_in
from tile_ir.stripe.nodes import Bind, Op, Order, TensorType

from tile_opt.kernel.bodies import facts
from tile_opt.kernel.view import KernelView, Stage, Use

MERGING = (Aggregation.SUM, Aggregation.PROD, Aggregation.MAX, Aggregation.MIN)


def points(stage: Stage, ranges: dict[str, int]) -> int:
    """Iterations of the stage over all its loops, shared ones included, before constraints."""
    return prod(ranges[n] for n in stage.names() | set(stage.loop_names))


def repeats(stage: Stage, view: KernelView) -> int:
    """How often tiles run a stage of the view again that does not name the loops over them."""
    return prod(i.range for i in view.loops if i.bind is Bind.GRID and i.name not in stage.names())


def elements(whole: TensorType) -> int:
    return prod(whole.sizes)


def nbytes(whole: TensorType) -> int:
    return elements(whole) * whole.dtype.bytes


def merged_use(stage: Stage) -> Use | None:
    """The access into which the stage aggregates, when it has exactly one."""
    found = [u for u in stage.uses if u.agg in MERGING and u.writes]
    return found[0] if len(found) == 1 else None


def is_elementwise(stage: Stage) -> bool:
    """Every iteration stands alone: no aggregation and no in-out access."""
    return all(u.agg not in MERGING and not (u.reads and u.writes) for u in stage.uses)


def op_cost(stage: Stage) -> int:
    """Arithmetic of one iteration in adds; a math function counts as twelve."""
    return facts(stage.body).cost


def is_heavy(view: KernelView, stage: Stage) -> bool:
    """A contraction whose operands are each reused across some output loop (matmul, convolution)."""
    return all(_reuses(view, stage, [u for u in stage.uses if u.reads and not u.writes]))


def is_product(view: KernelView, stage: Stage) -> bool:
    """A contraction, or a sum of products of a matrix and a vector: one operand alone is reused across some output loop."""
    reads = [u for u in stage.uses if u.reads and not u.writes]
    ops = [s.name for s in stage.body if isinstance(s, Op) and s.name != "cast"]
    reused = _reuses(view, stage, reads)
    return all(reused) or (ops == ["mul"] and len(reads) == 2 and any(reused))


def reuses_memory(view: KernelView, stage: Stage) -> bool:
    """A sum whose operands in memory, two at least, are each reused across some output loop, whatever else it reads."""
    reads = (u for u in stage.uses if u.reads and not u.writes)
    return all(_reuses(view, stage, [u for u in reads if not view.is_local(u.buffer)]))


def _reuses(view: KernelView, stage: Stage, reads: Sequence[Use]) -> list[bool]:
    """For each of two operands of a sum at least whether it is the same for all iterations of some output loop."""
    out = merged_use(stage)
    if out is None or len(reads) < 2:
        return [False]
    shared = {i.name for i in view.loops if i.bind is not Bind.GRID}
    names = names_in(out.forms) | shared
    # What is the kernel's own is another in every iteration of the shared loops.
    moved = (names_in(u.forms) | (shared if view.is_local(u.buffer) else set[str]()) for u in reads)
    return [bool(names - own) for own in moved]


def prepares(view: KernelView, stage: Stage, main: Stage) -> bool:
    """A stage makes nothing but what `main` reads, or what that is made of."""
    needed = {u.buffer for u in main.uses if u.reads and not u.writes}
    for other in reversed(view.stages[: view.stages.index(main)]):
        if any(u.writes and u.buffer in needed for u in other.uses):
            needed |= {u.buffer for u in other.uses if u.reads and not u.writes}
    return all(u.buffer in needed for u in stage.uses if u.writes)


def view_is_heavy(view: KernelView) -> bool:
    return any(is_heavy(view, s) for s in view.stages)


def view_is_product(view: KernelView) -> bool:
    return any(is_product(view, s) for s in view.stages)


def carries(stage: Stage) -> bool:
    """Steps in order hand a state on: a recurrence, whose state stays in registers while all loops around it are the kernel's own."""
    return any(i.order is Order.ORDERED for i in stage.loops) and any(
        u.reads and u.writes and not u.agg for u in stage.uses
    )


def exchanges(view: KernelView) -> bool:
    """Some stage puts cells of a row in each other's places, as sorting does: lanes take rows that lie side by side best."""
    return any(len({u.forms for u in s.uses if u.reads and u.writes and not u.agg}) > 1 for s in view.stages)


def view_carries(view: KernelView) -> bool:
    return any(carries(s) for s in view.stages)
