"""Gathering a report from a compilation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from math import prod

from tile_ir.diagnostics import Span
from tile_ir.dots import DOTS
from tile_ir.kernels import BufferKind, Kernel, KernelList, counted_steps
from tile_ir.program.nodes import Contraction
from tile_ir.stripe.affine import Affine
from tile_ir.stripe.nodes import Bind, Block, Direction, Index, Op, Reduce, Scope, Sync
from tile_ir.stripe.walk import blocks_in, spans_in
from tile_ir.target import HardwareSettings

from tile_opt.analysis import Sets, analyze
from tile_opt.blocks.tree import main_of
from tile_opt.compiled import Compiled
from tile_opt.explain.data import (
    ErrorReport,
    KernelReport,
    LoopReport,
    MemoryReport,
    PlanReport,
    ProgramReport,
    Roofline,
    ScheduleReport,
)
from tile_opt.explain.plans import part_plan, planned, tiled, unplanned
from tile_opt.explain.tables import flatten_table
from tile_opt.kernel.view import KernelView, open_kernel
from tile_opt.passes.scheduling import Decision
from tile_opt.plan.steps.groups.together import parts_of_launch
from tile_opt.rounding import error_bounds
from tile_opt.rounding.bound import Relation

ONCE = "once, when the program is prepared: it depends on constants alone"
LOOPED = "the program has a loop, whose rounds pass on what the rounds before them rounded"
BOUND = "again only when a bound tensor was written to"
Implied = Mapping[tuple[Span | None, tuple[Affine, ...]], tuple[Affine, ...]]


def report(
    compiled: Compiled, *, candidates: bool = False, measured: Mapping[str, float] | None = None
) -> ProgramReport:
    """Everything known about a compilation, from its own record: nothing is compiled again.

    `candidates` also estimates the plans that the schedulers would consider next. `measured` has seconds by kernel, all
    launches of a run together.
    """
    kernels = compiled.kernels
    spans = [s for k in kernels.kernels for s in origins(k.stripe)]
    return ProgramReport(
        name=compiled.program.name,
        target=kernels.target.name,
        kernels=tuple(_kernels(compiled, candidates, measured or {})),
        steps=len(kernels.steps),
        memory=_memory(kernels),
        seconds=dict(compiled.timings),
        sources={s.source.name: s.source.text for s in spans},
        choices=tuple(compiled.choices),
        errors=errors(compiled),
    )


def _kernels(compiled: Compiled, candidates: bool, measured: Mapping[str, float]) -> Iterator[KernelReport]:
    kernels = compiled.kernels
    launches: Counter[int] = Counter()
    for step, times in counted_steps(kernels.steps):
        launches[step.kernel] += times
    implied = _implied(compiled)
    seldom = {s.kernel: ONCE if s.once else BOUND for s in kernels.steps if s.once or s.bound}
    for number, kernel in enumerate(kernels.kernels):
        often = launches[number]
        seconds = measured.get(kernel.stripe.name)
        each = None if seconds is None or not often else seconds / often
        together = {part.name for part in parts_of_launch(kernel.stripe)}
        parts = {
            name: d
            for name, d in compiled.decisions.items()
            if d.within == kernel.stripe.name or d.scheduled in together
        }
        plan, flat = _plan(compiled, kernel, parts.values(), each, candidates)
        made = _kernel(kernel, often, flat, plan, kernels.target.settings, implied)
        within = tuple((name, part_plan(d)) for name, d in parts.items())
        yield replace(made, seldom=seldom.get(number, ""), parts=within)


def errors(compiled: Compiled) -> tuple[ErrorReport, ...]:
    """Bounds on the rounding error of each output, from the schedule's tree of partial sums."""
    if compiled.parts:
        return tuple(ErrorReport(public, Relation.NONE.value, None, LOOPED) for public, _ in compiled.program.outputs)
    found = error_bounds(compiled.stripe, compiled.kernels.target)
    names = zip(compiled.program.outputs, compiled.stripe.outputs, strict=True)
    bounds = [(public, found[name]) for (public, _), name in names]
    return tuple(ErrorReport.of(public, b) for public, b in bounds)


def _plan(
    compiled: Compiled, kernel: Kernel, parts: Collection[Decision], measured: float | None, candidates: bool
) -> tuple[PlanReport, list[KernelView]]:
    """The report of a kernel's plan, and what the kernel was made of."""
    kernels = compiled.kernels
    decision = compiled.decisions.get(kernel.stripe.name)
    if decision is not None and not parts_of_launch(kernel.stripe):
        plan = planned(kernel, decision, kernels.target, candidates=candidates, measured=measured)
        return plan, [decision.view]
    if parts:
        return tiled(kernel, kernels.target, measured), [d.view for d in parts]
    others = compiled.decisions if len(kernels.kernels) == 1 else None
    return unplanned(kernel.stripe, measured, others), _flat(compiled, kernel)


def _flat(compiled: Compiled, kernel: Kernel) -> list[KernelView]:
    """What a kernel without a plan was made of: itself, or all of a program that became one kernel."""
    view = open_kernel(kernel.stripe)
    if view is not None:
        return [view]
    if len(compiled.kernels.kernels) > 1:
        return []
    blocks = [b for b in main_of(compiled.stripe_initial).body if isinstance(b, Block)]
    return [view for b in blocks if (view := open_kernel(b)) is not None]


