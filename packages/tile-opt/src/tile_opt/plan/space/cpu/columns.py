"""Vectors along the shared loop that results lie along: a register tile of rows and vectors, windows that overlap shared."""

from __future__ import annotations

from math import gcd, prod

from tile_ir.frozen import frozen, replace
from tile_ir.powers import power_of_two
from tile_ir.stripe.affine import names_in
from tile_ir.stripe.nodes import Bind

from tile_opt.kernel.segments import interior
from tile_opt.kernel.unify import is_indirect
from tile_opt.kernel.work import carries, is_elementwise, nbytes, op_cost
from tile_opt.lowering.memory import SPREAD
from tile_opt.plan.plan import Cover, Edge, Level, Plan, Staging
from tile_opt.plan.segments import constraints_on
from tile_opt.plan.space.cpu.facts import MAX_CODE, SPILLS, Facts, filled, vector_ops
from tile_opt.plan.space.cpu.groups import count, cut, cut_rows, group_levels, wanted_groups
from tile_opt.plan.space.cpu.order import in_pieces, in_windows
from tile_opt.plan.steps.bind import MAX_DECIDED

FEW_LANES = 4
"""Lanes from which neighbours a few elements apart are computed together, on maps that are not wider."""
MAX_VECTORS = 4
MAX_STREAM_VECTORS = 16
MAX_UNROLL = 16
MAX_OPS = 32
"""Operations of straight-line code in which neighbouring vectors are computed together."""
MAX_STRAIGHT = 512
"""Operations of all stages that are straight-line code of several vectors each."""
WINDOW = 64
"""Steps of a result, such as a pooling's, that are few."""
SIDE_BY_SIDE = 8
"""Runs shorter than vectors that are moved together, where no more make whole vectors."""
FEW_VECTORS = 2
"""Vectors along the output that are too few to hide the latency of a step."""
STREAMED, SHORT = 2, 4
"""Vectors of an operand in registers at once where each is done with when it has been added, and operations up to which it is soon."""
STEP = 3
"""Instructions that a loop takes for itself."""
FASTER = 1.05
"""Times by which a window as straight-line code must be faster than one in loops."""


