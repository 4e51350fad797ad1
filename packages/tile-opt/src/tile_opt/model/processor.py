"""The time of a kernel on a CPU: arithmetic and the traffic of each cache level overlap, consecutive phases do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, prod

from tile_ir.frozen import replace
from tile_ir.kernels import INLINE_SECONDS, rough_seconds
from tile_ir.machine import Bandwidths, Cache, Machine
from tile_ir.stripe.nodes import Bind

from tile_opt.lowering.cost import counted
from tile_opt.model.arithmetic import Work, crossing, straight_line
from tile_opt.model.caches import Lines, traffic
from tile_opt.model.causes import Cause, Estimate, overlapped
from tile_opt.model.flow import LOOP, Flow, again, block_flow, leaf_flow
from tile_opt.model.scheduled import Access, Loop, Tree
from tile_opt.model.sharing import contended

HORIZON = 2000
"""Cycles of work that a core overlaps with what stands before and after it."""
ENTRY = 6
"""Scalar instructions that start a loop."""
TEST = 2
"""Scalar instructions of one condition."""
SURPRISE = 30
"""Trips of a loop from which on its end is never predicted; of shorter ones it is missed the more often the more trips they have."""
COMBINING = 12
"""Lines that stores past the caches are gathered in at once."""
LONE = 24
"""Whole lines that are on their way to memory at once where none follows the one before it."""
COMPUTE = ("multiply", "add", "vector", "shuffle", "issue")
ACCESS = ("load", "store")


@dataclass(slots=True)
class Phase:
    """Statements that overlap: their work in all executions, and what they move, by buffer and level."""

    work: Work = field(default_factory=Work)
    kept: float = 0
    """Cycles of arithmetic whose results stay in registers from one iteration to the next."""
    waits: float = 0
    """Cycles in which no instruction can start because all wait for results."""
    delay: float = 0
    """Cycles that nothing overlaps."""
    reads: list[float] = field(default_factory=list[float])
    """Bytes that each level gets from the next."""
    writes: list[float] = field(default_factory=list[float])
    non_temporal: float = 0
    """Bytes of whole lines that pass the caches by."""
    pieces: float = 0
    """Writes of parts of lines that pass the caches by."""
    lone: float = 0
    """Lines that pass the caches by with none beside them: memory opens a row for each."""
    pages: float = 0
    """Cycles of translating addresses."""
    apart: list[float] = field(default_factory=list[float])
    """Cycles that lines which each level gets from the next take longer than in sequence: nothing fetches them ahead."""

    @staticmethod
    def empty(machine: Machine) -> Phase:
        levels = len(machine.caches)
        return Phase(reads=[0.0] * levels, writes=[0.0] * levels, apart=[0.0] * levels)


def on_processor(tree: Tree, machine: Machine) -> Estimate:
    """The estimate for a kernel whose grid is dealt out to the cores of `machine`, where that pays."""
    groups = prod(i.extent for i in tree.loops if i.bind is Bind.GRID)
    lines = traffic(tree, machine)
    parts = _parts(tree, machine, lines)
    alone = _spent(parts, machine, groups, 1)
    cores = min(groups, machine.cores)
    if cores < 2 or _rough(tree) < INLINE_SECONDS:
        return alone
    shared = _spent(parts, machine, groups, cores, contended(tree, machine, cores))
    return min(alone, shared, key=lambda e: e.seconds)


def _rough(tree: Tree) -> float:
    """Seconds by which the device decides whether to hand the kernel's groups out (`Kernel.estimated_seconds`)."""
    buffers = {r.source: r.type.nbytes for r in tree.block.refs if r.source}
    return rough_seconds(sum(counted(t.block) * t.points for t in tree.walk()), sum(buffers.values()))


@dataclass(slots=True)
class _Part:
    """What some of the groups do: all phases of one block of the kernel, and in how many groups it runs."""

    phases: list[Phase]
    groups: float


def _parts(tree: Tree, machine: Machine, lines: Mapping[int, Lines]) -> list[_Part]:
    grid = {i.name for i in tree.loops if i.bind is Bind.GRID}
    groups = prod(i.extent for i in tree.loops if i.bind is Bind.GRID)
    if tree.accesses or not grid:
        return [_Part(_phases(tree, machine, lines, 0), groups)]
    return [
        _Part(
            _phases(t, machine, lines, _lasting(tree)),
            max(1.0, groups * min(1.0, t.points / max(1, t.entries * prod(i.extent for i in t.loops)))),
        )
        for t in tree.inner
        if t.points
    ]


