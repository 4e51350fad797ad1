"""The best of a handful of plans, by the estimate of what each builds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tile_ir.stripe.nodes import Block
from tile_ir.target import Target

from tile_opt.model.estimate import Estimate, estimate
from tile_opt.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Choice:
    """A plan, the scheduled block that it builds, and what that block is estimated to take."""

    plan: Plan
    block: Block
    estimate: Estimate


def ranked(target: Target, candidates: Iterable[tuple[Plan, Block]]) -> list[Choice]:
    """All candidates with their estimates, the fastest first; the earlier one first where two are equal."""
    choices = [Choice(plan, block, estimate(block, target)) for plan, block in candidates]
    return sorted(choices, key=lambda choice: choice.estimate.seconds)


def choose(target: Target, candidates: Iterable[tuple[Plan, Block]]) -> Choice | None:
    """The candidate with the shortest estimated time; None where there is none."""
    return next(iter(ranked(target, candidates)), None)
