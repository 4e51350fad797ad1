"""The checks of a plan, one function each: yields a finding per mistake.

`CHECKS` read the plan, its kernel and the target; `BUILT` read what building made. A plan that passes them all is
built into a kernel with the same results, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from math import prod

from tile_ir.diagnostics import Severity
from tile_ir.dots import DOTS
from tile_ir.dtype import DType, promote
from tile_ir.frozen import frozen
from tile_ir.matrix import MATRIX_INSTRUCTIONS
from tile_ir.matrix.x86 import PRODUCTS, TILE, TILED_INSTRUCTIONS
from tile_ir.ops import Aggregation
from tile_ir.stripe.affine import names_in
from tile_ir.stripe.nodes import ITEMS, STATIC, Bind, Block, Direction, Order, Scope
from tile_ir.stripe.walk import blocks_in
from tile_ir.target import Target

from tile_opt.kernel.view import KernelView, Stage
from tile_opt.kernel.work import MERGING
from tile_opt.plan.builders.local import team_local_bytes
from tile_opt.plan.names import operands
from tile_opt.plan.plan import TF32, Across, Edge, Level, Plan
from tile_opt.plan.steps.groups.last_group import waits_for_all

MOST_UNROLLED = 4096
"""Copies of a body in straight-line code."""
WIDEST = 16
"""Elements of a vector that every target takes."""
ACROSS: dict[Bind, tuple[Across, ...]] = {
    Bind.GRID: (Across.GROUPS, Across.SCAN),
    Bind.CORE: (Across.GROUPS, Across.SCAN),
    Bind.GROUP: (Across.ITEMS, Across.GROUPS, Across.SCAN),
    Bind.SUBGROUP: (Across.ITEMS, Across.GROUPS, Across.SCAN),
    Bind.LANE: (Across.ITEMS, Across.GROUPS, Across.SCAN),
    Bind.VECTOR: (Across.LANES, Across.ITEMS, Across.GROUPS, Across.SCAN),
}
"""What a reduction has to be split across where a level runs its iterations at once: that, or what is around it."""
UNITS = ("REG", "LOCAL", "DRAM")


@frozen
class Finding:
    """A mistake in a line of a plan; `word` is the part of the line that is wrong, or ""."""

    code: str
    message: str
    kind: str = "plan"
    number: int = 0
    word: str = ""
    hint: str | None = None
    severity: Severity = Severity.ERROR


Check = Callable[[KernelView, Plan, Target], Iterator[Finding]]
BuiltCheck = Callable[[Block, Plan, Target], Iterator[Finding]]


def did_you_mean(name: str, known: Iterable[str], what: str = "known") -> str:
    """A hint: the closest of the known names, or all of them."""
    names = list(known)
    close = get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"{what}: {', '.join(names) or 'none'}"


# --- names -----------------------------------------------------------------------------------------


def loops_are_known(view: KernelView, plan: Plan, target: Target) -> Iterator[Finding]:
    """Every loop that a line names is one of the kernel's."""
    for kind, number, loop in _named_loops(plan):
        if loop not in view.ranges:
            message = f"the kernel {view.name!r} has no loop {loop!r}"
            yield Finding("TILE-E631", message, kind, number, loop, did_you_mean(loop, view.ranges, "its loops"))


def _named_loops(plan: Plan) -> Iterator[tuple[str, int, str]]:
    yield from (("level", n, c.loop) for n, level in enumerate(plan.levels) for c in level.covers)
    yield from (("stage", n, loop) for n, staging in enumerate(plan.stagings) for loop in staging.order)
    yield from (("reduce", n, reduction.loop) for n, reduction in enumerate(plan.reductions))
    yield from (("edge", n, loop) for n, (loop, _) in enumerate(plan.edges))
    yield from (("instruction", 0, loop) for _, loop in (plan.instruction.loops if plan.instruction else ()))


def operands_are_known(view: KernelView, plan: Plan, target: Target) -> Iterator[Finding]:
    """What is staged is a buffer that some stage of the kernel uses."""
    known = operands(view)
    for number, staging in enumerate(plan.stagings):
        if staging.operand not in known:
            message = f"the kernel {view.name!r} has no operand {staging.operand!r}"
            hint = did_you_mean(staging.operand, known, "its operands")
            yield Finding("TILE-E632", message, "stage", number, staging.operand, hint)