def _spent(parts: list[_Part], machine: Machine, groups: int, cores: int, contended: float = 0.0) -> Estimate:
    """The time on so many cores: the groups in even shares, but none shorter than the longest group."""
    found: dict[str, Cause] = {}
    ways = groups / ceil(groups / cores) if groups else 1
    total = longest = 0.0
    for part in parts:
        causes = [c for phase in part.phases for c in _phase_time(phase, machine, ways)]
        seconds = sum(c.seconds for c in causes)
        total += seconds
        longest = max(longest, seconds * ways / part.groups)
        for cause in causes:
            _add(found, cause)
    launch = machine.launch
    _add(found, Cause("launch", launch.kernel + groups / ways * launch.group, f"{groups} groups"))
    if cores > 1:
        _add(found, Cause("hand-off", launch.handoff, f"to {cores} cores"))
        _add(found, Cause("sharing", contended, "lines that several cores write"))
        _add(found, Cause("imbalance", max(0.0, longest - total), "the longest group"))
    causes = sorted((c for c in found.values() if c.seconds > 0), key=lambda c: -c.seconds)
    phases = [phase for part in parts for phase in part.phases]
    return Estimate(sum(c.seconds for c in causes), tuple(causes), _levels(phases, machine))


def _add(found: dict[str, Cause], cause: Cause) -> None:
    before = found.get(cause.name)
    found[cause.name] = cause if before is None else replace(before, seconds=before.seconds + cause.seconds)


def _phases(tree: Tree, machine: Machine, lines: Mapping[int, Lines], registers: int) -> list[Phase]:
    phases: list[Phase] = []
    rest, flow = _collect(tree, machine, lines, phases, registers)
    rest.waits += again(flow, machine) * tree.entries
    return [*phases, rest]


def _collect(
    tree: Tree, machine: Machine, lines: Mapping[int, Lines], phases: list[Phase], registers: int
) -> tuple[Phase, Flow]:
    """What of this tree overlaps with its surroundings, longer parts being added to `phases`; and how it waits."""
    registers += _lasting(tree)
    phase = Phase.empty(machine)
    phase.work.issue += _control(tree)
    own = [_own(phase, tree, machine, lines.get(id(tree), {}), registers)] if tree.accesses else []
    inside: list[Flow] = []
    for inner in tree.inner:
        part, flow = _collect(inner, machine, lines, phases, registers)
        _merge(phase, part)
        inside.append(flow)
    whole = own[0] if own and not inside else block_flow(tree, [*own, *inside], machine)
    phase.waits += whole.waits - sum(flow.waits for flow in inside)
    if tree.points and _cycles(phase, machine) / max(1, tree.entries) > HORIZON:
        phases.append(phase)
        return Phase.empty(machine), whole
    return phase, whole


def _lasting(tree: Tree) -> int:
    """Bytes of its arrays in registers that stay there while a loop within it runs; straight-line code needs each only for a moment."""
    return tree.registers if any(inner.serial for block in tree.inner for inner in block.walk()) else 0


def _control(tree: Tree) -> float:
    """Scalar instructions of the loops and conditions of one block."""
    loops = [i for i in tree.serial if i.bind is not Bind.GRID]
    trips = tree.points / prod(i.extent for i in tree.static) if loops else 0
    tests = len(tree.block.constraints) + len(tree.block.guard)
    return LOOP * trips + (ENTRY * len(loops) + TEST * tests) * tree.entries


def _own(phase: Phase, tree: Tree, machine: Machine, lines: Lines, registers: int) -> Flow:
    """Add the tree's own statements."""
    passes = tree.points / prod(i.extent for i in tree.static)
    work = straight_line(tree, machine)
    _spill(work, tree, machine, registers)
    phase.work.plus(work, passes)
    phase.kept += _computing(work.cycles(machine.ports)) * passes if _keeps(tree) else 0.0
    if tree.serial and tree.serial[-1].bind is not Bind.GRID:
        trips = tree.serial[-1].extent
        phase.delay += passes / trips * machine.ports.mispredict * min(1.0, trips / SURPRISE)
    for access in tree.accesses.values():
        vector = tree.passing(access)
        if vector is not None:
            _pass_by(phase, tree, access, vector, machine)
    written = {a.buffer for a in tree.accesses.values() if a.writes}
    read = {a.buffer for a in tree.accesses.values() if a.reads}
    for buffer, levels in lines.items():
        phase.pages += sum(n * t.latency for n, t in zip(levels[len(phase.reads) :], machine.pages.tlbs, strict=False))
        for level, count in enumerate(levels[: len(phase.reads)]):
            bytes_ = count * machine.caches[0].line
            last = level == len(phase.reads) - 1
            phase.writes[level] += bytes_ if buffer in written else 0
            phase.reads[level] += bytes_ if buffer in read or not last else 0
    _wait_apart(phase, tree, machine, lines)
    return leaf_flow(tree, work, passes, machine)