def column_plan(facts: Facts, vector: str) -> Plan:
    one_by_one = vector in facts.constrained and not facts.settings.masks
    spread, found = (is_spread(facts, vector) or one_by_one) and facts.may_overlap(), _found_lanes(facts, vector)
    lanes = _spread_lanes(facts, vector) if spread else found or facts.lanes
    short = _short_runs(facts, vector)
    unroll = short[0] if short else unroll_loop(facts, vector)
    if short:
        lanes, vectors, window = power_of_two(facts.extents[vector]), 1, ()
        rows = short[1]
    else:
        rows, vectors, window = _register_tile(facts, vector, unroll)
        vectors = -(-facts.extents[vector] // lanes) if found else vectors
    if rows == 1 or (unroll and facts.is_ragged(unroll, rows)):
        unroll = None
    if unroll and not window and facts.heavy and not _moved_sums(facts):
        window = facts.window([(unroll, rows)], vectors)
    outer = _lines_inside(facts, vector, [n for n in facts.shared if n not in (vector, unroll)])
    sizes = {vector: vectors * lanes} | ({unroll: rows} if unroll else {})
    order = [*outer, vector, *((unroll,) if unroll else ())]
    sliding = bool(unroll and _sliding(facts, vector, unroll))
    steps = in_pieces(facts, order, sizes) if facts.heavy else in_windows(facts, order) if sliding else None
    order = sorted(order, key=lambda n: -steps[n]) if steps else order
    grid = (
        cut(facts, order, sizes, wanted_groups(facts)) if steps else _column_groups(facts, outer, unroll, vector, sizes)
    )
    levels = group_levels(grid, order, sizes)
    inner, sums = _inner_levels(facts, vector, unroll, window, len(levels))
    levels += [*inner, Level(Bind.VECTOR, (Cover(vector, 1),), lanes=lanes)]
    again = vector in grid or (_sums(facts) and facts.settings.masks)
    overlapping = ((vector, Edge.OVERLAP),) if (spread or found) and vector not in grid else facts.tails(vector, again)
    edges = () if short else overlapping
    return Plan(tuple(levels), sums, edges=edges, reason="vectors along the output")


def _short_runs(facts: Facts, vector: str) -> tuple[str, int] | None:
    """The loop from run to run of a result, where these are vectors of fewer lanes, and how many go together, none under a mask.

    Runs of any length that follow each other are whole vectors together (`tile_opt.semtree.side_by_side`).
    """
    run, plain = facts.extents[vector], len(facts.view.stages) == 1 and is_elementwise(facts.main)
    if not plain or facts.main.loops or facts.constrained or not 2 <= run < facts.lanes:
        return None
    if any(facts.stride(u, vector) not in (0, 1) for u in facts.memory_uses()):
        return None
    loops = [n for n in reversed(facts.shared) if n != vector and facts.is_free(n)]
    whole = facts.lanes // gcd(run, facts.lanes)
    writes = [u for u in facts.memory_uses() if u.writes]
    for loop in (n for n in loops if facts.extents[n] >= whole):
        if all(facts.stride(u, loop) == run for u in writes):
            return loop, whole * max(1, SIDE_BY_SIDE // whole)
    apart = next((n for n in loops if facts.extents[n] >= SIDE_BY_SIDE), None) if run == power_of_two(run) else None
    return (apart, _divisor(facts.extents[apart])) if apart is not None and 2 * run <= facts.lanes else None


def _divisor(extent: int) -> int:
    """Runs that are moved together: a whole number of times, so that no line is written by two loops."""
    return next((n for n in range(SIDE_BY_SIDE, 1, -1) if extent % n == 0), 1)


def _lines_inside(facts: Facts, vector: str, outer: list[str]) -> list[str]:
    """The loops in an order in which those that go on along short runs, of operands or the result, are inside the others.

    Where they are different ones, lines of the operands would be gone when their next runs are read.
    """
    run, line = facts.extents[vector], facts.cache(1).line
    if facts.heavy or facts.main.loops or len(facts.view.stages) > 1:
        return outer
    if run * facts.bytes >= line:
        return _as_read(facts, outer)
    ends = [{n for n in outer if abs(facts.stride(u, n)) == run} for u in facts.memory_uses()]
    if ends.count(ends[0]) == len(ends) or not all(facts.is_free(n) for n in outer):
        return outer
    return sorted(outer, key=lambda n: any(n in found for found in ends))


def _as_read(facts: Facts, outer: list[str]) -> list[str]:
    """The loops as what is read lies in memory, where results go there: reads are waited for, stores are not."""
    written = (nbytes(facts.view.type_of(u.buffer)) for u in facts.memory_uses() if u.writes)
    reads = [u for u in facts.memory_uses() if u.reads]
    if not reads or max(written) <= facts.settings.l3_bytes // 4 or not all(facts.is_free(n) for n in outer):
        return outer
    largest = max(reads, key=lambda u: nbytes(facts.view.type_of(u.buffer)))
    return sorted(outer, key=lambda n: -abs(facts.stride(largest, n)))


def _inner_levels(
    facts: Facts, vector: str, unroll: str | None, window: tuple[str, ...], first: int
) -> tuple[list[Level], tuple[Staging, ...]]:
    """Levels from number `first` on: the stages' own loops and straight-line code; and the sums that these keep."""
    kept = _moved_sums(facts)
    own = [n for s in facts.view.stages for n in facts.own_order(s)]
    around = [n for n in own if n in kept or n not in facts.main.loop_names] if kept else []
    straight = [*window, unroll] if unroll else []
    # Where edges make straight-line code of them anyway, those in which rows overlap are innermost, too: they share loads.
    sliding = _sliding(facts, vector, unroll) if unroll else ()
    inner = [n for n in sorted(own, key=lambda n: n in sliding) if n not in (*around, *straight)]
    binds = ((Bind.NONE, around), (Bind.NONE, inner), (Bind.UNROLL, straight))
    levels = [Level(bind, tuple(Cover(n, 1) for n in names)) for bind, names in binds if names]
    last = first + bool(around) - 1
    return levels, (Staging(facts.merged.buffer, last, "REG"),) if kept and facts.merged else ()


def _moved_sums(facts: Facts) -> set[str]:
    """Own loops that go from sum to sum, of a main stage whose other loops add to one: it is kept in registers meanwhile."""
    if facts.merged is None or not facts.view.is_local(facts.merged.buffer):
        return set()
    own = set(facts.main.loop_names)
    moved = facts.names(facts.merged) & own
    free = all(facts.is_free(n, facts.main) or facts.extents[n] == 1 for n in own)
    return moved if moved != own and free else set()


def _column_groups(
    facts: Facts, outer: list[str], unroll: str | None, vector: str, sizes: dict[str, int]
) -> dict[str, int]:
    wanted = wanted_groups(facts)
    across = [u for u in facts.reads if facts.stride(u, vector)]
    rows = {n: facts.lanes for n in outer if any(facts.stride(u, n) == 1 for u in across)}
    grid = cut(facts, outer, rows, wanted)
    left = -(-wanted // count(facts, grid))
    if unroll and left > 1:
        chunk = cut_rows(facts, unroll, sizes[unroll], left)
        if chunk < facts.extents[unroll]:
            grid[unroll] = chunk
            left = -(-left // -(-facts.extents[unroll] // chunk))
    return grid | (cut(facts, [vector], sizes, left) if left > 1 else {})


def unroll_loop(facts: Facts, vector: str) -> str | None:
    """A second shared loop along which the vector operands of the main stage are used again."""
    if facts.merged is None:
        return None
    wide = [facts.names(u) for u in facts.reads if vector in facts.names(u)]
    for name in reversed(facts.shared):
        if name != vector and facts.extents[name] >= 2 and any(name not in found for found in wide):
            return name
    long = facts.extents[vector] > FEW_VECTORS * facts.lanes and vector not in facts.constrained
    if prod(i.range for i in facts.main.loops) > WINDOW or long:
        return None
    # Results of few steps each: several at a time hide the latency of a step, and share its masks.
    return next((n for n in reversed(facts.shared) if n != vector and facts.is_free(n) and facts.extents[n] >= 2), None)


def _sliding(facts: Facts, vector: str, unroll: str) -> tuple[str, ...]:
    """Short own loops along which windows of neighbouring rows overlap: as straight-line code they load each row once."""
    if _moved_sums(facts):
        return ()
    short = [n for n in facts.main.loop_names if facts.extents[n] <= MAX_UNROLL and facts.is_free(n, facts.main)]
    wide = [u for u in facts.reads if vector in facts.names(u)]
    return tuple(n for n in short if any(facts.slides(u, unroll, n) for u in wide))


def _register_tile(facts: Facts, vector: str, unroll: str | None) -> tuple[int, int, tuple[str, ...]]:
    """Rows and vectors of the tile that keeps the ports busiest, and the own loops that are unrolled with it."""
    best, found = 0.0, (1, 1, ())
    most = _straight_vectors(facts) if facts.main.loops else max(1, min(MAX_VECTORS, MAX_OPS // vector_ops(facts.main)))
    counts = range(1, min(MAX_UNROLL, facts.extents[unroll]) + 1 if unroll else 2)
    tiles = {rows: _rows_of(facts, vector, unroll, rows) for rows in counts}
    for vectors in range(1, min(most, -(-facts.extents[vector] // facts.lanes)) + 1):
        for tile in (t for rows in counts for t in tiles[rows]):
            rate = _rate(facts, vector, unroll, tile, vectors) / (FASTER if tile.window else 1)
            if rate > best * 1.0001:
                best, found = rate, (tile.rows, vectors, tile.window)
    return found


def _straight_vectors(facts: Facts) -> int:
    """Most vectors of a tile whose stages go along it, each as straight-line code: many stages take long to compile."""
    ops = sum(vector_ops(s) for s in facts.view.stages)
    return max(FEW_VECTORS, min(MAX_STREAM_VECTORS, MAX_STRAIGHT // ops))


@frozen
class _Rows:
    """Rows of a tile, and what one pass through its straight-line code loads: all steps of its window."""

    rows: int
    window: tuple[str, ...]
    steps: int
    wide: int
    """Of each vector of the tile."""
    single: int
    held: int
    """Registers that these take at once, for each vector of the tile."""
    edges: float = 0.0
    """Share of the rows that are at edges, where each window is straight-line code anyway."""
    unrolled: _Rows | None = None


def _rows_of(facts: Facts, vector: str, unroll: str | None, rows: int) -> list[_Rows]:
    """The rows with their windows as loops, and as straight-line code where neighbours share what they load."""
    window = _sliding(facts, vector, unroll) if unroll and rows > 1 else ()
    plain = _counted(facts, vector, unroll, rows, ())
    if not window or not unroll:
        return [plain]
    straight = _counted(facts, vector, unroll, rows, window)
    return [replace(plain, edges=facts.edge_share(unroll, rows), unrolled=straight), straight]


def _counted(facts: Facts, vector: str, unroll: str | None, rows: int, window: tuple[str, ...]) -> _Rows:
    loops = [(n, facts.extents[n]) for n in window] + ([(unroll, rows)] if unroll else [])
    wide = [u for u in facts.reads if vector in facts.names(u)]
    places = {u.name: len(facts.places(u, loops)) for u in facts.reads}
    held = sum(rows if window and unroll in facts.names(u) else 1 for u in wide)
    loads = sum(places[u.name] for u in wide)
    steps = prod(facts.extents[n] for n in window)
    return _Rows(rows, window, steps, loads, sum(places.values()) - loads, held)


def _step(facts: Facts, tile: _Rows, vectors: int) -> float:
    """Cycles of one step of the main stage's loops, for all rows and vectors of a tile."""
    ports = facts.machine.ports
    loads = vectors * tile.wide + tile.single
    work = tile.rows * vectors * tile.steps * vector_ops(facts.main) / ports.fma
    latency = tile.steps * ports.fma_latency if _sums(facts) else 0.0
    return (max(work, loads / ports.load, latency) + 0.1 * loads + STEP / ports.issue) / tile.steps


def _sums(facts: Facts) -> bool:
    """The main stage aggregates over loops of its own, in registers."""
    return facts.merged is not None and bool(facts.main.loops)


def _rate(facts: Facts, vector: str, unroll: str | None, tile: _Rows, vectors: int) -> float:
    """Predicted share of peak of a tile, remainders included; 0 when registers run out or its code is long."""
    rows, ops = tile.rows, vector_ops(facts.main)
    if tile.window and rows * vectors * tile.steps * ops > MAX_CODE:
        return 0.0
    accumulators = rows * vectors if _sums(facts) else 0
    states = _states(facts, vector)
    held = _beside(facts, tile, vectors) * tile.held + vectors * states + 1
    if (accumulators or (states and vectors > 1)) and accumulators + held > facts.settings.registers:
        return 0.0
    step = _step(facts, tile, vectors)
    if tile.unrolled is not None:
        step += tile.edges * (_step(facts, tile.unrolled, vectors) - step)
    if accumulators and unroll and _spills(facts, vector, unroll, rows, vectors):
        step *= SPILLS
    width = vectors * facts.lanes
    shape = filled(facts.extents[vector], width, facts.lanes)
    if not accumulators and facts.may_overlap() and facts.extents[vector] >= facts.lanes:
        shape = facts.extents[vector] / (-(-facts.extents[vector] // facts.lanes) * facts.lanes)
    if unroll:
        shape *= filled(facts.extents[unroll], rows, 1) * (1.0 if facts.extents[unroll] % rows == 0 else 0.99)
    recurrence = carries(facts.main) and not states
    if accumulators or recurrence:
        run = width * facts.bytes
        shape *= run / (run + 128)
    if recurrence:
        shape *= min(1.0, facts.extents[vector] / (vectors * facts.lanes) / facts.settings.cores)
    return rows * vectors * ops / facts.machine.ports.fma / step * shape


def _beside(facts: Facts, tile: _Rows, vectors: int) -> int:
    """Vectors of an operand that are in registers at once: a single row of a long sum of simple terms adds each as it comes."""
    long = prod(i.range for i in facts.main.loops) > WINDOW and not _moved_sums(facts)
    return min(vectors, STREAMED) if tile.rows == 1 and long and op_cost(facts.main) <= SHORT else vectors


def _spills(facts: Facts, vector: str, unroll: str, rows: int, vectors: int) -> bool:
    """Straight-line code at edges takes more registers than there are; vectors that constraints cut run one by one."""
    beside = 1 if vector in facts.constrained else vectors
    return beside * (rows + _kept_rows(facts, vector, unroll, rows)) >= facts.settings.registers


def _kept_rows(facts: Facts, vector: str, unroll: str, rows: int) -> int:
    """Rows that straight-line code at the edges of a loop loads: those of one step are there for the steps beside it."""
    met = names_in(constraints_on(facts.view, unroll)) & set(facts.main.loop_names)
    steps = [(n, min(facts.extents[n], MAX_DECIDED)) for n in sorted(met)]
    moving = [u for u in facts.reads if met and {vector, unroll} <= facts.names(u)]
    return sum(len(facts.places(u, [(unroll, rows), *steps])) for u in moving)


def _states(facts: Facts, vector: str) -> int:
    """Buffers of the kernel's own in which the main stage keeps all that it goes from step to step with: registers.

    None where it reads along the vectors: long runs of memory are worth more than registers.
    """
    written = [u for u in facts.main.uses if u.writes]
    own = all(facts.view.is_local(u.buffer) and u.reads and not u.agg for u in written)
    runs = any(facts.stride(u, vector) == 1 for u in facts.reads if not facts.view.is_local(u.buffer))
    return len(written) if own and not runs and carries(facts.main) else 0


def _spread_lanes(facts: Facts, loop: str) -> int:
    """Lanes that iterations fill which run whatever other loops do, without a mask: it would take the lanes one by one.

    On maps hardly wider than windows there are few of these: straight-line code decides the others.
    """
    low, high = interior(loop, constraints_on(facts.view, loop), facts.extents)
    few = min(FEW_LANES, facts.extents[loop])
    return min(facts.lanes, 1 << max(0, max(few, high - low).bit_length() - 1))


def _found_lanes(facts: Facts, loop: str) -> int:
    """Lanes of two vectors that overlap where data says which short row is read: masks would take the lanes one by one.

    0 for other loops.
    """
    extent, stages = facts.extents[loop], facts.view.stages
    if not 1 < extent < facts.lanes or loop in facts.constrained or not facts.may_overlap():
        return 0
    return 1 << (extent.bit_length() - 1) if any(is_indirect(s, u) for s in stages for u in s.uses) else 0


def is_spread(facts: Facts, loop: str) -> bool:
    """Rows of operands are spread over lanes, by shuffles where these are many: neighbours along the loop are some elements apart."""
    strides = {abs(facts.stride(u, loop)) for u in facts.memory_uses()}
    return not strides <= {0, 1} and max(strides) <= SPREAD and _spread_lanes(facts, loop) >= FEW_LANES