def units_are_known(view: KernelView, plan: Plan, target: Target) -> Iterator[Finding]:
    """What is staged goes to a memory that the target has."""
    units = [*UNITS[:1], *(["LOCAL"] if target.machine.local is not None else []), *UNITS[2:]]
    units += [TILE] if any(name in TILED_INSTRUCTIONS for name in target.matrix) else []
    units += [f"L{cache.level}" for cache in target.machine.caches] + list(target.model.get("mem_units", ()))
    for number, staging in enumerate(plan.stagings):
        if staging.unit not in units:
            message = f"{target.name} has no memory {staging.unit!r} to stage in"
            hint = did_you_mean(staging.unit, units, "its memories")
            yield Finding("TILE-E633", message, "stage", number, staging.unit, hint)


def instructions_are_known(view: KernelView, plan: Plan, target: Target) -> Iterator[Finding]:
    """The instruction is one of the target's, and may be used."""
    if plan.instruction is None:
        return
    name, known = plan.instruction.name, target.matrix
    if name not in known:
        message = f"{target.name} has no instruction {name!r}"
        yield Finding("TILE-E634", message, "instruction", 0, name, did_you_mean(name, known, "its instructions"))
    elif _rounds(name) and not target.options.rounds(_factor(name)):
        message = f"{name!r} rounds otherwise than the program says"
        yield Finding("TILE-E634", message, "instruction", 0, name, "allow it by reduced_precision=True")


def _rounds(name: str) -> bool:
    """Sums of integers are exact in any order."""
    return not (TILED_INSTRUCTIONS.get(name) or MATRIX_INSTRUCTIONS[name]).is_exact


def _factor(name: str) -> DType:
    """Of what an instruction adds up products; instructions on tiles take them in words."""
    return DOTS[PRODUCTS[name]].a if name in PRODUCTS else MATRIX_INSTRUCTIONS[name].a.dtype


# --- numbers ---------------------------------------------------------------------------------------


def counts_are_sensible(view: KernelView, plan: Plan, target: Target) -> Iterator[Finding]:
    """Sizes and counts are positive."""
    for n, level in enumerate(plan.levels):
        for c in level.covers:
            if c.size < 1:
                yield Finding(
                    "TILE-E635", f"a point covers at least 1 iteration of {c.loop!r}", "level", n, f":{c.size}"
                )
            elif c.stride < 0 or (c.stride and c.size % c.stride):
                message = f"pieces of {c.stride} do not make up {c.size} iterations of {c.loop!r}"
                yield Finding("TILE-E635", message, "level", n, f"/{c.stride}")
        if level.lanes < 1:
            yield Finding("TILE-E635", "a vector has at least 1 lane", "level", n, f"x{level.lanes}")
    for n, staging in enumerate(plan.stagings):
        if staging.versions < 1:
            yield Finding("TILE-E635", "a staging has at least 1 version", "stage", n, str(staging.versions))
        if staging.pad < 0:
            yield Finding("TILE-E635", "rows are padded by 0 elements or more", "stage", n, str(staging.pad))
    for n, reduction in enumerate(plan.reductions):
        if not 1 <= reduction.ways <= MOST_UNROLLED:
            message = f"a reduction has 1 to {MOST_UNROLLED} partial results side by side"
            yield Finding("TILE-E635", message, "reduce", n, f"x{reduction.ways}")


def lines_are_unique(view: KernelView, plan: Plan, target: Target) -> Iterator[Finding]:
    """No line says two things of one loop, and no two lines do."""
    for n, level in enumerate(plan.levels):
        for k, cover in enumerate(level.covers):
            if cover.loop in [c.loop for c in level.covers[:k]]:
                yield Finding("TILE-E636", f"the level covers {cover.loop!r} twice", "level", n, cover.loop)
    for kind, loops in (("reduce", [r.loop for r in plan.reductions]), ("edge", [loop for loop, _ in plan.edges])):
        for n, loop in enumerate(loops):
            if loop in loops[:n]:
                yield Finding("TILE-E636", f"a line above says {kind!r} of {loop!r} already", kind, n, loop)