def _pass_by(phase: Phase, tree: Tree, access: Access, vector: Loop, machine: Machine) -> None:
    """Stores past the caches: lines leave whole where what follows fills them, else each piece is a write of its own."""
    moving = [i for i in tree.path if access.moved_by(i.name)]
    cells = prod(i.extent for i in moving) * tree.points / prod(i.extent for i in tree.path)
    run = _run(tree, access, vector)
    bytes_, line = cells * access.dtype.bytes, machine.caches[0].line
    if run >= line:
        phase.non_temporal += bytes_
        phase.lone += bytes_ / line if run < 2 * line else 0.0
    else:
        phase.pieces += bytes_ / run


def _wait_apart(phase: Phase, tree: Tree, machine: Machine, lines: Lines) -> None:
    """Nothing fetches lines ahead along which neither the next instruction nor the next iteration goes on."""
    vector = tree.vector
    if vector is None:
        return
    for access in tree.accesses.values():
        found, bytes_ = lines.get(access.buffer), vector.extent * access.dtype.bytes
        if not found or access.stride(vector.name) != access.dtype.bytes or _run(tree, access, vector) > bytes_:
            continue
        straddling = _straddling(access, vector, machine)
        for level in range(len(phase.apart)):
            phase.apart[level] += found[level] * _lone_line(machine, level)
        for level, cache in enumerate(machine.caches[1:]):
            beyond = found[level + 1] if level + 2 < len(machine.caches) else 0.0
            phase.apart[level] += straddling * (found[level] - beyond) * cache.straddle


def _keeps(tree: Tree) -> bool:
    """It adds to registers: all that it loads can be asked for long before, and nothing waits for stores."""
    return any(a.agg is not None and a.buffer.in_registers for a in tree.accesses.values())


def _computing(ports: Mapping[str, float]) -> float:
    """Cycles of arithmetic."""
    return max(ports[name] for name in COMPUTE)


def _straddling(access: Access, vector: Loop, machine: Machine) -> float:
    """Share of an access's stores that wait for two lines."""
    bytes_ = vector.extent * access.dtype.bytes
    waits = access.writes and not access.ahead and bytes_ <= machine.caches[0].line
    return crossing(access, vector, bytes_, machine) if waits else 0.0


def _lone_line(machine: Machine, level: int) -> float:
    """Cycles that a line takes longer which nothing fetched ahead: as many as a core can wait for are on their way."""
    memory, line = machine.memory, machine.caches[0].line
    if level + 1 < len(machine.caches):
        cache = machine.caches[level + 1]
        return max(0.0, cache.latency / memory.outstanding - line / cache.bandwidth)
    return machine.cycles(max(0.0, memory.latency / memory.outstanding - line / memory.one_core.read) * 1e-9)


def _run(tree: Tree, access: Access, vector: Loop) -> int:
    """Bytes that neighbouring iterations write side by side."""
    run = vector.extent * access.dtype.bytes
    near = [*reversed(tree.static), *reversed([i for i in tree.path if i.bind is Bind.NONE and i.extent > 1][-1:])]
    for loop in near:
        if access.stride(loop.name) == run:
            run *= loop.extent
    return run


def _spill(work: Work, tree: Tree, machine: Machine, registers: int) -> None:
    """Registers that are too many go to memory and back each time, as far as the statements touch them."""
    touched = sum(_held(tree, a) for a in tree.accesses.values() if a.buffer.in_registers)
    excess = min(touched / machine.vector.bytes, registers / machine.vector.bytes - machine.vector.registers)
    if excess > 0:
        work.load += excess
        work.store += excess


def _held(tree: Tree, access: Access) -> int:
    """Bytes of registers that straight-line code reads or writes through an access."""
    return access.dtype.bytes * prod(i.extent for i in tree.static if access.moved_by(i.name))


