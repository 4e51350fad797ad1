"""Results whose innermost loop is shorter than a vector: lanes go along the loop around it, and come in between one another.

``Y[n, i]`` of few i, such as pixels that are repeated, channels that are interleaved. Every i leaves a vector with gaps;
together they are whole vectors (`tile_opt.semtree.join_stores`), of which a shuffle makes each.
"""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.stripe.nodes import Bind

from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import Use
from tile_opt.kernel.work import is_elementwise
from tile_opt.lowering.memory import SPREAD, WIDE
from tile_opt.plan.plan import Cover, Edge, Level, Plan
from tile_opt.plan.space.cpu.facts import Facts
from tile_opt.plan.space.cpu.groups import cut, group_levels, wanted_groups
from tile_opt.semtree.join_stores import SOURCES

SHORT = 8
"""Iterations of the short loop at most: each is a copy of the code."""


def interleaved_plan(facts: Facts) -> Plan | None:
    """Lanes along the loop that goes on where the short one ends; None where there are no two such loops."""
    found = _loops(facts)
    if found is None:
        return None
    short, vector = found
    lanes = facts.lanes
    outer = [n for n in facts.shared if n not in found]
    groups = cut(facts, [*outer, vector], {vector: lanes}, wanted_groups(facts))
    levels = group_levels(groups, outer)
    levels += [Level(Bind.NONE, (Cover(vector, lanes),)), Level(Bind.UNROLL, (Cover(short, 1),))]
    levels.append(Level(Bind.VECTOR, (Cover(vector, 1),), lanes=lanes))
    edges = ((vector, Edge.OVERLAP),) if vector not in groups and facts.overlaps(vector) else ()
    return Plan(tuple(levels), edges=edges, reason="interleaved")


def _loops(facts: Facts) -> tuple[str, str] | None:
    """The short loop, and the one that goes on where it ends."""
    stages = facts.view.stages
    plain = all(not s.loops and not s.guard and is_elementwise(s) for s in stages) and not facts.constrained
    if facts.lanes == 1 or not plain or any(u.extent or is_indirect(s, u) for s in stages for u in s.uses):
        return None
    uses = facts.memory_uses()
    writes, reads = [u for u in uses if u.writes], [u for u in uses if u.reads]
    short = next((n for n in facts.shared if all(facts.stride(u, n) == 1 for u in writes)), None)
    if short is None or not facts.is_free(short) or facts.extents[short] > SHORT:
        return None
    suits = (n for n in facts.shared if n != short and _suits(facts, n, short, reads, writes))
    vector = next(suits, None)
    return None if vector is None else (short, vector)


def _suits(facts: Facts, loop: str, short: str, reads: Sequence[Use], writes: Sequence[Use]) -> bool:
    """Vectors along a loop are read as they lie, or a few steps apart, and leave gaps that the short one fills."""
    count = facts.extents[short]
    moving = count if any(facts.stride(u, short) for u in reads) else 1
    dense = all(facts.stride(u, loop) == count for u in writes) and facts.extents[loop] >= facts.lanes
    near = (0, 1, count) if count < SPREAD and facts.lanes >= WIDE else (0, 1)  # four elements are a vector already
    return dense and facts.is_free(loop) and moving <= SOURCES and all(facts.stride(u, loop) in near for u in reads)
