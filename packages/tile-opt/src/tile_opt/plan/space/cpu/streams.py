"""Kernels that use what they read once or twice: vectors along a shared loop, transposes, rows and their reductions."""

from __future__ import annotations

from math import ceil, prod

from tile_ir.powers import power_of_two
from tile_ir.stripe.affine import names_in
from tile_ir.stripe.nodes import Bind

from tile_opt.kernel.segments import fills_vectors
from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import Stage, Use, is_parallel
from tile_opt.kernel.work import carries, merged_use, op_cost
from tile_opt.lowering.memory import WIDE
from tile_opt.model.footprint import footprint_sets
from tile_opt.plan.plan import Across, Cover, Level, Plan, Reduction, Staging
from tile_opt.plan.space.cpu.columns import FEW_LANES, MAX_VECTORS, column_plan, is_spread
from tile_opt.plan.space.cpu.facts import Facts
from tile_opt.plan.space.cpu.groups import cut, group_levels, is_balanced, wanted_groups
from tile_opt.plan.space.cpu.order import neighbours
from tile_opt.plan.space.cpu.transposes import close_plan, transpose_plan, turned

STRAIGHT = 64
"""Operations of straight-line code in which vectors of a row are computed together: math functions count as twelve."""
DEPTH = 8
"""Rows of a large operand that are walked side by side."""
MAX_ROWS = 4
"""Results per column up to which an operand counts as used once."""
SUMS = 2
"""Vectors of sums of each row where several are reduced together."""
ROWS = 8
"""Rows that are reduced together where they read something in common."""
SELDOM = 8
"""Steps of the main stage for each of another's from which that may write cell by cell."""


def stream_plan(facts: Facts) -> Plan | None:
    """Vectors along the shared loop that all stages can take across lanes; None where a reduction suits them better."""
    vector = _vector_loop(facts)
    if vector is None:
        return None
    across = turned(facts, vector)
    if across is not None:
        return close_plan(facts, across) or transpose_plan(facts, across)
    return walking_plan(facts, vector) or column_plan(facts, vector)


def _vector_loop(facts: Facts) -> str | None:
    if facts.lanes == 1:
        return None
    apart: list[str] = []
    for name in reversed(facts.shared):
        if not facts.is_free(name):
            continue
        strides = [(u, facts.stride(u, name)) for u in facts.memory_uses(SELDOM)]
        if any(u.writes and stride != 1 for u, stride in strides):
            continue
        if all(stride in (0, 1) for u, stride in strides if u.reads) and (not apart or _fills(facts, name)):
            return name
        apart += [name] if _takes_lanes_apart(facts, name) else []
    return min(apart, key=lambda name: _scattered(facts, name), default=None)


def _scattered(facts: Facts, loop: str) -> int:
    """Bytes of operands whose elements do not lie side by side along the loop."""
    return sum(o.elements * o.bytes for o in facts.operands if facts.stride(o.use, loop) not in (0, 1))


def _fills(facts: Facts, loop: str) -> bool:
    return facts.extents[loop] >= facts.lanes


def _some_along(facts: Facts, loop: str) -> bool:
    """What is read lies along the loop, in part: vectors that it does not fill are still better than one element at a time."""
    return facts.extents[loop] >= FEW_LANES and any(facts.stride(u, loop) == 1 for u in facts.reads)


def _takes_lanes_apart(facts: Facts, loop: str) -> bool:
    """Nothing else has lanes: vectors along the loop are put together of elements that do not lie side by side."""
    rows = row_loop(facts, facts.main)
    if rows is None and (_fills(facts, loop) or _some_along(facts, loop) or turned(facts, loop) is not None):
        return True
    return is_spread(facts, loop) and (rows is None or facts.extents[rows] < WIDE)  # such as a window of a pooling


# --- along the operand, where its rows are longer than registers ---------------------------------------


