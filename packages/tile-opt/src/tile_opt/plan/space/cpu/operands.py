"""What reading an operand costs a register tile: where it lies, in a panel, or in a copy with its steps innermost."""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt, prod

from tile_opt.kernel.work import nbytes
from tile_opt.model.footprint import footprint_sets
from tile_opt.plan.space.cpu.facts import Facts, Operand
from tile_opt.plan.space.cpu.groups import ROUNDS, is_balanced, wanted_groups

GATHERED = 1.3
"""Cycles per element that a copy fetches one by one."""
TURNED = 0.5
"""Cycles per element that a copy transposes in registers."""
NEAR = 0.5
"""Cycles per element that a copy takes of what the second cache holds, but for the shortest sums."""
SPLIT = 0.25, 0.4
"""Cycles that each line more than a vector has costs where loads begin inside lines: of the first cache, and of the second."""
UNSEEN = 8
"""Cycles of a line from afar that a kernel with much arithmetic does not see."""
IN_ORDER = 0.05
"""Of the time that a line in sequence takes to come nearer, what a kernel with much arithmetic still sees."""
ONCE = 0.05
"""Of a copy's cycles, what one that is made once counts: it takes memory and code."""
SHALLOW = 128
"""Steps of a reduction up to which writing the results takes a good part of the time."""
SHORTEST = 24
"""Steps of a reduction from which rows are copied that lie across it."""
MOST_HELD = 1 << 23
"""Bytes that a copy of rows takes at most, where caches hold no more anyway."""


def repeats(operand: Operand, rows: tuple[tuple[str, int], ...]) -> int:
    return prod(size for n, size in rows if n in operand.strides)


def side_by_side(operand: Operand, rows: tuple[tuple[str, int], ...]) -> int:
    """Elements of neighbouring rows that follow each other."""
    return prod(size for n, size in rows if operand.strides.get(n) == 1)


def in_place(facts: Facts, operand: Operand, vectors: int) -> float:
    """Cycles that one step waits for a vector operand that is read where it lies."""
    run = vectors * facts.lanes * operand.bytes
    if operand.step <= run:
        return _in_sequence(facts, operand, vectors) + (max(1.0, run / 64) * SPLIT[0] if operand.step % 64 else 0.0)
    if not operand.step % 64:
        return _strided(facts, operand, run)
    near = footprint_sets(operand.rows, operand.step, run, facts.cache(1), facts.pages()) <= 0.5
    return _strided(facts, operand, run) + max(1.0, run / 64) * SPLIT[0 if near else 1]


def reached(facts: Facts, operand: Operand, run: int) -> float:
    """Cycles in all for the first look at an operand from afar, of which tiles read runs of bytes that lie apart.

    Each run is waited for, however long it is: few long ones are better than many short ones.
    """
    size, line = nbytes(facts.view.type_of(operand.use.buffer)), facts.cache(3).line
    if _is_near(facts, operand) or operand.rows == 1 or operand.step <= max(run, line):
        return 0.0
    return min(size, operand.elements * operand.bytes) / max(run, line) * facts.cache(3).latency


