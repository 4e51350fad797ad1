"""Sums along rows that lie across the vectors: these rows are copied first, transposed in registers.

``O[b, c] = +(A[c, b, a] * B[a, b, c])`` with lanes along c meets as many lines of A at each step as c has elements. They
follow each other along a: a copy with c innermost reads each of them once.
"""

from __future__ import annotations

from tile_ir.frozen import replace
from tile_ir.stripe.nodes import Bind

from tile_opt.kernel.unify import is_indirect
from tile_opt.lowering.memory import SPREAD
from tile_opt.plan.plan import Cover, Level, Plan, Staging
from tile_opt.plan.space.cpu.facts import Facts, Operand


def copied_plan(facts: Facts, plan: Plan) -> Plan | None:
    """`plan`, whose vectors go along a loop of all stages, on such copies; None where no operand lies so, or none fits.

    Copies are made for all neighbours that a group or an outer loop has, or for one vector of them where there are too many.
    """
    vector = next((c.loop for level in plan.levels if level.bind is Bind.VECTOR for c in level.covers), "")
    if facts.heavy or facts.merged is None or plan.stagings or vector not in facts.shared or facts.constrained:
        return None
    across = [o for o in facts.operands if _lies_across(facts, o, vector)]
    place, size = next((k, c.size) for k, level in enumerate(plan.levels) if (c := level.cover(vector)))
    grouped = plan.levels[place].bind is Bind.GRID
    level, size = (place, size) if grouped else (place - 1, facts.extents[vector])
    if across and level >= 0 and _fits(facts, across, size):
        return _staged(facts, plan, across, vector, level)
    if not across or not _fits(facts, across, facts.lanes) or not (grouped or len(plan.levels[place].covers) == 1):
        return None
    narrow = Level(Bind.NONE, (Cover(vector, facts.lanes),))
    levels = (*plan.levels[: level + 1], narrow, *plan.levels[place + 1 :])
    return _staged(facts, replace(plan, levels=levels), across, vector, level + 1)


def _lies_across(facts: Facts, operand: Operand, vector: str) -> bool:
    """Lanes are far apart, and what follows an element is summed: whole vectors of it."""
    along = (n for n in facts.main.loop_names if operand.strides.get(n) == 1 and facts.is_free(n, facts.main))
    long = any(facts.extents[n] >= facts.lanes for n in along)
    return long and abs(operand.strides.get(vector, 0)) > SPREAD and not is_indirect(facts.main, operand.use)


def _fits(facts: Facts, operands: list[Operand], lanes: int) -> bool:
    """Copies of all steps, of so many neighbours, stay in the second cache beside as much again."""
    return sum(o.rows * lanes * o.bytes for o in operands) <= facts.cache(2).bytes / 2


def _staged(facts: Facts, plan: Plan, operands: list[Operand], vector: str, level: int) -> Plan:
    own = facts.own_order(facts.main)
    orders = ((*(n for n in own if n in o.strides), vector) for o in operands)
    copies = (Staging(o.use.buffer, level, "L2", order) for o, order in zip(operands, orders, strict=True))
    return replace(plan, stagings=tuple(copies))
