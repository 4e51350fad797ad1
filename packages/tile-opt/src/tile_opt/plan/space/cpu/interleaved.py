"""Results whose rows are shorter than a vector: lanes go along the loop around them, and come in between one another.

``Y[n, i]`` of few i, such as pixels that are repeated, channels that are interleaved. Every i leaves a vector with gaps;
together they are whole vectors (`tile_opt.semtree.join_stores`), of which a shuffle makes each. A loop goes along such a
row, or stages write a part of it each.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.view import Use, is_parallel
from tile_opt.kernel.work import is_elementwise
from tile_opt.lowering.memory import FILLED, WIDE, widest_spread
from tile_opt.plan.plan import Plan
from tile_opt.plan.space.cpu.facts import Facts
from tile_opt.plan.space.cpu.groups import vectors_plan

SHORT = 8
"""Iterations of the short loop at most: each is a copy of the code."""
NARROW = 4
"""Elements of a row that are a vector already, but where they are turned round."""
MOVING = 4
"""Registers at most that a vector comes together from where each iteration of the short loop reads its own."""


def interleaved_plan(facts: Facts) -> Plan | None:
    """Lanes along the loop that goes on where the short one ends; None where there are no two such loops."""
    found = _loops(facts)
    if found is None:
        return _parts_plan(facts)
    short, vector = found
    return vectors_plan(facts, vector, facts.lanes, [short], "interleaved")


def _parts_plan(facts: Facts) -> Plan | None:
    """The same where stages write parts of each row, which together are all of it."""
    if facts.lanes == 1 or len(facts.view.stages) < 2 or not _is_plain(facts) or not _are_short(facts):
        return None
    vector = next((n for n in reversed(facts.shared) if _is_filled(facts, n)), None)
    if vector is None:
        return None
    own = [n for s in facts.view.stages for n in s.loop_names]
    return vectors_plan(facts, vector, facts.lanes, own, "parts of rows interleaved")


def _is_plain(facts: Facts) -> bool:
    """Every cell is computed by itself, whatever the loops stand at."""
    stages = facts.view.stages
    plain = all(not s.guard and is_elementwise(s) for s in stages) and not facts.constrained
    return plain and not any(u.extent or is_indirect(s, u) for s in stages for u in s.uses)


def _are_short(facts: Facts) -> bool:
    """Stages have no loops of their own but along parts of rows."""
    return all(prod(i.range for i in s.loops) <= SHORT and all(map(is_parallel, s.loops)) for s in facts.view.stages)


def _is_filled(facts: Facts, loop: str) -> bool:
    """Vectors along the loop are read as they lie, or a few steps apart, and leave gaps that the stages fill together."""
    uses = [(s, u) for s in facts.view.stages for u in s.uses if not facts.view.is_local(u.buffer)]
    steps = {facts.stride(u, loop) for _, u in uses if u.writes}
    if len(steps) != 1 or not facts.is_free(loop) or facts.extents[loop] < facts.lanes:
        return False
    (step,) = steps
    read = all(0 <= facts.stride(u, loop) <= _nearest(facts, u) for _, u in uses if u.reads)
    return 1 < step <= SHORT and read and all(_cells(facts, b) == step for b in {u.buffer for _, u in uses if u.writes})


def _nearest(facts: Facts, use: Use) -> int:
    """Steps between lanes that are read as one vector."""
    return max(1, widest_spread(facts.lanes, facts.view.type_of(use.buffer).dtype.bytes))


def _cells(facts: Facts, buffer: str) -> int:
    """Cells of a row of the buffer that the stages write."""
    strides = facts.view.type_of(buffer).strides
    found = set[int]()
    for stage in facts.view.stages:
        for use in (u for u in stage.uses if u.writes and u.buffer == buffer):
            first = sum(form.const * stride for form, stride in zip(use.forms, strides, strict=True))
            found |= {first + at for at in facts.places(use, [(i.name, i.range) for i in stage.loops])}
    return len(found)


def _loops(facts: Facts) -> tuple[str, str] | None:
    """The short loop, and the one that goes on where it ends."""
    if facts.lanes == 1 or any(s.loops for s in facts.view.stages) or not _is_plain(facts):
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
    moving = count if any(facts.stride(u, short) and facts.stride(u, loop) != count for u in reads) else 1
    dense = all(facts.stride(u, loop) == count for u in writes) and facts.extents[loop] >= facts.lanes
    turned = any(facts.stride(u, short) < 0 for u in reads)
    apart = any(facts.stride(u, short) not in (0, 1) for u in reads)  # rows that are no vectors as they lie
    gaps = apart and (count < NARROW or (turned and count <= FILLED))
    near = (0, 1, count) if gaps and facts.lanes >= WIDE else (0, 1)
    return dense and facts.is_free(loop) and moving <= MOVING and all(facts.stride(u, loop) in near for u in reads)
