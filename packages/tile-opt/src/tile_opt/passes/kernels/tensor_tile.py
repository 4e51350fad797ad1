"""tensor_tile: schedules contractions on a GPU's matrix instructions (tensor cores), where the user allows reduced precision.

Which bodies an instruction computes is found by its own data (`kernel.instructions`); kernels that do not fit are left
to the passes that follow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod

from tile_ir.matrix import MATRIX_INSTRUCTIONS
from tile_ir.stripe.nodes import Bind, Block
from tile_ir.target import Target

from tile_opt.kernel.instructions import Match, allowed, match_of
from tile_opt.kernel.merging import merged
from tile_opt.kernel.view import KernelView
from tile_opt.passes.scheduling import SchedulingPass, refused
from tile_opt.plan.build import Built
from tile_opt.plan.builders.tensor_checks import problems
from tile_opt.plan.builders.tensor_plans import LEVELS, by_tensor_copies, factors
from tile_opt.plan.builders.tensor_shares import build_joined, is_joined, results_of
from tile_opt.plan.builders.tensor_tiles import build_tensor_tiles
from tile_opt.plan.panels import copied_before
from tile_opt.plan.plan import Across, Plan
from tile_opt.plan.space.tensor.plans import plans
from tile_opt.plan.steps.groups.banks import takes_copies
from tile_opt.plan.steps.groups.share_reduction import SharedReduction, even_share, share_reduction


@dataclass(frozen=True)
class TensorTile(SchedulingPass):
    """Matrix instructions for contractions whose operands a group can copy into local memory."""

    faster: bool = False
    """Only where that is predicted to be faster than `group_tile`, to which the other contractions are left."""

    def candidates(self, view: KernelView, target: Target) -> Iterator[Plan]:
        yield from plans(view, target, faster=self.faster)

    def accepts(self, plan: Plan) -> bool:
        return plan.instruction is not None

    def build(self, view: KernelView, plan: Plan, target: Target) -> Built:
        assert plan.instruction is not None
        view, plan, copies = copied_before(view, plan)
        return self._products(view, plan, target, {p.name for p in copies}).behind(copies, view)

    def _products(self, view: KernelView, plan: Plan, target: Target, copies: Collection[str]) -> Built:
        """The kernel of the products, and one that combines what groups share."""
        assert plan.instruction is not None
        instruction = MATRIX_INSTRUCTIONS.get(plan.instruction.name)
        match = instruction and match_of(view, instruction, dict(plan.instruction.loops))
        if not match:
            raise refused(f"{plan.instruction.name!r} does not compute what kernel {view.name!r} does with these loops")
        if not allowed(match, target):
            raise refused(
                f"{plan.instruction.name!r} takes zeros for what constraints leave out: reduced_precision=True allows them"
            )
        rounded = {*copies, *by_tensor_copies(plan), *(s.operand for s in plan.stagings if s.unit == "REG")}
        if takes_copies(match.instruction) and not factors(match) <= rounded:
            raise refused(
                f"{plan.instruction.name!r} takes factors that were rounded before: stage both in REG under the serial level,"
                " or in DRAM above all"
            )
        shared = {r.loop: r.ways for r in plan.reductions if r.across is Across.GROUPS}
        if not shared:
            return Built(_kernel(view, match, plan, target))
        deep = {n: plan.tile(n, LEVELS.index(Bind.NONE), view.ranges[n]) for n in shared}
        sizes = {n: even_share(view.ranges[n], ways, deep[n]) for n, ways in shared.items()}
        parts = share_reduction(view, match.main, sizes, results_of(match))
        inner = match_of(parts.partial, match.instruction, dict(match.loops))
        if not inner or not allowed(inner, target):
            raise refused(f"groups cannot share {' and '.join(shared)} of kernel {view.name!r}")
        own, collective = parts.plan(plan, map(parts.inner, plan.stagings)), _collective(target)
        if _is_joined(view, plan, parts, target):
            _check(parts.partial, inner, own)
            kernel, buffer = build_joined(inner, own, parts, collective=collective)
            return Built(kernel, buffers=(buffer,))
        kernel = _kernel(parts.partial, inner, own, target)
        return Built(kernel, after=(merged(parts.combine),), buffers=(parts.buffer,))


def _is_joined(view: KernelView, plan: Plan, parts: SharedReduction, target: Target) -> bool:
    sizes = {i.name: plan.tile(i.name, LEVELS.index(Bind.GRID), i.range) for i in view.loops}
    tiles = prod(-(-i.range // sizes[i.name]) for i in view.loops)
    return is_joined(prod(sizes.values()), tiles, parts.ways, target)


def _collective(target: Target) -> bool:
    return "MatrixLoad" in target.nodes


def _kernel(view: KernelView, match: Match, plan: Plan, target: Target) -> Block:
    _check(view, match, plan)
    return build_tensor_tiles(view, match, plan, collective=_collective(target))


def _check(view: KernelView, match: Match, plan: Plan) -> None:
    for problem in problems(view, match, plan):
        raise refused(f"the plan of kernel {view.name!r} cannot be built: {problem}")
