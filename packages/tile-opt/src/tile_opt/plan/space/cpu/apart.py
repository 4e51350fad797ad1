"""Reductions over rows of few columns: lanes go along the reduction, and the columns come apart by shuffles.

``C[n] = +(w[k] * A[k, n])`` of few n: vectors along n have few lanes, and each waits for the one before. Whole vectors hold
neighbouring k of all columns, of which shuffles make one of each column. That is less where columns are few and the rows many.
"""

from __future__ import annotations

from math import prod

from tile_ir.stripe.nodes import Bind

from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.work import op_cost
from tile_opt.lowering.memory import FILLED, WIDE
from tile_opt.plan.plan import Across, Cover, Level, Plan, Reduction
from tile_opt.plan.space.cpu.columns import MAX_OPS, WINDOW, unroll_loop
from tile_opt.plan.space.cpu.facts import Facts, vector_ops
from tile_opt.plan.space.cpu.groups import cut, group_levels, wanted_groups

CHAINS = 8
"""Sums side by side that hide the latency of a step."""
COMBINED = 10
"""Cycles in which the lanes of a column's sums become one number."""


def apart_plan(facts: Facts) -> Plan | None:
    """Lanes along the main stage's reduction, all columns at a time; None where operands have no few columns."""
    found = _loops(facts)
    if found is None:
        return None
    short, along = found
    count, lanes = facts.extents[short], facts.lanes
    copies = max(1, min(CHAINS // count, MAX_OPS // (count * max(1, op_cost(facts.main)))))
    while copies > 1 and facts.extents[along] < copies * lanes:
        copies //= 2
    outer = [n for n in facts.shared if n != short]
    levels = group_levels(cut(facts, outer, {}, wanted_groups(facts)), outer)
    around = [n for n in facts.own_order(facts.main) if n != along]
    levels += [Level(Bind.NONE, tuple(Cover(n, 1) for n in around))] if around else []
    levels.append(Level(Bind.NONE, (Cover(along, copies * lanes),)))
    levels.append(Level(Bind.UNROLL, (Cover(short, 1),)))
    levels.append(Level(Bind.VECTOR, (Cover(along, 1),), lanes=lanes))
    return Plan(tuple(levels), reductions=(Reduction(along, Across.LANES, copies * lanes),), reason="columns apart")


def _loops(facts: Facts) -> tuple[str, str] | None:
    """The columns' loop, and the main stage's along which lanes go."""
    main, merged = facts.main, facts.merged
    if merged is None or facts.lanes < WIDE or any(s.guard for s in facts.view.stages):
        return None
    if any(s.loops for s in facts.view.stages if s is not main) or any(
        u.extent or is_indirect(main, u) for u in main.uses
    ):
        return None
    few = (n for n in facts.shared if facts.is_free(n) and 1 < facts.extents[n] < FILLED and n not in facts.constrained)
    for short in few:
        along = next((n for n in reversed(main.loop_names) if _suits(facts, n, short)), None)
        if along is not None:
            return (short, along) if _pays(facts, short, along) else None
    return None


def _pays(facts: Facts, short: str, along: str) -> bool:
    """Fewer cycles than in vectors along the columns, which wait for one another where sums are long."""
    count, ops = facts.extents[short], vector_ops(facts.main)
    rows = prod(facts.extents[n] for n in facts.main.loop_names)
    steps = -(-facts.extents[along] // facts.lanes) * (rows // facts.extents[along])
    beside = rows <= WINDOW and unroll_loop(facts, short)
    waits = 0.0 if beside else facts.machine.ports.fma_latency
    # Of as many vectors as there are columns, one less than that many shuffles make each column.
    return steps * count * (count - 1 + ops) + COMBINED * count < rows * max(waits, 1 + ops)


def _suits(facts: Facts, along: str, short: str) -> bool:
    """Every operand lies side by side along the reduction, or has the columns in between."""
    merged, count = facts.merged, facts.extents[short]
    steps = [(facts.stride(u, along), facts.stride(u, short)) for u in facts.reads]
    single = merged is not None and facts.stride(merged, along) == 0
    free = facts.is_free(along, facts.main) and facts.extents[along] >= facts.lanes
    apart = (count, 1)
    return single and free and apart in steps and all(s == apart or s[0] in (0, 1) for s in steps)