def walking_plan(facts: Facts, vector: str) -> Plan | None:
    """Some rows of a large operand at a time, whole rows or long pieces of them, into results kept in the first cache.

    None where strips of registers see the operand in sequence anyway, or its rows are used often.
    """
    merged, main = facts.merged, facts.main
    own = facts.own_order(main)
    wide = [o for o in facts.operands if vector in o.strides and o.elements * o.bytes > facts.cache(2).bytes]
    if not wide or merged is None or not own or not facts.view.is_local(merged.buffer) or vector in facts.constrained:
        return None
    depth = next((n for n in reversed(own) if facts.extents[n] >= 2 * DEPTH and facts.is_free(n, main)), None)
    rows = [n for n in facts.shared if n != vector and n not in wide[0].strides]
    used = prod(facts.extents[n] for n in rows)
    strip = MAX_VECTORS * facts.lanes
    if depth is None or used > MAX_ROWS or any(facts.extents[vector] <= 4 * strip for _ in wide):
        return None
    if any(abs(o.strides.get(depth, 0)) < facts.extents[vector] for o in wide):
        return None
    outer = [n for n in facts.shared if n not in (vector, *rows)]
    room = max(strip, facts.cache(1).bytes // 2 // (used * facts.bytes) // strip * strip)
    wanted = wanted_groups(facts)
    groups = cut(facts, outer, {}, wanted)
    shared = wanted > 1 and not is_balanced(facts, groups)
    # As many pieces for every core, of what the first cache holds.
    parts = facts.settings.cores * -(-facts.extents[vector] // (facts.settings.cores * room)) if shared else 1
    even = -(-facts.extents[vector] // parts)
    strip = min((n * facts.lanes for n in (MAX_VECTORS, MAX_VECTORS - 1)), key=lambda n: -(-even // n) * n)
    piece = max(strip, min(room // strip * strip, -(-even // strip) * strip))
    pieces = {vector: piece} if piece < facts.extents[vector] else {}
    groups |= pieces if shared else {}
    levels = group_levels(groups, outer)
    levels += [Level(Bind.NONE, (Cover(n, s),)) for n, s in pieces.items() if n not in groups]
    around = tuple(Cover(n, 1) for n in own if n != depth)
    levels += [Level(Bind.NONE, around)] if around else []
    levels += [Level(Bind.NONE, (Cover(depth, DEPTH),)), Level(Bind.NONE, (Cover(vector, strip),))]
    sums = (Staging(merged.buffer, len(levels) - 1, "REG"),)
    levels.append(Level(Bind.UNROLL, tuple(Cover(n, 1) for n in (depth, *rows))))
    levels.append(Level(Bind.VECTOR, (Cover(vector, 1),), lanes=facts.lanes))
    return Plan(tuple(levels), sums, reason="rows of the operand in sequence")


# --- along the stages' own loops ----------------------------------------------------------------------


def row_plan(facts: Facts) -> Plan:
    """Every stage across lanes along a loop of its own where it has one, with partial results side by side."""
    together = _rows_together(facts) or _chains_together(facts) or _runs_together(facts)
    sizes = dict((together,)) if together else {}
    grid = cut(facts, facts.shared, sizes, wanted_groups(facts))
    levels = group_levels(grid, [n for n in facts.shared if n not in sizes] + list(sizes), sizes)
    tiles = {
        n: s for stage in facts.view.stages for n, s in _row_tile(facts, stage, SUMS if sizes else 2 * SUMS).items()
    }
    own = [n for s in facts.view.stages for n in facts.own_order(s)]
    serial = tuple(Cover(n, 1) for n in own if n not in tiles)
    levels += [Level(Bind.NONE, serial)] if serial else []
    if tiles:
        levels.append(Level(Bind.NONE, tuple(Cover(n, s) for n, s in tiles.items())))
    levels += [Level(Bind.UNROLL, tuple(Cover(n, 1) for n in sizes))] if sizes else []
    if tiles:
        levels.append(Level(Bind.VECTOR, tuple(Cover(n, 1) for n in tiles), lanes=facts.lanes))
    kept = tuple(
        Reduction(n, Across.LANES, s)
        for stage in facts.view.stages
        for n, s in tiles.items()
        if n in stage.loop_names and (use := merged_use(stage)) is not None and facts.stride(use, n) == 0
    )
    edges = tuple(edge for n in tiles for edge in facts.tails(n, True))
    return Plan(tuple(levels), reductions=kept, edges=edges, reason="rows")


def _rows_together(facts: Facts) -> tuple[str, int] | None:
    """A shared loop whose rows read something in common: several at a time read it once."""
    if len(facts.view.stages) > 3 or facts.merged is None or len(facts.operands) < 2:
        return None
    for name in reversed(facts.shared):
        common = [o for o in facts.operands if name not in o.strides and o.strides]
        if common and facts.is_free(name) and name not in facts.constrained and facts.extents[name] >= ROWS:
            return name, ROWS
    return None


def _runs_together(facts: Facts) -> tuple[str, int] | None:
    """A shared loop from short row to short row of one large operand, each of which is summed with others from afar."""
    single = len(facts.view.stages) <= 3 and facts.merged is not None
    return neighbours(facts, SUMS) if single else None


def _chains_together(facts: Facts) -> tuple[str, int] | None:
    """A shared loop along which recurrences are independent: as many at a time as hide the latency of a step.

    Fewer where the lines of so many rows would push one another out of the first cache; none where data chooses the
    cells, so that a step seldom waits for the one before.
    """
    ports = facts.machine.ports
    most = power_of_two(ceil(ports.add_latency * ports.add))
    by_data = any(is_indirect(facts.main, u) for u in facts.main.uses if u.writes)
    if not carries(facts.main) or facts.merged is not None or by_data:
        return None
    for name in reversed(facts.shared):
        if facts.is_free(name) and name not in facts.constrained and facts.extents[name] >= most:
            count = next((n for n in (most, most // 2, most // 4) if _lines_stay(facts, name, n)), 1)
            return (name, count) if count > 1 else None
    return None


def _lines_stay(facts: Facts, loop: str, rows: int) -> bool:
    """Neighbouring rows of every buffer that the kernel touches have a line each in the first cache."""
    near = facts.cache(1)
    shares = (
        footprint_sets(rows, facts.step(u, loop), near.line, near, facts.pages())
        for u in facts.memory_uses()
        if facts.stride(u, loop)
    )
    return sum(shares) <= 1


def _row_tile(facts: Facts, stage: Stage, most: int) -> dict[str, int]:
    """The loop of a stage that runs across lanes, and iterations of a tile of it."""
    loop = row_loop(facts, stage) if facts.lanes > 1 else None
    if loop is None:
        return {}
    copies = most if merged_use(stage) is not None else max(1, min(most, STRAIGHT // max(1, op_cost(stage))))
    while copies > 1 and facts.extents[loop] < copies * facts.lanes:
        copies //= 2
    return {loop: copies * facts.lanes}


def row_loop(facts: Facts, stage: Stage) -> str | None:
    """A loop of the stage itself that all its accesses take with stride 0 or 1."""
    merged = merged_use(stage)
    for loop in reversed(stage.loops):
        if loop.range < 2 or not is_parallel(loop):
            continue
        if not fills_vectors(loop.name, stage.constraints, facts.extents, facts.lanes):
            continue
        strides = [(u, facts.stride(u, loop.name)) for u in stage.uses]
        if any(stride not in (0, 1) for _, stride in strides) or all(stride == 0 for _, stride in strides):
            continue
        if any(u.writes and stride == 0 and not _one_cell(u, merged, stage) for u, stride in strides):
            continue
        return loop.name
    return None


def _one_cell(use: Use, merged: Use | None, stage: Stage) -> bool:
    """An aggregation whose cell no loop of the stage moves: each lane can have an accumulator of its own."""
    return use is merged and not names_in(use.forms) & set(stage.loop_names)
