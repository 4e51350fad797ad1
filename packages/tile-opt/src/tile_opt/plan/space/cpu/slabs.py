"""Few rows times a large matrix: slabs of some steps of the sum are read in long runs where they lie, results stay near."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.stripe.nodes import Bind

from tile_opt.plan.plan import Cover, Level, Plan, Staging
from tile_opt.plan.space.cpu import operands as cpu_operands
from tile_opt.plan.space.cpu.facts import Facts, Operand
from tile_opt.plan.space.cpu.groups import cut, group_levels, is_balanced, wanted_groups
from tile_opt.plan.space.cpu.tiles import Tile

STEPS, MORE = 8, 16
"""Of the sum in a slab: processors fetch ahead along few rows side by side, but results are loaded and stored once for so many."""
FEW = 6
"""Results per column up to which that costs little."""
LONG = 64
"""Steps of a sum that is worth slabs, at least."""
ROWS = 32
"""Results per column for each cycle that a copy of an element takes: from more of them on, the copy costs little beside them."""
RUN = 512
"""Bytes of each row that a group reads at least."""


def slab_plan(facts: Facts, tiles: Sequence[Tile]) -> Plan | None:
    """The best of `tiles` along a large matrix that is read once; None where it is small, used often or not read in runs."""
    for vector in dict.fromkeys(t.vector for t in tiles if t.vector in facts.shared):
        wide = [o for o in facts.operands if vector in o.strides]
        loops = _loops(facts, wide, vector)
        if loops is None:
            continue
        fitting = [t for t in tiles if t.vector == vector and {n for n, _ in t.rows} == {loops[1]}]
        found = _plan(facts, max(fitting, key=lambda t: t.rate), *loops) if fitting else None
        if found is not None:
            return found
    return None


def _loops(facts: Facts, wide: Sequence[Operand], vector: str) -> tuple[str, str] | None:
    """The summed loop that steps from row to row of the only operand along the vectors, and the loop over results of each."""
    if facts.merged is None or not facts.view.is_local(facts.merged.buffer) or len(wide) != 1:
        return None
    matrix, own = wide[0], facts.own_order(facts.main)
    again = [n for n in facts.shared if n not in matrix.strides]
    large = matrix.elements * matrix.bytes > facts.cache(2).bytes
    if (
        not large
        or cpu_operands.is_ahead(facts, matrix, vector)
        or len(own) != 1
        or len(again) != 1
        or facts.constrained & {vector, *again, *own}
    ):
        return None
    apart = abs(matrix.strides.get(own[0], 0)) >= facts.extents[vector] and matrix.strides[vector] == 1
    long = facts.extents[own[0]] >= LONG and facts.is_free(own[0], facts.main)
    few = facts.is_free(again[0]) and facts.extents[again[0]] <= ROWS * cpu_operands.copying(facts, matrix)
    return (own[0], again[0]) if apart and long and few else None


def _plan(facts: Facts, tile: Tile, depth: str, rows: str) -> Plan | None:
    """Groups over columns, slabs, tiles of registers; None where a group's share of a row is a short run."""
    vector, width = tile.vector, tile.vectors * facts.lanes
    steps = STEPS if facts.extents[rows] <= FEW else MORE
    sizes = {depth: steps, vector: width, **dict(tile.rows)}
    outer = [n for n in facts.shared if n not in (vector, rows)]
    grid = cut(facts, outer, {}, wanted_groups(facts))
    shared = wanted_groups(facts) > 1 and not is_balanced(facts, grid)
    piece = _piece(facts, vector, width, facts.settings.cores if shared else 1, facts.extents[rows])
    if piece * facts.bytes < RUN:
        return None
    pieces = {vector: piece} if piece < facts.extents[vector] else {}
    grid |= pieces if shared else {}
    around = [(n, s) for n, s in pieces.items() if n not in grid]
    levels = group_levels(grid, outer)
    levels += [Level(Bind.NONE, (Cover(n, s),)) for n, s in (*around, *((n, sizes[n]) for n in (depth, vector, rows)))]
    sums = () if facts.merged is None else (Staging(facts.merged.buffer, len(levels) - 1, "REG"),)
    levels += [Level(Bind.NONE, (Cover(depth, 1),)), Level(Bind.UNROLL, (Cover(rows, 1),))]
    levels.append(Level(Bind.VECTOR, (Cover(vector, 1),), lanes=facts.lanes))
    return Plan(tuple(levels), sums, edges=facts.tails(vector, True), reason="slabs of the sum, read where they lie")


def _piece(facts: Facts, vector: str, width: int, cores: int, rows: int) -> int:
    """Columns of a group: the same share for each core, or a part of it whose results stay in the second cache."""
    room = max(width, facts.cache(2).bytes // 4 // (rows * facts.bytes))
    groups = cores * -(-facts.extents[vector] // (cores * room))
    return -(-facts.extents[vector] // (groups * width)) * width
