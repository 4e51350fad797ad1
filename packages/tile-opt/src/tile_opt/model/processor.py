"""The time of a kernel on a processor with caches: arithmetic and each level's traffic overlap, phases do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, prod

from tile_ir.machine import Bandwidths, Machine
from tile_ir.stripe.nodes import Bind

from tile_opt.model.arithmetic import Work, straight_line
from tile_opt.model.caches import Lines, traffic
from tile_opt.model.causes import Cause, Estimate
from tile_opt.model.scheduled import Tree

HORIZON = 2000
"""Cycles of work that a core overlaps with what stands before and after it."""
FORESEEN = 30
"""Trips of a loop up to which its end is predicted."""


@dataclass(slots=True)
class Phase:
    """Statements that overlap: their work in all executions, and what they move, by buffer and level."""

    work: Work = field(default_factory=Work)
    delay: float = 0
    """Cycles that nothing overlaps."""
    reads: list[float] = field(default_factory=list[float])
    """Bytes that each level gets from the next."""
    writes: list[float] = field(default_factory=list[float])
    non_temporal: float = 0


def on_processor(tree: Tree, machine: Machine) -> Estimate:
    """The estimate for a kernel whose grid is dealt out to the cores of `machine`."""
    groups = prod(i.extent for i in tree.loops if i.bind is Bind.GRID)
    ways = groups / ceil(groups / min(machine.cores, max(1, groups))) if groups else 1
    phases = _phases(tree, machine)
    found: dict[str, tuple[float, str]] = {}
    for phase in phases:
        for name, seconds, note in _phase_time(phase, machine, ways):
            before = found.get(name, (0.0, note))[0]
            found[name] = (before + seconds, note)
    launch = machine.launch
    found["launch"] = (launch.kernel + groups / ways * launch.group, f"{groups} groups")
    if ways > 1:
        found["hand-off"] = (launch.handoff, f"to {min(machine.cores, groups)} cores")
    causes = sorted((Cause(n, s, note) for n, (s, note) in found.items() if s > 0), key=lambda c: -c.seconds)
    return Estimate(sum(c.seconds for c in causes), tuple(causes), _levels(phases, machine))


def _phases(tree: Tree, machine: Machine) -> list[Phase]:
    lines = traffic(tree, machine)
    phases: list[Phase] = []
    rest = _collect(tree, machine, lines, phases, 0)
    return [*phases, rest]


def _collect(tree: Tree, machine: Machine, lines: Mapping[int, Lines], phases: list[Phase], registers: int) -> Phase:
    """What of this tree overlaps with its surroundings; longer parts are added to `phases`."""
    registers += tree.registers
    phase = Phase(reads=[0.0] * len(machine.caches), writes=[0.0] * len(machine.caches))
    if tree.accesses:
        _own(phase, tree, machine, lines.get(id(tree), {}), registers)
    for inner in tree.inner:
        part = _collect(inner, machine, lines, phases, registers)
        _merge(phase, part)
    if tree.points and _cycles(phase, machine) / max(1, tree.entries) > HORIZON:
        phases.append(phase)
        return Phase(reads=[0.0] * len(machine.caches), writes=[0.0] * len(machine.caches))
    return phase


def _own(phase: Phase, tree: Tree, machine: Machine, lines: Lines, registers: int) -> None:
    passes = tree.points / prod(i.extent for i in tree.static)
    work = straight_line(tree, machine)
    _spill(work, tree, machine, registers)
    _overlap(work, passes / max(1, tree.entries), machine)
    phase.work.plus(work, passes)
    if tree.serial and tree.serial[-1].bind is not Bind.GRID:
        trips = tree.serial[-1].extent
        phase.delay += passes / trips * (machine.ports.mispredict if trips > FORESEEN else 0)
    written = {a.buffer: a for a in tree.accesses.values() if a.writes}
    read = {a.buffer for a in tree.accesses.values() if a.reads}
    for buffer, levels in lines.items():
        access = written.get(buffer)
        for level, count in enumerate(levels):
            bytes_ = count * machine.caches[0].line
            if access is not None and access.streaming:
                phase.non_temporal += bytes_ if level == len(levels) - 1 else 0
            else:
                last = level == len(levels) - 1
                phase.writes[level] += bytes_ if access is not None else 0
                phase.reads[level] += bytes_ if buffer in read or not last else 0


def _spill(work: Work, tree: Tree, machine: Machine, registers: int) -> None:
    """Registers that are too many go to memory and back each time."""
    excess = registers / machine.vector.bytes - machine.vector.registers
    if excess > 0:
        work.load += excess
        work.store += excess


def _overlap(work: Work, passes: float, machine: Machine) -> None:
    """What waits overlaps with later entries, and passes that do not wait for each other overlap, within the window."""
    window = max(1, machine.ports.window)
    work.chain /= max(1.0, window / max(1.0, passes * work.issue))
    work.chain = max(work.chain, work.depth * work.issue / window)


def _merge(phase: Phase, part: Phase) -> None:
    phase.work.plus(part.work)
    phase.delay += part.delay
    phase.non_temporal += part.non_temporal
    phase.reads = [a + b for a, b in zip(phase.reads, part.reads, strict=True)]
    phase.writes = [a + b for a, b in zip(phase.writes, part.writes, strict=True)]


def _cycles(phase: Phase, machine: Machine) -> float:
    return max(phase.work.cycles(machine.ports).values()) + phase.delay


def _phase_time(phase: Phase, machine: Machine, ways: float) -> list[tuple[str, float, str]]:
    """(cause, seconds, note): the longest resource in full, the visible share of the others."""
    second = 1 / (machine.clock_ghz * 1e9) / ways
    ports = phase.work.cycles(machine.ports)
    name = max(ports, key=lambda n: ports[n])
    parts = [(name, ports[name] * second, f"{ports[name]:.3g} cycles")]
    for level, cache in enumerate(machine.caches[1:]):
        cycles = phase.reads[level] / cache.bandwidth + phase.writes[level] / (cache.write or cache.bandwidth)
        parts.append((f"L{cache.level}", cycles * second, f"{_size(phase.reads[level] + phase.writes[level])}"))
    seconds = _memory_time(phase, machine, ways)
    moved = phase.reads[-1] + phase.writes[-1] + phase.non_temporal
    parts.append(("memory", seconds, _size(moved)))
    longest = max(parts, key=lambda p: p[1])
    found = [p if p is longest else (p[0], p[1] * machine.ports.exposed, p[2]) for p in parts]
    return [*found, ("loop ends", phase.delay * second, "branches")]


def _memory_time(phase: Phase, machine: Machine, ways: float) -> float:
    alone, together = (_moved(phase, b) for b in (machine.memory.one_core, machine.memory.all_cores))
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