def levels_nest(view: KernelView, plan: Plan, target: Target) -> Iterator[Finding]:
    """A point covers no more than a point of the level outside it; grid levels are outermost; stagings have a level."""
    for n, level in enumerate(plan.levels):
        for c in level.covers:
            outer = plan.tile(c.loop, n - 1, max(c.size, view.ranges.get(c.loop, c.size)))
            if c.size > outer:
                message = f"a point covers {c.size} iterations of {c.loop!r}, one of the level outside it only {outer}"
                yield Finding("TILE-E637", message, "level", n, f"{c.loop}:{c.size}")
        if level.bind is Bind.GRID and any(other.bind is not Bind.GRID for other in plan.levels[:n]):
            yield Finding("TILE-E638", "grid levels stand outside all others", "level", n, "grid")
    for n, staging in enumerate(plan.stagings):
        if not -1 <= staging.level < len(plan.levels):
            message = f"there is no level {staging.level}: the plan has {len(plan.levels)}, from 0"
            yield Finding("TILE-E639", message, "stage", n, f"at {staging.level}")


def vectors_are_known(view: KernelView, plan: Plan, target: Target) -> Iterator[Finding]:
    """Widths are powers of two that the target has, and divide the points of their level."""
    widest = max(WIDEST, target.machine.vector.bytes)
    for n, level in enumerate(plan.levels):
        word = f"x{level.lanes}"
        if level.lanes <= 1:
            continue
        if level.bind is not Bind.VECTOR:
            yield Finding("TILE-E640", "only a vector level has lanes", "level", n, word)
        elif level.lanes & (level.lanes - 1) or level.lanes > widest:
            message = f"{target.name} has no vectors of {level.lanes} elements"
            yield Finding("TILE-E640", message, "level", n, word, f"powers of two up to {widest}")
        for c in level.covers:
            extent = view.ranges.get(c.loop, 1)
            around = plan.tile(c.loop, max((k for k in range(n) if _tiles(plan.levels[k])), default=-1), extent)
            if around < extent and around % level.lanes:
                message = f"tiles of {around} iterations of {c.loop!r} are no whole vectors of {level.lanes}"
                yield Finding("TILE-E640", message, "level", n, word, f"let the level around cover {level.lanes}")


def _tiles(level: Level) -> bool:
    """Its points are tiles that registers work on, or groups of such."""
    return level.bind not in STATIC


# --- what the target allows ------------------------------------------------------------------------


def items_fit(view: KernelView, plan: Plan, target: Target) -> Iterator[Finding]:
    """A group has no more items than the target allows."""
    numbers = [n for n, level in enumerate(plan.levels) if level.bind in ITEMS]
    # Sub-groups whose lanes no level names run whole instructions.
    lanes = target.machine.subgroup if plan.bound(Bind.SUBGROUP) and not plan.bound(Bind.LANE) else 1
    items = max((lanes * prod(_points(view, plan, n, stage) for n in numbers) for stage in view.stages), default=1)
    occupancy = target.machine.occupancy
    most = max(target.settings.threads, occupancy.group_items if occupancy else 0)
    if items > most:
        message = f"a group of {items} items is more than the {most} that {target.name} runs"
        yield Finding("TILE-E641", message, "level", numbers[-1])


def code_is_bounded(view: KernelView, plan: Plan, target: Target) -> Iterator[Finding]:
    """Straight-line code stays within reason."""
    numbers = [n for n, level in enumerate(plan.levels) if level.bind in STATIC]
    copies = max((prod(_copies(view, plan, n, stage) for n in numbers) for stage in view.stages), default=1)
    if copies > MOST_UNROLLED:
        message = f"{copies} copies of the body in straight-line code are more than {MOST_UNROLLED}"
        yield Finding("TILE-E642", message, "level", numbers[-1], "", "let a serial level outside it cover less")


