"""Transposes: operands that run across the output, in tiles that registers transpose, or fetched a few steps apart."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tile_ir.frozen import frozen
from tile_ir.stripe.nodes import Bind, TensorType

from tile_opt.kernel.view import Use
from tile_opt.kernel.work import is_elementwise, nbytes
from tile_opt.lowering.memory import WORD
from tile_opt.model.caches import lines_far_from
from tile_opt.model.footprint import footprint_sets
from tile_opt.plan.plan import Cover, Level, Plan, Staging
from tile_opt.plan.space.cpu.facts import Facts
from tile_opt.plan.space.cpu.groups import count, cut, group_levels, vectors_plan, wanted_groups

CLOSE = 8
"""Steps between elements up to which vectors of them are fetched straight from the operand."""
FEW = 7
"""Vectors of elements narrower than words up to which each is fetched by itself: a tile of eight takes fewer shuffles."""
BLOCK = 256
"""Iterations along each side of a group's block of a transpose."""
LEAST = 64
"""Iterations along each side that a block has at least."""
ROW_LINES, COLUMN_LINES = 8, 4
"""Lines along the result, and along the operands, of what a copy of the result holds: its rows are stored in long runs."""
LEAST_RUN = 16
"""Bytes that a tile holds of a row of the result at least."""


@frozen
class Turned:
    """A result that lies along `vector`, and what is read for it along another loop."""

    vector: str
    other: str
    reads: tuple[Use, ...]


def turned(facts: Facts, vector: str) -> Turned | None:
    """The loop along which operands lie that run across the output, and these operands."""
    view = facts.view
    if len(view.stages) != 1 or view.allocs or facts.main.loops or not is_elementwise(facts.main):
        return None
    if facts.main.constraints or any(u.extent for u in facts.main.uses):
        return None
    reads = tuple(u for u in facts.reads if facts.stride(u, vector) not in (0, 1))
    for name in reversed(facts.shared):
        if reads and name != vector and all(facts.stride(u, name) == 1 for u in reads):
            return Turned(vector, name, reads) if min(facts.extents[name], facts.extents[vector]) >= 2 else None
    return None


