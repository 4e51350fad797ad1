"""Short rows: as many of them side by side as vectors have lanes, transposed in registers on the way in and out.

A row along the lanes is as dear as whole vectors of it, and twice so where its lanes must come together. Where rows are
short that is most of the time, and it jumps with their length; rows across the lanes cost what their elements do.
"""

from __future__ import annotations

from math import log2

from tile_ir.stripe.nodes import Bind, Direction

from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import Stage, Use
from tile_opt.kernel.work import merged_use, op_cost
from tile_opt.plan.plan import Cover, Edge, Level, Plan, Staging
from tile_opt.plan.space.cpu.facts import Facts
from tile_opt.plan.space.cpu.groups import cut, group_levels, wanted_groups
from tile_opt.plan.steps.stage import walked_alike

COMBINED = 20
"""Instructions that the lanes of one vector take to become one number."""
TRANSPOSED = 14
"""Instructions for a vector of elements that goes through a tile of registers: loads, shuffles, stores."""
TILES = 4
"""Vectors of rows from which on there are enough of them."""


def short_rows_plan(facts: Facts) -> Plan | None:
    """Lanes across the rows that the stages walk; None where there are no rows, or lanes along them are faster."""
    vector = next((n for n in reversed(facts.shared) if facts.is_free(n)), None)
    length = _length(facts)
    lanes = min(facts.lanes, facts.machine.vector.registers // 2)
    if vector is None or not length or lanes < 2 or facts.extents[vector] < TILES * lanes:
        return None
    staged = _staged(facts, vector)
    if not staged or not _pays(facts, length, lanes, len(staged)):
        return None
    sizes = {vector: lanes}
    groups = cut(facts, facts.shared, sizes, wanted_groups(facts))
    levels = group_levels(groups, (n for n in facts.shared if n != vector))
    levels += [Level(Bind.NONE, (Cover(vector, lanes),))]
    copies = tuple(Staging(name, len(levels) - 1, "L1", order) for name, order in staged.items())
    own = tuple(n for s in facts.view.stages for n in s.loop_names)
    levels += [Level(Bind.NONE, tuple(Cover(n, 1) for n in own))]
    levels += [Level(Bind.VECTOR, (Cover(vector, 1),), lanes=lanes)]
    masked = facts.settings.masks
    edges = tuple((n, Edge.MASK) for n in (vector, *own) if masked and facts.extents[n] % lanes)
    return Plan(tuple(levels), copies, edges=edges, reason="short rows side by side")


def _length(facts: Facts) -> int:
    """Elements of the rows that all stages with a loop of their own walk, from end to end; 0 where they differ."""
    stages = facts.view.stages
    lengths = {i.range for s in stages for i in s.loops}
    plain = not facts.constrained and all(len(s.loops) <= 1 and not s.guard for s in stages)
    free = all(facts.is_free(n, s) for s in stages for n in s.loop_names)
    direct = not any(u.extent or is_indirect(s, u) for s in stages for u in s.uses)
    return lengths.pop() if len(lengths) == 1 and plain and free and direct else 0


def _pays(facts: Facts, length: int, lanes: int, staged: int) -> bool:
    """Fewer instructions than with lanes along the rows."""
    stages = [s for s in facts.view.stages if s.loops]
    step = sum(max(1, op_cost(s)) for s in stages)
    vectors, trees = _along(facts, length)
    combined = COMBINED * trees * sum(merged_use(s) is not None for s in stages)
    return length / lanes * (step + TRANSPOSED * staged) < vectors * step + combined


def _along(facts: Facts, length: int) -> tuple[int, float]:
    """Vectors of a row whose lanes go along it, and trees in which they come together, in those of whole vectors.

    Without masks, what whole vectors leave over is a vector of its own, and its lanes come together.
    """
    whole, rest = divmod(length, facts.lanes)
    beside = 0.0 if facts.settings.masks or not whole else log2(max(rest, 1)) / log2(facts.lanes)
    return whole + min(rest, 1), 1 + beside


def _staged(facts: Facts, vector: str) -> dict[str, tuple[str, str]]:
    """Buffers of which the stages walk rows, and the loops of their copies; none where something else does not suit lanes."""
    found: dict[str, tuple[str, str]] = {}
    for stage in facts.view.stages:
        for use in (u for u in stage.uses if not facts.view.is_local(u.buffer)):
            own = facts.names(use) & set(stage.loop_names)
            across = facts.stride(use, vector)
            if across in (0, 1):  # as lanes want it, such as a window that slides along them
                continue
            if not own or vector not in facts.names(use):
                return {}
            (loop,) = own
            if facts.stride(use, loop) != 1 or not _alone(facts, stage, use):
                return {}
            found.setdefault(use.buffer, (loop, vector))
    return found


def _alone(facts: Facts, stage: Stage, use: Use) -> bool:
    """Nothing else is done with the buffer: it is written here and nowhere read, or all that is read are these rows."""
    others = [(s, u) for s in facts.view.stages for u in s.uses if u.buffer == use.buffer and u is not use]
    if use.writes:
        return not others and use.dir is Direction.OUT and not use.agg
    return all(not u.writes and walked_alike(use, stage, u, s) for s, u in others)