def _copies(view: KernelView, plan: Plan, level: int, stage: Stage) -> int:
    return -(-_points(view, plan, level, stage) // max(1, plan.levels[level].lanes))


def _points(view: KernelView, plan: Plan, level: int, stage: Stage) -> int:
    """Points of a level as far as a stage has its loops."""
    extents = {loop.name: loop.range for loop in (*view.loops, *stage.loops)}
    covers = [c for c in plan.levels[level].covers if c.loop in extents]
    return prod(-(-plan.tile(c.loop, level - 1, extents[c.loop]) // max(1, c.size)) for c in covers)


# --- results ---------------------------------------------------------------------------------------


def reductions_can_be_split(view: KernelView, plan: Plan, target: Target) -> Iterator[Finding]:
    """Only reductions are split, and only aggregations whose partial results can be combined."""
    merged = _merges(view)
    for n, reduction in enumerate(plan.reductions):
        if reduction.loop not in view.ranges or reduction.across is Across.SCAN:
            continue
        aggregations = merged.get(reduction.loop, set())
        if not aggregations:
            message = f"{reduction.loop!r} is no reduction: each of its iterations has results of its own"
            yield Finding("TILE-E643", message, "reduce", n, reduction.loop)
        elif reduction.across is not Across.SERIAL and not aggregations <= set(MERGING):
            message = f"results of {reduction.loop!r} replace one another: there are no partial results to combine"
            yield Finding("TILE-E643", message, "reduce", n, reduction.across.value)


def parallel_levels_are_safe(view: KernelView, plan: Plan, target: Target) -> Iterator[Finding]:
    """What runs at once neither depends on its order nor adds to one cell, unless the reduction is split."""
    merged = _merges(view)
    split = {r.loop: r.across for r in plan.reductions}
    ordered = {i.name for i in (*view.loops, *(i for s in view.stages for i in s.loops)) if i.order is Order.ORDERED}
    for n, level in enumerate(plan.levels):
        needed = ACROSS.get(level.bind, ())
        for c in level.covers if needed and not level.ordered else ():
            # Registers take what the last level of another kind leaves: of several that speak of them, the last one decides.
            outer = max((k for k in range(n) if _tiles(plan.levels[k])), default=-1)
            around = outer if level.bind is Bind.VECTOR else n - 1
            alone = 1 if level.bind is Bind.VECTOR else c.size
            left = plan.tile(c.loop, around, view.ranges.get(c.loop, 1))
            if left <= alone and not (level.bind is Bind.VECTOR and c.loop in ordered):
                continue
            if c.loop in ordered and split.get(c.loop) is Across.SCAN and level.bind is Bind.GROUP:
                continue
            if c.loop in ordered:
                message = f"the iterations of {c.loop!r} have an order and cannot run at once"
                yield Finding("TILE-E644", message, "level", n, c.loop)
            elif c.loop in merged and split.get(c.loop) not in needed:
                message = f"iterations of {c.loop!r} that run at once write the same cells"
                hint = f"reduce {c.loop} across {needed[0].value}"
                yield Finding("TILE-E644", message, "level", n, c.loop, f"say how partial results combine: {hint}")


def overlaps_are_harmless(view: KernelView, plan: Plan, target: Target) -> Iterator[Finding]:
    """Cells are computed twice only where that gives the same values, and by the same group."""
    merged = _merges(view)
    covers = [c for bind in (Bind.GRID, *ITEMS) for level in plan.bound(bind) for c in level.covers]
    apart = {c.loop for c in covers if c.size < view.ranges.get(c.loop, 1)}
    once = {Aggregation.SUM, Aggregation.PROD, None}
    in_place = view.overwritten()
    for n, (loop, edge) in enumerate(plan.edges):
        if edge is Edge.OVERLAP and (merged.get(loop, set()) & once or in_place):
            reason = f"{sorted(in_place)[0]!r} is read and written" if in_place else f"{loop!r} is a reduction"
            message = f"tiles of {loop!r} cannot overlap: {reason}, and iterations would count twice"
            yield Finding("TILE-E645", message, "edge", n, Edge.OVERLAP.value, f"edge {loop} peel, or mask")
        elif edge is Edge.OVERLAP and loop in apart:
            message = f"tiles of {loop!r} cannot overlap: two that run at once would write the same cells"
            yield Finding("TILE-E645", message, "edge", n, Edge.OVERLAP.value, f"edge {loop} peel, or mask")
        elif edge is Edge.OVERLAP and _is_cut_within(view, plan, loop) and once & set().union(*merged.values()):
            message = f"tiles of {loop!r} cannot overlap within a reduction: what it adds would count twice"
            yield Finding("TILE-E645", message, "edge", n, Edge.OVERLAP.value, f"edge {loop} peel, or mask")


def _is_cut_within(view: KernelView, plan: Plan, loop: str) -> bool:
    """A loop is cut into tiles by each stage for itself, so that what they add up is not there for each tile anew."""
    shared = {i.name for i in view.loops}
    tiled = [n for n, level in enumerate(plan.levels) if _tiles(level)]
    own = next((n for n in tiled if any(c.loop not in shared for c in plan.levels[n].covers)), len(plan.levels))
    return any(plan.levels[n].cover(loop) for n in tiled if n >= own)


def conversions_are_exact(view: KernelView, plan: Plan, target: Target) -> Iterator[Finding]:
    """A staged copy has a dtype that holds every value of its operand."""
    types = {r.into: r.type.dtype for r in (*view.refs, *view.allocs)}
    for n, staging in enumerate(plan.stagings):
        if staging.dtype in ("", TF32):
            continue
        found = next((d for d in DType if d.value == staging.dtype), None)
        own = types.get(staging.operand)
        if found is None:
            hint = did_you_mean(staging.dtype, [d.value for d in DType], "element types")
            yield Finding("TILE-E646", f"no element type is called {staging.dtype!r}", "stage", n, staging.dtype, hint)
        elif own is not None and promote(own, found) is not found and not target.options.reduced_precision:
            message = f"{staging.dtype} does not hold every {own} of {staging.operand!r}"
            yield Finding("TILE-E646", message, "stage", n, staging.dtype, "allow it by reduced_precision=True")


def _merges(view: KernelView) -> dict[str, set[Aggregation | None]]:
    """Loops of which several iterations write one cell, and how those writes merge; None where the last one stays."""
    found: dict[str, set[Aggregation | None]] = {}
    for stage in view.stages:
        for use in stage.uses:
            # What a kernel allocates is there anew in each iteration of the shared loops.
            loops = stage.loops if view.is_local(use.buffer) else (*view.loops, *stage.loops)
            missing = {i.name for i in loops if i.range > 1} - names_in(use.forms)
            for loop in missing if use.writes and not use.extent else ():
                found.setdefault(loop, set()).add(use.agg)
    return found


CHECKS: tuple[Check, ...] = (
    loops_are_known, operands_are_known, units_are_known, instructions_are_known, counts_are_sensible, lines_are_unique,
    levels_nest, vectors_are_known, items_fit, code_is_bounded, reductions_can_be_split, parallel_levels_are_safe,
    overlaps_are_harmless, conversions_are_exact,
)  # fmt: skip


# --- what was built --------------------------------------------------------------------------------


def local_memory_fits(kernel: Block, plan: Plan, target: Target) -> Iterator[Finding]:
    """The copies that a group shares fit its local memory."""
    used = sum(_bytes(kernel, Scope.GROUP))
    most = max(target.settings.max_mem, target.settings.static_local_bytes, team_local_bytes(target))
    if used > most:
        number = next((n for n, staging in enumerate(plan.stagings) if staging.unit == "LOCAL"), None)
        message = f"a group's copies take {used} bytes of local memory, {target.name} has {most}"
        yield Finding("TILE-E647", message, "plan" if number is None else "stage", number or 0)


def groups_run_whole_kernels(kernel: Block, plan: Plan, target: Target) -> Iterator[Finding]:
    """Loops on the grid are around all that the kernel does, but for what a last group does alone."""
    joined = waits_for_all(kernel)
    whole = (kernel,) if joined is None else (kernel, joined[0])
    for block in [b for b in blocks_in(kernel) if not any(b is w for w in whole)]:
        if any(i.bind is Bind.GRID and i.range > 1 for i in block.indexes):
            number = next((n for n, level in enumerate(plan.levels) if level.bind is Bind.GRID), None)
            message = f"the grid runs whole kernels, and this level is about {block.name!r} alone"
            hint = "put loops that all stages share on the grid"
            yield Finding("TILE-E650", message, "plan" if number is None else "level", number or 0, "", hint)
            return


def registers_suffice(kernel: Block, plan: Plan, target: Target) -> Iterator[Finding]:
    """A warning where one thread keeps more than its registers hold."""
    used = max(_bytes(kernel, Scope.THREAD, "REG"), default=0)
    settings, occupancy = target.settings, target.machine.occupancy
    most = 4 * occupancy.item_registers if occupancy is not None else settings.registers * settings.vector_bytes
    if used > most:
        message = f"a thread keeps {used} bytes at once, more than the {most} of its registers: it will be slow"
        yield Finding("TILE-W648", message, severity=Severity.WARNING)


def _bytes(kernel: Block, scope: Scope, unit: str = "") -> list[int]:
    """Bytes that each block allocates for `scope`, in this memory."""
    return [
        sum(
            r.type.nbytes * r.versions
            for r in block.refs
            if r.dir is Direction.ALLOC and r.loc.scope is scope and unit in ("", r.loc.unit)
        )
        for block in blocks_in(kernel)
    ]


BUILT: tuple[BuiltCheck, ...] = (groups_run_whole_kernels, local_memory_fits, registers_suffice)
