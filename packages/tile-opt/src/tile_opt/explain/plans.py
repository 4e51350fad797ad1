"""The decision of the tiling pass, asked of the very pass that made it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from tile_ir.dtype import DType
from tile_ir.matrix import TF32_BITS
from tile_ir.stripe.nodes import Block, Transfer
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import HardwareSettings, PassConfig, Target

from tile_opt.blocks.tree import main_of
from tile_opt.compiler import Compiled
from tile_opt.explain.blog.flat import flatten
from tile_opt.explain.blog.search import search
from tile_opt.explain.data import PlanReport, TileCandidate
from tile_opt.kernel.view import KernelView, open_kernel
from tile_opt.model.candidate import Candidate
from tile_opt.model.tensor import TensorModel
from tile_opt.passes import Pass, create
from tile_opt.passes.kernels.tensor_tile import TensorTile
from tile_opt.passes.scheduling import SchedulingPass
from tile_opt.pipeline import optimize
from tile_opt.plan.plan import Plan
from tile_opt.plan.plans import TensorPlan
from tile_opt.plan.text import print_plans

NO_PLAN = PlanReport("none")


def tiling_passes(compiled: Compiled) -> tuple[list[Pass], list[PassConfig | Pass]]:
    """The passes that make scheduled kernels of flat ones, and those in front of the first; all where there are none."""
    entries = [*(compiled.passes or compiled.kernels.target.passes)]
    made = [create(entry) if isinstance(entry, PassConfig) else entry for entry in entries]
    numbers = [n for n, p in enumerate(made) if _tiles(p)]
    return [made[n] for n in numbers], entries[: numbers[0]] if numbers else entries


def _tiles(made: Pass) -> bool:
    return isinstance(made, (TensorTile, SchedulingPass))


def flat_kernels(compiled: Compiled, before: list[PassConfig | Pass]) -> dict[str, KernelView]:
    """Kernels by name as they are after the passes `before`."""
    program = optimize(compiled.stripe_initial, compiled.kernels.target, passes=before, verify=False)
    views = [open_kernel(b) for b in main_of(program).body if isinstance(b, Block)]
    return {v.name: v for v in views if v is not None}


def plan_of(view: KernelView, tilings: Sequence[Pass], target: Target, candidates: bool) -> PlanReport:
    """What the first of `tilings` that schedules `view` decides."""
    for tiling in tilings:
        match tiling:
            case TensorTile():
                plan = tiling.plan(view, target)
                if plan is not None:
                    return _tensor_plan(view, tiling.model(target), plan, candidates)
            case SchedulingPass():
                plan = next(tiling.candidates(view, target), None)
                if plan is not None:
                    return _planned(view, plan, target, candidates)
            case _:
                pass
    return NO_PLAN


def _tensor_plan(view: KernelView, model: TensorModel, plan: TensorPlan, candidates: bool) -> PlanReport:
    kind, lines = _described(plan)
    found = model.candidates(view, plan)
    chosen = {plan.roles.rows: plan.rows, plan.roles.columns: plan.columns}
    rate = max((c.rate for c in found if dict(c.tile) == chosen), default=None)
    return PlanReport(kind, lines, rate, _weighed(found) if candidates else ())


def unplanned(kernel: Block) -> PlanReport:
    """For kernels that the tiling pass did not meet: panels are copied by kernels that it adds."""
    if "pack" in kernel.tags:
        return PlanReport("panel copy")
    used = [b for b in blocks_in(kernel) if b.instr]
    lines = dict.fromkeys(f"{b.name} runs as {b.instr}" for b in used)
    transfers = sum(isinstance(s, Transfer) for b in blocks_in(kernel) for s in b.body)
    moved = (f"{transfers} transfers",) if transfers else ()
    return PlanReport("scheduled by passes", (*lines, *moved)) if lines or moved else NO_PLAN


def _planned(view: KernelView, plan: Plan, target: Target, candidates: bool) -> PlanReport:
    kind, lines = _described(plan)
    search = _blog_lines(view, target.settings) if candidates else ()
    return PlanReport(kind, lines, search=search)


def _blog_lines(view: KernelView, settings: HardwareSettings) -> tuple[str, ...]:
    """The blog's search with this target's settings, for contractions."""
    flat = flatten(view)
    return () if flat is None else tuple(cost.text() for cost in search(flat, settings).evaluated)


def _weighed(candidates: tuple[Candidate, ...]) -> tuple[TileCandidate, ...]:
    return tuple(TileCandidate(dict(c.tile), c.rate, c.verdict, c.note) for c in candidates)


@singledispatch
def _described(plan: object) -> tuple[str, tuple[str, ...]]:
    """Kind and lines of a GPU plan."""
    return "items", ("one work item per iteration of the shared loops",)


@_described.register
def _(plan: TensorPlan) -> tuple[str, tuple[str, ...]]:
    roles, shape = plan.roles, plan.shape
    m, n, k = roles.instruction.shape
    rounded = f", rounded to {TF32_BITS} mantissa bits" if roles.instruction.dtype is DType.FLOAT32 else ""
    return "matrix", (
        f"{roles.instruction.name} on {roles.instruction.dtype} operands{rounded}",
        f"{roles.rows}: {shape.down} warps x {shape.tall} instructions of {m} = tile of {plan.rows}",
        f"{roles.columns}: {shape.across} warps x {shape.wide} instructions of {n} = tile of {plan.columns}",
        f"{roles.reduction}: reduction in steps of {plan.step} ({plan.step // k} instructions) through local memory, "
        f"{plan.stages - 1} copied ahead",
    )


@_described.register
def _(plan: Plan) -> tuple[str, tuple[str, ...]]:
    text = print_plans({"": plan}).splitlines()
    return plan.reason or "items", tuple(line.strip() for line in text[1:-1])