def _merge(phase: Phase, part: Phase) -> None:
    phase.work.plus(part.work)
    phase.kept += part.kept
    phase.delay += part.delay
    phase.waits += part.waits
    phase.non_temporal += part.non_temporal
    phase.pieces += part.pieces
    phase.lone += part.lone
    phase.pages += part.pages
    phase.apart = [a + b for a, b in zip(phase.apart, part.apart, strict=True)]
    phase.reads = [a + b for a, b in zip(phase.reads, part.reads, strict=True)]
    phase.writes = [a + b for a, b in zip(phase.writes, part.writes, strict=True)]


def _cycles(phase: Phase, machine: Machine) -> float:
    ports = phase.work.cycles(machine.ports)
    return max(ports[name] for name in (*COMPUTE, *ACCESS)) + phase.waits + phase.delay


def _phase_time(phase: Phase, machine: Machine, ways: float) -> list[Cause]:
    """What the phase demands of each part of the machine, as far as it shows."""
    second = 1 / (machine.clock_ghz * 1e9) / ways
    ports = phase.work.cycles(machine.ports)
    compute, access = (_busiest(ports, names, second) for names in (COMPUTE, ACCESS))
    waiting = phase.waits * second
    core = replace(compute, seconds=compute.seconds + waiting)
    moving = [access]
    moving += [Cause(f"L{c.level}", *_between(phase, n, c, second)) for n, c in enumerate(machine.caches[1:])]
    moving.append(Cause("pages", phase.pages * second, "translations"))
    moved = phase.reads[-1] + phase.writes[-1] + phase.non_temporal
    moving.append(Cause("memory", _memory_time(phase, machine, ways), _size(moved)))
    ends = Cause("loop ends", phase.delay * second, "branches")
    shown, found = _beside_moves(core, moving, phase, machine)
    share = waiting / core.seconds if core.seconds else 0.0
    waited = Cause("latency", shown * share, "results that are waited for")
    return [*found, replace(compute, seconds=shown * (1 - share)), waited, ends]


def _beside_moves(core: Cause, moving: Sequence[Cause], phase: Phase, machine: Machine) -> tuple[float, list[Cause]]:
    """Seconds of the arithmetic that show, and of all that moves beside it."""
    ports = machine.ports
    kept = min(1.0, phase.kept / (_computing(phase.work.cycles(ports)) or 1.0))
    exposed = ports.exposed + kept * ((ports.exposed_kept or ports.exposed) - ports.exposed)
    found = overlapped(moving, ports.exposed)
    moves = sum(c.seconds for c in found)
    both = {c.name: c.seconds for c in overlapped([replace(core, name="core"), Cause("moves", moves)], exposed)}
    shown = both.get("moves", 0.0) / moves if moves else 0.0
    return both.get("core", 0.0), [replace(c, seconds=c.seconds * shown) for c in found]


def _between(phase: Phase, level: int, cache: Cache, second: float) -> tuple[float, str]:
    """Seconds in which lines go between a level and `cache`, the next, and how many bytes."""
    both = (phase.reads[level] / cache.bandwidth, phase.writes[level] / (cache.write or cache.bandwidth))
    return (cache.together(*both) + phase.apart[level]) * second, _size(phase.reads[level] + phase.writes[level])


def _busiest(ports: Mapping[str, float], names: Sequence[str], second: float) -> Cause:
    """Of ports that work hand in hand, the one with most to do."""
    name = max(names, key=lambda n: ports[n])
    return Cause(name, ports[name] * second)


def _memory_time(phase: Phase, machine: Machine, ways: float) -> float:
    memory = machine.memory
    alone, together = (_moved(phase, b) for b in (memory.one_core, memory.all_cores))
    alone += phase.apart[-1] / (machine.clock_ghz * 1e9)
    alone += (phase.pieces / COMBINING + phase.lone / LONE) * memory.latency * 1e-9
    return max(alone / ways, together) if ways > 1 else alone


def _moved(phase: Phase, bandwidths: Bandwidths) -> float:
    return 1e-9 * (
        phase.reads[-1] / bandwidths.read
        + phase.writes[-1] / bandwidths.write
        + phase.non_temporal / bandwidths.non_temporal
    )


def _levels(phases: list[Phase], machine: Machine) -> tuple[tuple[str, int], ...]:
    moved = [sum(p.reads[n] + p.writes[n] for p in phases) for n in range(len(machine.caches))]
    moved[-1] += sum(p.non_temporal for p in phases)
    return tuple((f"L{c.level}", round(n)) for c, n in zip(machine.caches, moved, strict=True))


def _size(bytes_: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if bytes_ < 1000:
            return f"{bytes_:.3g} {unit}"
        bytes_ /= 1000
    return f"{bytes_:.3g} GB"
