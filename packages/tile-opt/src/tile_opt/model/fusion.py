"""The cost of a kernel before it is scheduled, from its normal form: for choosing what to fuse and what to recompute.

No schedule is made for that. It is enough to know which loop vector lanes can take, whether operands are reused in
registers, and which bytes reach which cache: a merger that loses one of them costs more than it saves. `model.estimate`
is exact where this is a guess, and takes a thousand times as long as a choice may.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from types import MappingProxyType

from tile_ir.frozen import frozen
from tile_ir.machine import Cache, Machine
from tile_ir.stripe.affine import names_in
from tile_ir.stripe.nodes import Bind, Index, Refinement

from tile_opt.kernel.regroup import drop_unit_loops, share, unique_loops
from tile_opt.kernel.segments import fills_vectors
from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.unify import is_atomic, shared_loops
from tile_opt.kernel.view import KernelView, Stage, Use, is_parallel
from tile_opt.kernel.work import carries, is_heavy, merged_use, nbytes, op_cost, points, repeats
from tile_opt.model.footprint import Box, stepped

SECTORS = 8
"""Transactions of a sub-group whose items read far apart, for one where they read side by side."""
HIDDEN = 0.5
"""What a step for each iteration of the kernel costs beside the stages that walk a row there, out of order."""
VECTORS = 4
"""Vectors that a tile of a processor has side by side, as a rule."""
LONG = 64
"""Steps of a chain while which nothing of the next one begins."""
WALKS = 2
"""Pages that a core looks up at once."""
PIECES = 4
"""Pieces of a line at least, where fetching it again for each is not hidden: larger ones arrive while others are worked on."""
NOTHING: Mapping[str, float] = MappingProxyType({})


@frozen
class Forecast:
    """Seconds of one run, by cause."""

    arithmetic: float
    """Issuing instructions, loads and stores included."""
    memory: float
    """Moving bytes that are not in the nearest cache."""
    launch: float

    @property
    def seconds(self) -> float:
        """Bytes move while others are worked on."""
        return max(self.arithmetic, self.memory) + self.launch


def forecast(view: KernelView, machine: Machine, cycles: float | None = None) -> Forecast:
    """The cost of a kernel whose shared loops are around its stages, with every local buffer in its `allocs`.

    `cycles` are those of one core for its arithmetic, where they are known better than from here.
    """
    busy = _busy(view, machine)
    cycles = sum(_cycles(view, machine)) if cycles is None else cycles
    seconds = cycles / (machine.clock_ghz * 1e9) / busy
    launch = machine.launch.kernel + (machine.launch.handoff if busy > 1 else 0)
    return Forecast(seconds, _memory_seconds(view, machine, busy), launch)


def forecast_tiled(
    parts: Sequence[KernelView], boxes: Collection[str], machine: Machine, known: Mapping[str, float] = NOTHING
) -> Forecast:
    """The cost of kernels that run on tiles, and exchange `boxes` that are private to a tile.

    `known` has the cycles of the arithmetic of some of them, by their names.
    """
    tiles = prod(i.range for i in parts[0].loops if i.bind is Bind.GRID)
    busy = max(1, min(machine.cores, tiles))
    cycles = sum(known[v.name] if v.name in known else sum(_cycles(v, machine)) for v in parts)
    mains = {(r.into, w): nbytes(r.type) for v in parts for r, w in _main_uses(v) if r.into not in boxes}
    whole = sum({name: size for (name, _), size in mains.items()}.values())
    memory = sum(_move(size, whole, writes, machine, busy) for (_, writes), size in mains.items())
    again = {buffer: each for view in parts for buffer, each in _read_again(view)}
    memory += sum(_move(each * (tiles - 1), each, False, machine, busy) for each in again.values())
    shared = {r.into: nbytes(r.type) for v in parts for r in v.refs if r.into in boxes}
    times = [(shared[r.into], w) for v in parts for r, w in _main_uses(v) if r.into in boxes]
    # What each tile reads anew comes between who writes a box and who reads it.
    near = sum((*shared.values(), *again.values()))
    memory += sum(_move(tiles * size, near, writes, machine, busy) for size, writes in times)
    memory += _fetching_again(parts, {i.name for i in parts[0].loops if i.bind is Bind.GRID}, machine, busy)
    launch = machine.launch.kernel + (machine.launch.handoff if busy > 1 else 0)
    return Forecast(cycles / (machine.clock_ghz * 1e9) / busy, memory, launch)


def _read_again(view: KernelView) -> Iterator[tuple[str, int]]:
    """What many tiles read, and the bytes that each of them does."""
    tiles = {i.name: i.range for i in view.loops if i.bind is Bind.GRID}
    for buffer in view.again:
        moved = names_in(f for _, use in view.users(buffer) for f in use.forms)
        yield buffer, nbytes(view.type_of(buffer)) // prod(r for n, r in tiles.items() if n in moved)


def forecast_flat(view: KernelView, machine: Machine) -> float:
    """Seconds of a kernel whose loops are all in its stages: those that its stages can share are shared."""
    return forecast(sharing(view), machine).seconds


def sharing(view: KernelView) -> KernelView:
    """The kernel with all loops that its stages can share around them."""
    flat = unique_loops(drop_unit_loops(view))
    return share(flat, shared_loops(flat))


def _busy(view: KernelView, machine: Machine) -> int:
    """Cores that have something to do."""
    return max(1, min(machine.cores, pieces(view, machine))) if machine.cores > 1 else 1


def pieces(view: KernelView, machine: Machine, vectors: int = 1) -> int:
    """What may be shared between cores: what so many vectors of a processor take together is one core's."""
    width = _width(view, machine) if machine.occupancy is None else 1
    lane = _shared_lanes(view, width) if width > 1 else None
    return prod(-(-i.range // (vectors * width)) if i is lane else i.range for i in view.loops)


def neighbours(view: KernelView, machine: Machine) -> int | None:
    """Cells side by side that lanes of a processor take, up to as many as hide all latencies; None where lanes go along rows."""
    width = _width(view, machine)
    lane, enough = _shared_lanes(view, width), 2 * VECTORS * width
    return None if lane is None else min(enough, _side_by_side(view, lane, enough))


def waits(view: KernelView, machine: Machine) -> bool:
    """Some stage is a long chain of a processor beside which nothing runs but its neighbours' chains."""
    return any(_is_alone(view, stage, machine) for stage in view.stages)


def _shared_lanes(view: KernelView, width: int) -> Index | None:
    """The loop around all stages that runs across lanes."""
    return next((i for i in reversed(view.loops) if _takes_lanes(view, i, width)), None)


def _between_lanes(view: KernelView, width: int) -> Index | None:
    """The short loop that fills the gaps which lanes of the loop around it leave: together they store whole vectors."""
    if any(s.loops for s in view.stages):
        return None
    uses = [u for u in view.uses if not view.is_local(u.buffer)]
    loops = [(i, [(u.writes, flat_stride(view, u, i.name)) for u in uses]) for i in view.loops if is_parallel(i)]
    short = (i for i, steps in loops if i.range < width and all(step in (0, 1) and step >= w for w, step in steps))
    found = next(short, None)
    if found is None:
        return None
    near = {True: (found.range,), False: (0, 1, found.range)}
    around = (i.range >= width and all(step in near[writes] for writes, step in steps) for i, steps in loops)
    return found if any(around) else None


def _side_by_side(view: KernelView, lane: Index, enough: int) -> int:
    """Iterations of `lane` and of loops around all stages that go on where it ends: they become one, if there are not `enough`."""
    uses = [u for u in view.uses if not view.is_local(u.buffer)]
    run = lane.range
    while run < enough:
        wider = (i.range for i in view.loops if i.range > 1 and _goes_on(view, uses, lane, i, run))
        if (times := next(wider, None)) is None:
            break
        run *= times
    return run


def _goes_on(view: KernelView, uses: Sequence[Use], lane: Index, loop: Index, run: int) -> bool:
    """Each step of `loop` is one of `run` iterations of `lane`, in all buffers."""
    if loop is lane or not is_parallel(loop):
        return False
    return all(flat_stride(view, u, loop.name) == run * (flat_stride(view, u, lane.name) or 0) for u in uses)


# --- arithmetic ------------------------------------------------------------------------------------


def _cycles(view: KernelView, machine: Machine) -> Iterator[float]:
    """Cycles of one core for all iterations of each stage."""
    width = _width(view, machine)
    shared = _shared_lanes(view, width) or (_between_lanes(view, width) if machine.occupancy is None else None)
    walks = any(s.loops for s in view.stages)
    rows = all(len(s.loops) <= 1 for s in view.stages)
    for stage in view.stages:
        lane = shared or next((i for i in reversed(stage.loops) if _row_lanes(view, stage, i, width)), None)
        each = _iteration_cycles(view, stage, lane, width, machine)
        if lane is not None and lane is shared and _is_alone(view, stage, machine):
            each = _in_columns(each, _side_by_side(view, lane, VECTORS * width), width, machine)
        elif lane is None and _is_chain(stage):
            each = max(each, machine.ports.add_latency)
        hidden = HIDDEN if lane is None and walks and not stage.loops else 1
        filled = _shared_filled(view, stage, lane, width, machine) if lane is shared else _own_filled(lane, rows, width)
        gathered = _gathered(view, stage, lane, machine) if lane is shared else 0
        yield points(stage, view.ranges) * repeats(stage, view) / filled * each * hidden + gathered / machine.ports.load


def _own_filled(lane: Index | None, rows: bool, width: int) -> float:
    """Lanes that a stage's own loop takes of each vector: `rows` of all stages alike lie across lanes where they are short."""
    if lane is None:
        return 1
    return width if rows else lane.range / -(-lane.range // width)


def _shared_filled(view: KernelView, stage: Stage, lane: Index | None, width: int, machine: Machine) -> float:
    """Lanes that a loop around all stages takes of each vector: tiles of a processor's products end in masked ones."""
    if lane is None:
        return 1
    if machine.occupancy is not None or not is_heavy(view, stage):
        return width
    run = _side_by_side(view, lane, 2 * VECTORS * width)
    return run / -(-run // width)


def _gathered(view: KernelView, stage: Stage, lane: Index | None, machine: Machine) -> int:
    """Elements that tiles of a processor's product copy one by one, each once, because its lanes would read them apart."""
    if lane is None or machine.occupancy is not None or not is_heavy(view, stage):
        return 0
    apart = (u for u in stage.uses if u.reads and abs(flat_stride(view, u, lane.name)) > 1)
    return sum(prod(view.ranges.get(n, 1) for n in names_in(u.forms)) for u in apart)


def _in_columns(each: float, columns: int, width: int, machine: Machine) -> float:
    """Cycles for as many elements as a vector has, of a chain over so many columns, where a step by itself takes `each`."""
    vectors = -(-columns // width)
    return max(each, machine.ports.add_latency / min(vectors, VECTORS)) * vectors * width / columns


def _iteration_cycles(view: KernelView, stage: Stage, lane: Index | None, width: int, machine: Machine) -> float:
    """Cycles of one iteration of a stage, or of one vector of them along `lane`."""
    ports = machine.ports
    work = max(1, op_cost(stage)) / ports.fma
    if lane is not None and is_heavy(view, stage) and len(view.loops) > 1 and lane in view.loops:
        return work
    loads, stores = _accesses(view, stage, lane, 1 if lane is None else width, machine)
    return max(work, loads / ports.load, stores / ports.store)


def _is_chain(stage: Stage) -> bool:
    """Each step of the stage waits for the one before."""
    return (merged_use(stage) is not None and bool(stage.loops)) or carries(stage)


def _is_alone(view: KernelView, stage: Stage, machine: Machine) -> bool:
    """The stage is a chain of a processor that is long, and no row of a tile: nothing but vectors side by side runs while it waits."""
    long = prod(i.range for i in stage.loops) > LONG
    return machine.occupancy is None and long and _is_chain(stage) and not is_heavy(view, stage)


def _width(view: KernelView, machine: Machine) -> int:
    """Elements that run across lanes."""
    if machine.occupancy is not None:
        return machine.occupancy.subgroup
    return max(1, machine.vector.bytes // view.scalar_bytes)


def _accesses(view: KernelView, stage: Stage, lane: Index | None, width: int, machine: Machine) -> tuple[float, float]:
    """Loads and stores of one iteration, or of one vector of them; cells of their own are registers."""
    loads = stores = 0.0
    for use in stage.uses:
        if _in_register(view, stage, use):
            continue
        step = 0 if lane is None else flat_stride(view, use, lane.name)
        times = _transactions(step, width, machine)
        loads += times if use.reads else 0
        stores += times if use.writes else 0
    return loads, stores


def _transactions(step: int, width: int, machine: Machine) -> float:
    """Accesses that one of a vector is whose elements lie so many apart: a sub-group's sectors know no direction."""
    if machine.occupancy is not None:
        return float(max(1, min(abs(step), SECTORS)))
    return 1.0 if step in (0, 1) else float(width)


def _in_register(view: KernelView, stage: Stage, use: Use) -> bool:
    """One cell for all iterations of the stage's own loops."""
    if view.is_local(use.buffer) and prod(view.type_of(use.buffer).sizes) == 1:
        return True
    own = set(stage.loop_names)
    return bool(own) and not any(own.intersection(f.names) for f in use.forms)


def _takes_lanes(view: KernelView, loop: Index, width: int) -> bool:
    """All stages store side by side along the loop, or merge wherever data says, and few loads are scattered."""
    if not is_parallel(loop):
        return False
    for stage in view.stages:
        alone = not stage.loops and len(view.stages) == 1
        for use in stage.uses:
            near = view.is_local(use.buffer) or (use.agg is not None and is_atomic(stage, use))
            step = 1 if near else flat_stride(view, use, loop.name)
            if use.writes and step != 1:
                return False
            if use.reads and abs(step) > 1 and not alone and not is_heavy(view, stage):
                return False
    least = min(width, 4)
    return loop.range >= least or (loop.range > 1 and _side_by_side(view, loop, least) >= least)


def _row_lanes(view: KernelView, stage: Stage, loop: Index, width: int) -> bool:
    """The stage walks memory side by side along its own loop; what it aggregates there is one cell."""
    if not is_parallel(loop):
        return False
    if not fills_vectors(loop.name, stage.constraints, view.ranges, width):
        return False
    steps = [(u, flat_stride(view, u, loop.name)) for u in stage.uses]
    if any(step not in (0, 1) for _, step in steps) or not any(step for _, step in steps):
        return False
    own = set(stage.loop_names)
    return all(step or not own.intersection(n for f in u.forms for n in f.names) for u, step in steps if u.writes)


# --- memory ----------------------------------------------------------------------------------------


def _memory_seconds(view: KernelView, machine: Machine, busy: int) -> float:
    """Each buffer of main once from where it lies, and local buffers beyond the nearest cache at every access."""
    whole = sum(nbytes(r.type) for r in view.refs)
    total = sum(_move(size, whole, writes, machine, busy) for size, writes in _mains(view))
    total += _in_strips(view, whole, machine, busy) + _in_pieces(view, machine, busy)
    local = tile_bytes(view, machine)
    if not machine.caches or local <= machine.caches[0].bytes:
        return total
    return total + sum(_move(size, local, writes, machine, busy) for size, writes in _locals(view))


def _in_strips(view: KernelView, whole: int, machine: Machine, busy: int) -> float:
    """Seconds that stages lose which walk columns of memory one after the other, a vector wide, before the next columns' turn.

    Lines that a vector shares with its neighbours are fetched for each, and where a strip has rows on more pages than are
    at hand each is looked up. Stages by themselves would walk whole rows.
    """
    width = _width(view, machine)
    lane = _shared_lanes(view, width) if machine.occupancy is None else None
    walks = [s for s in view.stages if s.loops]
    around = prod(i.range for i in view.loops if i is not lane)
    if lane is None or len(walks) < 2 or not machine.caches or whole <= around * _share(machine.caches[-1], busy):
        return 0.0
    line, extra, rows = machine.caches[0].line, 0.0, 0
    for stage, use in ((s, u) for s in walks for u in s.uses if _is_strip(view, s, u, lane)):
        type = view.type_of(use.buffer)
        ragged = any(flat_stride(view, use, i.name) * type.dtype.bytes % line for i in stage.loops)
        extra += _move(nbytes(type), whole, use.writes, machine, busy) if ragged else 0.0
        rows += prod(i.range for i in stage.loops)
    tlb = machine.pages.tlbs[-1] if machine.pages.tlbs else None
    if tlb is None or rows <= tlb.entries:
        return extra
    strips = around * -(-lane.range // width)
    return extra + rows * strips * tlb.latency / WALKS / (machine.clock_ghz * 1e9) / busy


def _in_pieces(view: KernelView, machine: Machine, busy: int) -> float:
    """Seconds that stages lose which walk memory one after the other in pieces of lines: by themselves they would walk whole rows."""
    walks = sum(1 for s in view.stages if s.loops)
    if walks < 2 or machine.occupancy is not None or _shared_lanes(view, _width(view, machine)) is not None:
        return 0.0
    return _fetching_again([view], {i.name for i in view.loops}, machine, busy)


def _fetching_again(parts: Sequence[KernelView], around: Collection[str], machine: Machine, busy: int) -> float:
    """Seconds to fetch lines for each iteration of the loops `around` that takes a piece of them, but the first.

    They come from the nearest cache that holds all lines of an iteration.
    """
    if machine.occupancy is not None or not machine.caches:
        return 0.0
    line = machine.caches[0].line
    walks = ((v, s, u) for v in parts for s in v.stages if s.loops for u in s.uses if not v.is_local(u.buffer))
    boxes = [(v, u, _touched(v, s, u, around, line)) for v, s, u in walks]
    near = sum({u.buffer: _line_bytes(box, line) for _, u, box in boxes}.values())
    if near <= machine.caches[0].bytes:
        return 0.0
    pieces = ((v, u, _line_bytes(box, line)) for v, u, box in boxes if box.run * PIECES <= line)
    return sum(_move(_again(v, u, each, around), near, u.writes, machine, busy) for v, u, each in pieces)


def _touched(view: KernelView, stage: Stage, use: Use, around: Collection[str], line: int) -> Box:
    """What one iteration of the loops `around` touches through an access, from its first byte on."""
    size = view.type_of(use.buffer).dtype.bytes
    loops = (i for i in (*view.loops, *stage.loops) if i.name not in around)
    steps = ((abs(flat_stride(view, use, i.name)) * size, i.range) for i in loops)
    return stepped(0, size, sorted(step for step in steps if step[0]), line)


def _line_bytes(box: Box, line: int) -> int:
    return round(box.lines(line)) * line


def _again(view: KernelView, use: Use, each: int, around: Collection[str]) -> int:
    """Bytes beyond the whole buffer, where each iteration that moves in it fetches so many."""
    moving = names_in(use.forms).intersection(around)
    return max(0, each * prod(view.ranges[n] for n in moving) - nbytes(view.type_of(use.buffer)))


def _is_strip(view: KernelView, stage: Stage, use: Use, lane: Index) -> bool:
    """An access to main that goes down columns along the lanes."""
    moved = any(flat_stride(view, use, i.name) for i in stage.loops)
    return moved and not view.is_local(use.buffer) and flat_stride(view, use, lane.name) == 1


def tile_bytes(view: KernelView, machine: Machine) -> int:
    """Local memory of one tile: lanes along a loop around all stages have a copy each of what is not in registers."""
    rows = sum(nbytes(a.type) for a in view.allocs if prod(a.type.sizes) > 1)
    width = _width(view, machine)
    across = machine.occupancy is None and _shared_lanes(view, width) is not None
    return rows * width * VECTORS if across else rows


def _mains(view: KernelView) -> Iterator[tuple[int, bool]]:
    """(bytes, written) of each buffer of main, once for reading and once for writing."""
    return ((nbytes(ref.type), writes) for ref, writes in _main_uses(view))


def _main_uses(view: KernelView) -> Iterator[tuple[Refinement, bool]]:
    """Each buffer of main, once for reading and once for writing."""
    reads, writes = view.reads(), view.writes()
    for ref in view.refs:
        if ref.into in reads:
            yield ref, False
        if ref.into in writes:
            yield ref, True


def _locals(view: KernelView) -> Iterator[tuple[int, bool]]:
    """(bytes, written) of each access to a local buffer, in all iterations of the shared loops."""
    times = prod(i.range for i in view.loops)
    for use in (u for u in view.uses if view.is_local(u.buffer)):
        yield times * nbytes(view.type_of(use.buffer)), use.writes


def _move(size: int, among: int, write: bool, machine: Machine, busy: int) -> float:
    """Seconds to move bytes that lie in the nearest cache which holds `among`, or in memory."""
    cache = next((c for c in machine.caches if among <= _share(c, busy)), None)
    if cache is not None:
        rate = (cache.write or cache.bandwidth) if write else cache.bandwidth
        return size / (rate * machine.clock_ghz * 1e9 * busy)
    widths = machine.memory.all_cores if busy > 1 else machine.memory.one_core
    return size / ((widths.write if write else widths.read) * 1e9)


def _share(cache: Cache, busy: int) -> int:
    """Bytes that the busy cores have of a cache together."""
    return cache.bytes * max(1, busy // max(1, cache.shared))