def transpose_plan(facts: Facts, kernel: Turned) -> Plan:
    """Blocks of both loops in strips, in tiles that are transposed in registers: whole lines are read and written."""
    vector, other = kernel.vector, kernel.other
    # A tile has as many vectors as lanes: half of the registers hold them, the other half what the shuffles make of them.
    lanes, wanted = min(facts.lanes, facts.machine.vector.registers // 2), wanted_groups(facts)
    side = BLOCK
    # Twice as many blocks as the work asks for: the core that takes one more than the others is soon done.
    enough = min(2 * wanted, 8 * facts.settings.cores)
    while side > LEAST and count(facts, {other: side, vector: side}) < enough:
        side //= 2
    outer = [n for n in facts.shared if n not in (vector, other)]
    # Rows of a block stay whole where the loops around make the groups: they are written in one run.
    longest = BLOCK if count(facts, dict.fromkeys(outer, 1)) >= enough else side
    beside = _beside(facts, kernel, outer)
    copied = {} if beside else _copied(facts, kernel, lanes, side)
    step = LEAST if _is_aligned(facts, vector) else lanes
    square = {
        n: _even(facts.extents[n], side, copied.get(n, step)) for n in (other, vector) if longest < facts.extents[n]
    }
    square = square if wanted > 1 else {}
    outer = sorted(outer, key=lambda n: n in beside)
    groups = cut(facts, outer, beside, -(-wanted // count(facts, square))) | square
    levels = group_levels(groups, ())
    around = [(n, 1) for n in outer if groups.get(n) != 1]
    rows = square.get(other, facts.extents[other])
    near = _near_rows(facts, kernel, lanes) if copied or _rows_stay(facts, other, rows) else lanes
    if copied:
        walk = [*around, *copied.items(), (vector, near), (other, lanes)]
    else:
        walk = _walk(facts, kernel, _Sides(lanes, near, rows), around, beside)
    levels += [Level(Bind.NONE, (Cover(n, s),)) for n, s in walk]
    stagings = tuple(Staging(u.buffer, len(levels) - 1, "REG", (vector, other)) for u in kernel.reads)
    if copied:
        stagings = (_copy(facts, kernel, len(levels) - 3), *stagings)
    levels += [
        Level(Bind.UNROLL, (Cover(other, 1),)),
        Level(Bind.VECTOR, (Cover(vector, 1),), lanes=dict(walk)[vector]),
    ]
    return Plan(tuple(levels), stagings, reason="transposed in registers")


def _copied(facts: Facts, kernel: Turned, lanes: int, side: int) -> dict[str, int]:
    """Iterations that a copy of the result in the first cache holds, from which it is stored in whole rows; none without one.

    It pays in results that stay in the caches where the lines of a tile's rows push one another out of their sets before the
    next tile goes on with them: each is fetched and written back once more, which takes longer than to copy it. So it does
    where vectors straddle lines, on a machine whose stores wait for both of them.
    """
    results, near = _results(facts), facts.cache(1)
    width = max(type.dtype.bytes for type in results)
    row = min(ROW_LINES * near.line // width, side)
    far = _goes_far(facts)
    beyond = sum(nbytes(facts.view.type_of(u.buffer)) for u in facts.main.uses) > facts.cache(2).bytes
    again = 0.0 if _rows_stay(facts, kernel.other, lanes) else 2 * width / near.line * facts.line_cost(2)
    waits = facts.cache(3).straddle / lanes if beyond and not _is_aligned(facts, kernel.vector) else 0.0
    if len(results) > 1 or far or max(again, waits) <= _copying(facts) / lanes or facts.extents[kernel.vector] < row:
        return {}
    column = min(COLUMN_LINES * near.line // width, near.bytes // width // row, side)
    return {kernel.other: column, kernel.vector: row}


def _copying(facts: Facts) -> float:
    """Cycles in which the ports load and store a vector once more."""
    ports, unit = facts.machine.ports, facts.machine.vector
    return (1 / ports.load + 1 / ports.store) * max(1.0, facts.settings.vector_bytes / (unit.native or unit.bytes))


def _results(facts: Facts) -> list[TensorType]:
    return [facts.view.type_of(u.buffer) for u in facts.main.uses if u.writes]


def _goes_far(facts: Facts) -> bool:
    """No cache keeps the result, whose lines come one by one."""
    return max(map(nbytes, _results(facts))) > lines_far_from(facts.machine, facts.settings)


def _copy(facts: Facts, kernel: Turned, level: int) -> Staging:
    """The copy, whose rows begin a line further on than a power of two."""
    (result,) = (u.buffer for u in facts.main.uses if u.writes)
    pad = facts.cache(1).line // facts.view.type_of(result).dtype.bytes
    return Staging(result, level, "L1", (kernel.other, kernel.vector), pad=pad)


def _near_rows(facts: Facts, kernel: Turned, lanes: int) -> int:
    """Rows of the operands in a tile: as many as find room in their sets until the next tile goes on with their lines."""
    near, width = facts.cache(1), min(type.dtype.bytes for type in _results(facts))
    steps = [facts.step(u, kernel.vector) for u in kernel.reads]
    while lanes * width > LEAST_RUN and any(
        footprint_sets(lanes, s, near.line, near, facts.pages()) > 1 for s in steps
    ):
        lanes //= 2
    return lanes


def _beside(facts: Facts, kernel: Turned, outer: Sequence[str]) -> dict[str, int]:
    """The loop that goes on along the operands' lines where runs along `other` are short, and its steps to a line's end."""
    run, line = facts.extents[kernel.other], facts.cache(1).line // facts.bytes
    if 2 * run > line:
        return {}
    return {n: -(-line // run) for n in outer if all(abs(facts.stride(u, n)) == run for u in kernel.reads)}


@frozen
class _Sides:
    lanes: int
    """Rows of the result in a tile, and of the operands unless they are near."""
    near: int
    """Rows of the operands in a tile that stays in the first cache."""
    rows: int
    """Rows of the result in a block of tiles."""


def _walk(
    facts: Facts, kernel: Turned, sides: _Sides, around: list[tuple[str, int]], beside: Collection[str]
) -> list[tuple[str, int]]:
    """Loops with their steps, outermost first, that lead from tile to tile; those `beside` finish the operands' lines."""
    vector, other, lanes = kernel.vector, kernel.other, sides.lanes
    if around and facts.extents[vector] < lanes:
        # What is next to a short run of the result is another loop's: all of them within a step along the operand.
        return [(other, lanes), *around, (vector, lanes)]
    inner = [step for step in around if step[0] in beside]
    around = [step for step in around if step[0] not in beside]
    far = _is_far(facts, kernel) or not _rows_stay(facts, other, sides.rows)
    if not inner and not _is_aligned(facts, vector) and far and _rows_stay(facts, other, lanes):
        # Along the result's lines: each is written to its end while it is near, which it is not when the next tile comes.
        return [*around, (other, lanes), (vector, lanes)]
    # Along the operand's lines: each is read to its end while it is near, wherever lines begin; those of the result are
    # written at once where they begin with its rows, one after another of a strip's tiles where elements are narrow.
    line = facts.cache(1).line // max(type.dtype.bytes for type in _results(facts))
    if _is_aligned(facts, vector) and sides.near == lanes < line:
        return [*around, (vector, line), *inner, (other, lanes), (vector, lanes)]
    return [*around, (vector, sides.near), *inner, (other, lanes)]


def _is_far(facts: Facts, kernel: Turned) -> bool:
    """The result goes to memory, a few rows at a time best, and what is read waits for the next rows in near caches."""
    near, line, tlbs = facts.cache(2), facts.cache(1).line, facts.machine.pages.tlbs
    pages = tlbs[0].entries if tlbs else 0
    steps = [facts.step(u, kernel.vector) for u in kernel.reads]
    stays = (footprint_sets(BLOCK, step, line, near, facts.pages()) <= 0.5 for step in steps)
    return _goes_far(facts) and BLOCK * max(steps) <= pages * facts.pages() and all(stays)


def _rows_stay(facts: Facts, loop: str, rows: int) -> bool:
    """The lines that so many rows of each result are written at, two for each, find room in the first cache.

    Or most of them would not, did they fall into its sets evenly.
    """
    near = facts.cache(1)
    evenly = 2 * rows * near.line / near.bytes
    return all(
        footprint_sets(rows, facts.step(use, loop), near.line, near, facts.pages()) <= max(1.0, 2 * evenly)
        for use in facts.main.uses
        if use.writes
    )


def _is_aligned(facts: Facts, loop: str) -> bool:
    """Rows along the loop begin where lines do."""
    return facts.extents[loop] * facts.bytes % facts.cache(1).line == 0


def close_plan(facts: Facts, kernel: Turned) -> Plan | None:
    """Vectors of elements that lie a few steps apart, as shuffles or gathers fetch them; for what is kept in the caches."""
    vector, other = kernel.vector, kernel.other
    far = any(abs(facts.stride(u, vector)) > CLOSE for u in kernel.reads)
    lanes = min(facts.lanes, facts.machine.vector.registers // 2)
    if far or facts.extents[other] > _few(facts, kernel, lanes) or _goes_far(facts) or facts.extents[vector] < lanes:
        return None
    return vectors_plan(facts, vector, lanes, [other], "elements a few steps apart")


def _few(facts: Facts, kernel: Turned, lanes: int) -> int:
    """Vectors that are fetched by themselves rather than out of a tile."""
    narrow = all(facts.view.type_of(u.buffer).dtype.bytes < WORD for u in kernel.reads)
    return FEW if narrow and lanes >= CLOSE else CLOSE


def _even(extent: int, side: int, step: int) -> int:
    """Iterations of each of as many blocks as `side` makes, whole steps that differ little: the last block is no sliver."""
    return min(side, -(-extent // -(-extent // side) // step) * step)