def refetched(facts: Facts, operand: Operand, vectors: int, rows: tuple[tuple[str, int], ...]) -> float:
    """Cycles that one step waits for lines from afar where a panel lies in pieces: groups take the rows first."""
    run = vectors * facts.lanes * operand.bytes
    if operand.rows == 1 or operand.step <= run or _fits(facts, operand, operand.strides):
        return 0.0
    tiles = prod(-(-facts.extents[n] // size) for n, size in rows if n not in operand.strides)
    lines = run / facts.cache(3).line + (operand.step % facts.cache(3).line != 0)
    return lines * _from_afar(facts, operand) / max(1.0, tiles / wanted_groups(facts))


def _from_afar(facts: Facts, operand: Operand) -> float:
    """Cycles that each line which the second cache does not hold costs, out of order."""
    return facts.line_cost(3) if _is_paged(facts, operand) else max(0.0, facts.line_cost(3) - UNSEEN)


def _is_paged(facts: Facts, operand: Operand) -> bool:
    """Steps go from page to page, and are more than a shallow reduction has: nothing fetches ahead."""
    return 2 * operand.step >= facts.pages() and operand.rows > SHALLOW


def _fits(facts: Facts, operand: Operand, loops: Iterable[str]) -> bool:
    """What these loops walk of an operand stays in the second cache, beside as much again."""
    return prod(facts.extents[n] for n in loops) * operand.bytes <= facts.cache(2).bytes / 2


def _strided(facts: Facts, operand: Operand, run: int) -> float:
    """Cycles that one step waits for a run of bytes, the next of which lies elsewhere."""
    lines = max(1.0, run / 64)
    if footprint_sets(operand.rows, operand.step, run, facts.cache(1), facts.pages()) <= 0.5:
        return 0.0
    if footprint_sets(operand.rows, operand.step, run, facts.cache(2), facts.pages()) <= 0.5:
        return lines * facts.line_cost(2) / (1 if _is_paged(facts, operand) else 4)
    return lines * facts.line_cost(3)


def panelled(facts: Facts, operand: Operand, vector: str, vectors: int) -> float:
    """Cycles that one step waits for a vector operand in panels, which are copied just in time or lie there."""
    ahead = is_ahead(facts, operand, vector)
    return _in_sequence(facts, operand, vectors) if ahead else in_panel(facts, operand, vectors)


def in_panel(facts: Facts, operand: Operand, vectors: int) -> float:
    """Cycles that one step waits for a vector operand in a panel, which is cut to stay in the second cache."""
    run, near = vectors * facts.lanes * operand.bytes, facts.cache(2)
    if operand.rows * run <= facts.cache(1).bytes / 2:
        return 0.0
    return max(1.0, run / 64) * IN_ORDER * near.line / near.bandwidth


def flowing(facts: Facts, operand: Operand, vectors: int) -> float:
    """Cycles in which the second cache delivers what one step reads of a vector operand that the first does not hold."""
    run, near = vectors * facts.lanes * operand.bytes, facts.cache(2)
    return 0.0 if operand.rows * run <= facts.cache(1).bytes / 2 else run / near.bandwidth


def _in_sequence(facts: Facts, operand: Operand, vectors: int) -> float:
    """Cycles that one step waits for a vector operand whose rows follow each other where they lie."""
    run, far = vectors * facts.lanes * operand.bytes, facts.cache(3)
    if operand.rows * run <= facts.cache(2).bytes / 2:
        return in_panel(facts, operand, vectors)
    return in_panel(facts, operand, vectors) + max(1.0, run / 64) * IN_ORDER * far.line / far.bandwidth


def broadcast(facts: Facts, operand: Operand, rows: tuple[tuple[str, int], ...]) -> float:
    """Cycles that one step waits for an operand that every lane reads: rows in one set of the first cache, or strides."""
    first = facts.cache(1)
    for name, size in rows:
        stride = abs(operand.strides.get(name, 0)) * operand.bytes
        if stride and size > max(1, first.ways - 2) and stride % max(1, first.bytes // first.ways) == 0:
            return 0.25 * size
    if operand.rows == 1 or operand.step < 64:
        return _met_again(facts, operand, rows)
    side = side_by_side(operand, rows)
    near = repeats(operand, rows) / side * _strided(facts, operand, side * operand.bytes)
    return near + _afresh(facts, operand, rows)


def _met_again(facts: Facts, operand: Operand, rows: tuple[tuple[str, int], ...]) -> float:
    """Cycles that one step waits for lines of short runs which the first cache does not hold from one tile to the next."""
    sizes = {n: facts.extents[n] for n in operand.strides if n not in facts.shared} | dict(rows)
    apart: dict[int, int] = {}
    for name, size in sizes.items():
        stride = abs(operand.strides.get(name, 0))
        apart[stride] = apart.get(stride, 1) + size - 1
    run, lines, near = 1, 1, facts.cache(1)
    for stride, count in sorted(apart.items()):
        run, lines = (run + stride * (count - 1), lines) if stride <= run else (run, lines * count)
    if run * operand.bytes > near.line or 2 * lines * near.line <= near.bytes:
        return 0.0
    return lines / operand.rows * facts.line_cost(2)


def _afresh(facts: Facts, operand: Operand, rows: tuple[tuple[str, int], ...]) -> float:
    """Cycles that one step waits for lines from afar: each vector walks all rows again, which the second cache may not hold."""
    walked = [n for n in operand.strides if n not in facts.shared or n in dict(rows)]
    if _fits(facts, operand, walked):
        return 0.0
    return repeats(operand, rows) * operand.bytes / facts.cache(3).line * _from_afar(facts, operand)


def spreading(facts: Facts, operand: Operand, vector: str, rows: tuple[tuple[str, int], ...], copied: float) -> float:
    """Cycles of copying an operand that every lane reads, by all groups; infinite where that is no gain or not possible.

    `copied` are the cycles of copying the others, which each block of rows does again.
    """
    around = [n for n in operand.strides if n in facts.shared and n not in dict(rows)]
    apart = [n for n in facts.shared if n != vector and n not in dict(rows) and n not in operand.strides]
    if operand.rows < SHORTEST or 2 * operand.step < facts.pages() or apart or facts.constrained:
        return float("inf")
    if not facts.heavy or vector not in facts.shared or not any(n in operand.strides for n, _ in rows):
        return float("inf")
    part = operand.elements * operand.bytes // prod(facts.extents[n] for n in around)
    along, blocks = shares(facts.settings.cores)
    blocks = max(blocks, -(-part // held(facts)))
    each = TURNED + 2 * copying(facts, operand)
    return operand.elements * each * along + copied * (blocks - 1)


def shares(cores: int) -> tuple[int, int]:
    """Parts of the vector loop and of the rows that together give each core its share: each copies what its part reads."""
    blocks = isqrt(cores)
    return -(-cores // blocks), blocks


def held(facts: Facts) -> int:
    """Bytes of an operand's rows that a group copies at once."""
    return max(4 * facts.cache(2).bytes, min(MOST_HELD, facts.settings.l3_bytes // (2 * facts.settings.cores)))


def packing(facts: Facts, operand: Operand, vector: str, vectors: int) -> float:
    """Cycles of copying an operand, each part as often as groups copy it."""
    if operand.strides[vector] == 1:
        each = copying(facts, operand)
    else:
        turned = any(operand.strides.get(n) == 1 and facts.extents[n] >= facts.lanes for n in facts.main.loop_names)
        each = TURNED if turned else GATHERED
    panels = -(-facts.extents[vector] // (vectors * facts.lanes))
    if is_ahead(facts, operand, vector):
        return operand.elements * each * (ONCE if operand.use.buffer in facts.view.fixed else 1)
    cores = facts.settings.cores
    even = is_balanced(facts, {vector: vectors * facts.lanes})
    again = 1 if even or panels >= ROUNDS * cores else -(-ROUNDS * cores // panels)
    return operand.elements * each * again


def is_ahead(facts: Facts, operand: Operand, vector: str) -> bool:
    """Panels of the operand are made before the kernel, once, or once a call: no call changes it, or many tiles read it.

    No tile of them may be cut short by a constraint.
    """
    known = operand.use.buffer in facts.view.fixed | facts.view.again
    return known and vector in facts.shared and vector not in facts.constrained


def may_turn(facts: Facts, operand: Operand) -> bool:
    """A small operand that lies across long sums, beside a larger one along them: each group copies it."""
    size, small = operand.elements * operand.bytes, facts.cache(1).bytes
    beside = max((o.elements * o.bytes for o in facts.operands if o is not operand), default=0)
    return facts.heavy and operand.rows >= SHALLOW and size <= small and beside > 2 * size


def turning(facts: Facts, operand: Operand, rows: tuple[tuple[str, int], ...]) -> float:
    """Cycles in which all groups copy it: those that divide what moves it copy a part each."""
    parts = prod(-(-facts.extents[n] // size) for n, size in rows if n in operand.strides)
    groups = min(wanted_groups(facts), ROUNDS * facts.settings.cores)
    return operand.elements * GATHERED * -(-groups // parts)


def lies_scattered(facts: Facts) -> bool:
    """An operand that no call changes has no two neighbours that are read: the middle of each window, say."""
    return any(o.use.buffer in facts.view.fixed and 1 not in o.strides.values() for o in facts.operands)


def copying(facts: Facts, operand: Operand) -> float:
    """Cycles per element of copying pieces of rows, from where they lie."""
    if _is_near(facts, operand) and operand.rows > SHORTEST:
        return NEAR
    return (facts.line_cost(3) + 2) * operand.bytes / 64


def _is_near(facts: Facts, operand: Operand) -> bool:
    """All of the operand stays in the second cache, beside as much again."""
    return 2 * nbytes(facts.view.type_of(operand.use.buffer)) <= facts.cache(2).bytes
