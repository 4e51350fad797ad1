"""Small kernels that put partial results together, as the last thing that the groups do which made these.

A kernel costs microseconds to begin, however little it does. Whichever group of the one before it arrives last may do its
work instead, where one group is enough for it and the device can count groups (the node `LastGroup`).
"""

from __future__ import annotations

from collections.abc import Mapping

from tile_ir.diagnostics import TileError
from tile_ir.frozen import replace
from tile_ir.stripe.nodes import Block, Statement
from tile_ir.stripe.walk import buffers_named, buffers_read, buffers_written
from tile_ir.target import Target

from tile_opt.blocks.buffers import fixed_kernels, in_the_way
from tile_opt.blocks.tree import main_of, with_kernels
from tile_opt.kernel.work import nbytes
from tile_opt.model.estimate import estimate
from tile_opt.passes.scheduling import Decision, Scheduled, SchedulingPass
from tile_opt.plan.plan import Plan
from tile_opt.plan.space import gpu_rows
from tile_opt.plan.steps.last_group import group_size, groups, last_group

NODE = "LastGroup"
MOST_BYTES = 1 << 17
"""Of all that the last group reads and writes."""


def join_last(found: Scheduled, scheduler: SchedulingPass, target: Target, given: Mapping[str, Plan]) -> Scheduled:
    """The scheduled program with every kernel that the last group of another had better do."""
    if NODE not in target.nodes:
        return found
    run = _Join(found, scheduler, target, given)
    for number in range(len(run.kernels)):
        run.join(number)
    kept = tuple(k for k in run.kernels if k is not None)
    if len(kept) == len(run.kernels):
        return found
    return replace(found, program=with_kernels(found.program, kept), decisions=run.decisions)


class _Join:
    def __init__(self, found: Scheduled, scheduler: SchedulingPass, target: Target, given: Mapping[str, Plan]) -> None:
        self.scheduler, self.target, self.given = scheduler, target, given
        self.kernels: list[Statement | None] = list(main_of(found.program).body)
        """None where one has become part of another."""
        self.decisions = dict(found.decisions)
        self.fixed = fixed_kernels(found.program)

    def join(self, number: int) -> None:
        """Kernel `number` with the one that makes what it reads."""
        then = self.kernels[number]
        decision = self.decisions.get(then.name) if isinstance(then, Block) else None
        if not isinstance(then, Block) or decision is None or decision.within or not self._is_small(then):
            return
        first = self._maker(number, then)
        if first is None or then.name in self.given:
            return
        maker = self.kernels[first]
        assert isinstance(maker, Block)
        made = self._made(maker, then, decision)
        if made is not None:
            block, plan = made
            self.kernels[first], self.kernels[number] = None, block
            self.decisions[then.name] = replace(decision, plan=plan, within=maker.name)

    def _is_small(self, then: Block) -> bool:
        return sum(nbytes(r.type) for r in then.refs if r.source) <= MOST_BYTES

    def _maker(self, number: int, then: Block) -> int | None:
        """The last kernel before it that writes what it reads, where that may run as late."""
        wanted = {*buffers_read(then)}
        for first in reversed(range(number)):
            kernel = self.kernels[first]
            if not isinstance(kernel, Block) or not wanted & {*buffers_written(kernel)}:
                continue
            reads, writes = frozenset(buffers_named(kernel)), frozenset(buffers_written(kernel))
            late = not in_the_way(self.kernels[first + 1 : number], reads, writes)
            return first if late and kernel.indexes and (first in self.fixed) == (number in self.fixed) else None
        return None

    def _made(self, maker: Block, then: Block, decision: Decision) -> tuple[Block, Plan] | None:
        """Both as one kernel, where that takes less time."""
        size = group_size(maker)
        if groups(maker) < 2 or size[1:] != (1, 1):
            return None
        plan = gpu_rows.plan_of_group(decision.view, self.target, size[0])
        try:
            built = None if plan is None else self.scheduler.build(decision.view, plan, self.target)
        except TileError:
            return None
        if (
            plan is None
            or built is None
            or not built.alone
            or groups(built.kernel) > 1
            or group_size(built.kernel) != size
        ):
            return None
        block = last_group(maker, built.kernel)
        apart = estimate(maker, self.target).seconds + estimate(then, self.target).seconds
        return (block, plan) if estimate(block, self.target).seconds < apart else None
