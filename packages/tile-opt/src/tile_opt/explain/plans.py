"""The plans of a compilation, read from its own record, with what the cost model says of the kernels they made."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from tile_ir.kernels import Kernel
from tile_ir.machine import Machine
from tile_ir.stripe.nodes import Bind, Block, Transfer
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import Target

from tile_opt.explain.contraction.flat import flatten
from tile_opt.explain.contraction.search import search
from tile_opt.explain.data import PlanCandidate, PlanReport, Prediction
from tile_opt.kernel.view import KernelView
from tile_opt.model.estimate import estimate
from tile_opt.passes.scheduling import Decision
from tile_opt.plan.steps.groups.together import parts_of_launch
from tile_opt.plan.text import brief, plan_lines

MOST = 12
"""Candidates that are built and estimated."""


def planned(
    kernel: Kernel, decision: Decision, target: Target, *, candidates: bool = False, measured: float | None = None
) -> PlanReport:
    """The plan that made `kernel`; `candidates` also builds and estimates what else the scheduler would consider."""
    plan = decision.plan
    return PlanReport(
        kind=plan.reason or "loops",
        lines=tuple(plan_lines(plan)),
        given=decision.given,
        prediction=predicted(kernel, target),
        measured=measured,
        candidates=_candidates(decision, target) if candidates else (),
        search=_search_lines(decision.view, target) if candidates and plan.bound(Bind.GROUP) else (),
    )


def unplanned(kernel: Block, measured: float | None = None, parts: Mapping[str, Decision] | None = None) -> PlanReport:
    """For kernels that passes without plans scheduled; `parts` are decisions about blocks inside."""
    inside = [line for name, decision in (parts or {}).items() for line in (f"{name}:", *plan_lines(decision.plan))]
    used = [b for b in blocks_in(kernel) if b.instr]
    lines = dict.fromkeys(f"{b.name} runs as {b.instr}" for b in used)
    transfers = sum(isinstance(s, Transfer) for b in blocks_in(kernel) for s in b.body)
    moved = (f"{transfers} transfers",) if transfers else ()
    kind = "plans of its blocks" if inside else "scheduled by passes" if lines or moved else "none"
    return PlanReport(kind, (*inside, *lines, *moved), measured=measured)


def tiled(kernel: Kernel, target: Target, measured: float | None = None) -> PlanReport:
    """For kernels whose parts run on tiles, in rounds or beside each other, each by a plan of its own."""
    grid = ", ".join(f"{i.name}: {i.range}" for i in kernel.stripe.indexes)
    alone = "groups side by side" if parts_of_launch(kernel.stripe) else "round after round"
    kind = f"tile after tile ({grid})" if grid else alone
    return PlanReport(kind, prediction=predicted(kernel, target), measured=measured)


def part_plan(decision: Decision) -> PlanReport:
    """The plan of one part of a kernel."""
    plan = decision.plan
    return PlanReport(plan.reason or "loops", tuple(plan_lines(plan)), given=decision.given)


def predicted(kernel: Kernel, target: Target) -> Prediction:
    """The cost model's view of a scheduled kernel."""
    found = estimate(kernel.stripe, target)
    share = kernel.flops / (found.seconds * peak(target.machine)) if kernel.flops and found.seconds else None
    return Prediction(found.seconds, found.causes, dict(found.traffic), share)


def peak(machine: Machine) -> float:
    """Operations on float32 that the machine does in a second: a fused multiply-add is two."""
    lanes = max(1, (machine.vector.native or machine.vector.bytes) // 4)
    items = machine.occupancy.subgroup if machine.occupancy is not None else 1
    return 2 * machine.ports.fma * lanes * items * machine.clock_ghz * 1e9 * machine.cores


def _candidates(decision: Decision, target: Target) -> tuple[PlanCandidate, ...]:
    """The plan that was chosen, and the next ones."""
    plans = (decision.plan, *islice(decision.others(target), MOST - 1))
    built = [(plan, decision.scheduler.build(decision.view, plan, target).kernel) for plan in plans]
    return tuple(PlanCandidate(brief(plan), estimate(kernel, target).seconds) for plan, kernel in built)


def _search_lines(view: KernelView, target: Target) -> tuple[str, ...]:
    """The search with this target's settings, for contractions."""
    flat = flatten(view)
    return () if flat is None else tuple(cost.text() for cost in search(flat, target.settings).evaluated)