def _implied(compiled: Compiled) -> Implied:
    """What the analysis leaves out of a stage's constraints, by source and the constraints that it keeps."""
    sets = Sets()
    programs = [part.program for part in compiled.parts] or [compiled.program]
    ops = [op for program in programs for op in program.ops]
    domains = [(op.origin, analyze(op, sets)) for op in ops if isinstance(op, Contraction)]
    return {(origin, domain.constraints): domain.implied for origin, domain in domains if domain.implied}


def _kernel(
    kernel: Kernel,
    launches: int,
    flat: list[KernelView],
    plan: PlanReport,
    settings: HardwareSettings,
    implied: Implied,
) -> KernelReport:
    """`flat` are the kernels in normal form from which this one was scheduled."""
    size = kernel.function.group_size if kernel.function is not None else (1, 1, 1)
    return KernelReport(
        name=kernel.name,
        statements=tuple((kernel.stripe.comment or "\n".join(v.comment for v in flat)).splitlines()),
        lines=tuple((s.source.name, s.line) for s in origins(kernel.stripe)),
        groups=kernel.groups,
        group_size=size,
        launches=launches,
        operations=kernel.flops,
        bytes=kernel.bytes,
        tables=tuple(
            flatten_table(view, stage, implied.get((stage.origin or view.origin, stage.constraints), ()))
            for view in flat
            for stage in view.stages
        ),
        plan=plan,
        schedule=schedule_of(kernel.stripe),
        roofline=_roofline(kernel, settings),
        labels=kernel.labels,
        instructions=_instructions(kernel),
    )


def _instructions(kernel: Kernel) -> tuple[str, ...]:
    """Dot products that the kernel's blocks are made of."""
    used = {s.name for b in blocks_in(kernel.stripe) for s in b.body if isinstance(s, Op)}
    found = (dot for dot in DOTS.values() if dot.name in used)
    return tuple(f"{d.name}, {d.depth} products of {d.a} and {d.b} in each lane" for d in found)


def _roofline(kernel: Kernel, settings: HardwareSettings) -> Roofline | None:
    if not (kernel.flops and kernel.bytes):
        return None
    intensity, knee = kernel.flops / kernel.bytes, float(settings.goal_flops_per_byte)
    return Roofline(intensity, knee, min(1.0, intensity / knee))


def _memory(kernels: KernelList) -> MemoryReport:
    total: Counter[BufferKind] = Counter()
    for buffer in kernels.buffers:
        total[buffer.kind] += buffer.bytes
    return MemoryReport(
        total[BufferKind.INPUT],
        total[BufferKind.OUTPUT],
        total[BufferKind.CONST],
        sum(kernels.arenas),
        total[BufferKind.TEMP],
    )


def schedule_of(kernel: Block) -> ScheduleReport:
    """The schedule that the kernel block holds."""
    blocks = list(blocks_in(kernel))
    loops = [i for b in blocks for i in b.indexes if i.value is None]
    allocs = [(b, r) for b in blocks for r in b.refs if r.dir is Direction.ALLOC]
    private: dict[str, int] = {}
    for block, ref in allocs:
        if ref.loc.scope is Scope.THREAD:
            private[block.name] = private.get(block.name, 0) + ref.type.nbytes
    return ScheduleReport(
        grid=tuple(loop for b in parts_of_launch(kernel) or (kernel,) for loop in _grid(b)),
        items=_distinct(loops, Bind.GROUP),
        lanes=max((i.lanes for i in loops if i.bind is Bind.VECTOR), default=1),
        unrolled=_distinct(loops, Bind.UNROLL),
        local_bytes=sum(r.type.nbytes * r.versions for _, r in allocs if r.loc.scope is Scope.GROUP),
        private_bytes=max(private.values(), default=0),
        barriers=sum(isinstance(s, Sync) for b in blocks for s in b.body),
        reductions=tuple(
            f"{s.agg.value} of {s.src.removeprefix('$')} over {', '.join(s.over)}"
            for b in blocks for s in b.body if isinstance(s, Reduce)
        ),
    )  # fmt: skip


def _distinct(loops: list[Index], bind: Bind) -> tuple[LoopReport, ...]:
    found = {(i.name, i.range): LoopReport(i.name, i.range, i.axis) for i in loops if i.bind is bind}
    return tuple(found.values())


def _grid(block: Block) -> tuple[LoopReport, ...]:
    """Several loops on one axis are packed, the last listed fastest."""
    indexes = [i for i in block.indexes if i.bind is Bind.GRID and i.value is None]
    found: list[LoopReport] = []
    for index in indexes:
        mine = [i for i in indexes if i.axis == index.axis]
        inner = prod(i.range for i in mine[mine.index(index) + 1 :])
        form = f"group{index.axis}" + (f" / {inner}" if inner > 1 else "")
        outermost = all(i.range == 1 for i in mine[: mine.index(index)])
        found.append(LoopReport(index.name, index.range, index.axis, form if outermost else f"{form} % {index.range}"))
    return tuple(found)


def origins(kernel: Block) -> tuple[Span, ...]:
    """Where in the sources the kernel's statements come from, each place once."""
    found: dict[tuple[str, int], Span] = {}
    for origin in spans_in(kernel):
        if origin.is_place:
            found.setdefault((origin.source.name, origin.line), origin)
    return tuple(found[key] for key in sorted(found))
