"""What a plan with a matrix instruction says: its levels, and where the factors of the products are."""

from __future__ import annotations

from tile_ir.frozen import replace
from tile_ir.matrix import PANEL_BYTES
from tile_ir.stripe.nodes import Bind, Index, Swizzle

from tile_opt.kernel.instructions import Match
from tile_opt.kernel.view import KernelView
from tile_opt.plan.plan import TF32, Plan, Staging
from tile_opt.plan.steps.groups.banks import panel_swizzle

LEVELS = (Bind.GRID, Bind.SUBGROUP, Bind.NONE, Bind.UNROLL)
"""Groups, their sub-groups, steps of the reduction, and single instructions."""


def staged_results(plan: Plan) -> dict[str, Staging]:
    """Buffers of results, and of what they are made of, that go through local memory."""
    return {s.operand: s for s in plan.stagings if s.unit == "LOCAL" and plan.levels[s.level].bind is Bind.SUBGROUP}


def in_tile(loop: str) -> str:
    """A loop inside the tile that one group, one sub-group or one step has of it."""
    return f"{loop}_i"


def in_registers(plan: Plan, bind: Bind) -> set[str]:
    """Operands that are in registers under a level: under the steps on their way into local memory, under the last one out of it."""
    return {s.operand for s in plan.stagings if s.unit == "REG" and s.level == LEVELS.index(bind)}


def by_tensor_copies(plan: Plan) -> set[str]:
    """Operands whose steps the device copies as boxes of a tensor, and rounds."""
    return {s.operand for s in plan.stagings if s.unit == "LOCAL" and s.dtype == TF32}


def swizzle_of(match: Match, plan: Plan, staging: Staging) -> Swizzle:
    """How a factor lies in local memory for a team: panels of which items read their own elements in a way of their own."""
    own = staging.operand in in_registers(plan, Bind.UNROLL) and staging.order[-1] != dict(match.loops)["k"]
    return panel_swizzle(match.instruction, own=own)


def pad_of(match: Match, plan: Plan, staging: Staging) -> int:
    """Elements behind a step's part of a row along the depth, which a team reads as a whole panel."""
    depth, line = dict(match.loops)["k"], PANEL_BYTES // match.instruction.a.dtype.bytes
    return max(0, line - plan.tile(depth, LEVELS.index(Bind.NONE), line)) if staging.order[-1:] == (depth,) else 0


def in_panels(match: Match, plan: Plan, staging: Staging) -> Staging:
    """A factor's copy as a team reads it."""
    return replace(staging, pad=pad_of(match, plan, staging), swizzle=swizzle_of(match, plan, staging))


def factors(match: Match) -> set[str]:
    """The buffers that the instruction's factors lie in."""
    return {use.buffer for use in match.factors}


def beside_rows(view: KernelView, match: Match, plan: Plan) -> list[str]:
    """Shared loops beside the rows and columns of which a group has several iterations."""
    sides = {loop for _, loop in match.loops}
    return [i.name for i in view.loops if i.name not in sides and plan.tile(i.name, 0, i.range) > 1]


def taps(match: Match, plan: Plan) -> tuple[Index, ...]:
    """Reduction loops beside the depth of which every step has all iterations."""
    covers = (plan.levels[LEVELS.index(Bind.NONE)].cover(i.name) for i in match.main.loops)
    each = zip(match.main.loops, covers, strict=True)
    depth = dict(match.loops)["k"]
    return tuple(i for i, cover in each if i.name != depth and cover is not None and cover.size > 1)
