"""The time of a kernel on a GPU: issue slots of all sub-groups (warps) by port, memory traffic, and latency that occupancy does not hide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil, exp, lgamma, log2, prod

from tile_ir.frozen import frozen
from tile_ir.machine import Machine, Occupancy
from tile_ir.matrix import MATRIX_INSTRUCTIONS
from tile_ir.stripe.nodes import ITEMS, Bind, Block, Direction, Reduce, Scope, Sync, Transfer, Wait

from tile_opt.model.arithmetic import Work, straight_line
from tile_opt.model.caches import Lines, traffic
from tile_opt.model.causes import Cause, Estimate, overlapped
from tile_opt.model.coalescing import met, sent
from tile_opt.model.meeting import contention, merges
from tile_opt.model.occupancy import ALONE, LOOP, hindrance, resident, rounds
from tile_opt.model.scheduled import Access, Buffer, Tree

LAUNCH = "launch"
"""The cause that stands for a kernel's begin and end."""
OWN_REGISTERS = 24
"""Registers of an item for addresses, counters and values on the way."""
PRIVATE = 512
"""Bytes of an item's own array up to which a near cache has it."""
ISSUED = ("multiply", "add", "vector", "issue")
"""Ports that each slot has its own share of."""
AHEAD = 2
"""Fragments of operands that an item holds: those in use, and the next."""
UNROLLED = 6
"""Trips of a loop without barriers whose loads the compiler starts together."""


@frozen
class Needs:
    """What a group takes of its multiprocessor: items, registers of each, bytes of local memory."""

    items: int
    registers: float
    local: int

    def resident(self, machine: Machine) -> int:
        """Groups that one multiprocessor holds at once."""
        assert machine.occupancy is not None
        registers = min(self.registers, machine.occupancy.item_registers)
        return max(1, resident(self.items, registers, self.local, machine))


def needs_of(tree: Tree, occupancy: Occupancy) -> Needs:
    trees = [*tree.walk()]
    registers = OWN_REGISTERS + _held(tree, occupancy) + max(map(_fragments, trees))
    return Needs(max(t.items for t in trees), registers, sum(map(_local_bytes, trees)))


@dataclass(slots=True)
class _Group:
    """What one group does, on average."""

    needs: Needs
    work: Work = field(default_factory=Work)
    """Of all sub-groups, in instructions of a sub-group."""
    matrix: float = 0
    """Cycles of matrix instructions."""


def on_multiprocessors(tree: Tree, machine: Machine) -> Estimate:
    """The estimate for a kernel whose groups are dealt out to the multiprocessors of `machine`."""
    occupancy = machine.occupancy
    assert occupancy is not None
    groups = max(1, prod(i.extent for i in tree.loops if i.bind is Bind.GRID))
    lines = traffic(tree, machine)
    group = _group(tree, machine, occupancy, groups)
    at_once = group.needs.resident(machine)
    cores = max(1, min(machine.cores, groups))
    second = 1 / (machine.clock_ghz * 1e9)
    shares = [*rounds(groups, at_once, machine)]
    demands = [(times, _demand(group, together, machine)) for times, together in shares]
    name = max(demands[0][1], key=lambda n: demands[0][1][n])
    parts = [
        Cause(name, sum(times * max(demand.values()) for times, demand in demands) * second),
        Cause("matrix", group.matrix * sum(times * together for times, together in shares) * second),
        *_memory(tree, lines, machine, cores, at_once),
        Cause("latency", _latency(tree, machine, lines, groups) * sum(times for times, _ in shares) * second,
              f"{at_once} groups at once"),
        Cause("contention", contention(_merging(tree, machine), machine)),
        Cause("dispatch", groups / cores * machine.launch.group, f"{groups} groups"),
    ]  # fmt: skip
    causes = [*overlapped(parts, machine.ports.exposed), Cause(LAUNCH, machine.launch.kernel + machine.launch.fill)]
    shown = sorted((c for c in causes if c.seconds > 0), key=lambda c: -c.seconds)
    return Estimate(sum(c.seconds for c in shown), tuple(shown), _levels(lines, machine))


def _group(tree: Tree, machine: Machine, occupancy: Occupancy, groups: int) -> _Group:
    group = _Group(needs_of(tree, occupancy))
    for one in tree.walk():
        sub_groups = _sub_groups(one, occupancy)
        rate = _rate(one, machine)
        if rate:
            group.matrix += one.entries / groups / rate
        elif one.accesses or one.block.body:
            group.work.plus(straight_line(one, machine), one.passes / groups * sub_groups)
            group.work.issue += _control(one) * sub_groups / groups
    return group


def _merging(tree: Tree, machine: Machine) -> Iterator[tuple[Access, float]]:
    """What items merge into the device's memory, and how often: once for each half of a line that a sub-group meets at once."""
    assert machine.occupancy is not None
    for one, access in merges(tree):
        items = min(machine.occupancy.subgroup, max(1, one.items))
        yield access, one.points / items * met(access, one, machine, machine.caches[-1].line // 2)


def _sub_groups(tree: Tree, occupancy: Occupancy) -> int:
    """Those that run a block; loops over sub-groups count them, unless its lanes have loops of their own."""
    if all(i.bind is Bind.SUBGROUP for i in tree.path if i.bind in ITEMS):
        return tree.items
    return ceil(tree.items / occupancy.subgroup)


def _rate(tree: Tree, machine: Machine) -> float:
    """Matrix instructions that a multiprocessor starts per cycle where the block is one; else 0."""
    name = tree.block.instr.name if tree.block.instr else ""
    return machine.rate(name) or 1.0 if name in MATRIX_INSTRUCTIONS else 0.0


def _control(tree: Tree) -> float:
    """Instructions of an item for loops, conditions and barriers."""
    tests = len(tree.block.constraints) + len(tree.block.guard)
    serial = any(i.bind is Bind.NONE for i in tree.loops)
    begun = LOOP if _reads_local(tree) else 2 * serial
    return tree.passes * begun + 2 * tests * tree.entries / max(1, tree.items)


def _reads_local(tree: Tree) -> bool:
    """Straight-line code that begins with loads of what other items of the group have put."""
    return any(a.reads and a.buffer.unit == "LOCAL" and a.buffer.scope is Scope.GROUP for a in tree.accesses.values())


def _local_bytes(tree: Tree) -> int:
    return sum(
        r.type.nbytes * r.versions
        for r in tree.block.refs
        if r.dir is Direction.ALLOC and r.loc.unit == "LOCAL" and r.loc.scope is Scope.GROUP
    )


def _held(tree: Tree, occupancy: Occupancy) -> float:
    """32-bit registers of an item's arrays, those of the deepest nest."""
    own = sum(
        r.type.nbytes * r.versions / (occupancy.subgroup if r.loc.scope is Scope.SUBGROUP else 1)
        for r in tree.block.refs
        if r.dir is Direction.ALLOC and r.loc.unit == "REG"
    )
    return own / 4 + max((_held(t, occupancy) for t in tree.inner), default=0.0)


def _fragments(tree: Tree) -> float:
    """32-bit registers of what straight-line code loads: those in use and the next, along loops that move no result."""
    written = [a for a in tree.accesses.values() if a.writes]
    whole = near = 0.0
    for access in tree.accesses.values():
        if access.writes or access.buffer.in_registers:
            continue
        moving = [i for i in tree.static if access.moved_by(i.name)]
        shared = [i for i in moving if any(w.moved_by(i.name) for w in written)]
        size = max(4, access.dtype.bytes) / 4
        whole += size * prod(i.extent for i in moving)
        near += size * prod(i.extent for i in shared)
    return min(whole, AHEAD * near)


def _demand(group: _Group, together: int, machine: Machine) -> dict[str, float]:
    """Cycles by port of so many groups at once; what sub-groups issue goes through the slot that each belongs to."""
    assert machine.occupancy is not None
    subgroups = ceil(group.needs.items / machine.occupancy.subgroup)
    uneven = hindrance(together, subgroups, machine)
    ports = group.work.cycles(machine.ports)
    return {n: together * c * (uneven if n in ISSUED else 1.0) for n, c in ports.items() if n != "latency"}


def _memory(tree: Tree, lines: Mapping[int, Lines], machine: Machine, cores: int, resident: int) -> list[Cause]:
    """Time of the traffic between the near caches and the last, and of that with memory."""
    sector = machine.caches[0].sector or machine.caches[0].line
    written = {a.buffer for t in tree.walk() for a in t.accesses.values() if a.writes}
    near, stored, reads, writes = 0.0, 0.0, 0.0, 0.0
    for found in lines.values():
        for buffer, counts in found.items():
            if buffer.unit != "DRAM":
                continue
            asked = counts[0] * sector * _asked(buffer, tree, machine, resident)
            if buffer in written:
                stored += asked
                writes += counts[-1] * sector
            else:
                near += asked
                reads += counts[-1] * sector
    near += max(stored, _sent(tree, machine) * sector)
    last = machine.caches[-1]
    alone, together = machine.memory.one_core, machine.memory.all_cores
    seconds = max(reads / together.read + writes / together.write, (reads / alone.read + writes / alone.write) / cores)
    return [
        Cause(f"L{last.level}", near / (last.bandwidth * cores) / (machine.clock_ghz * 1e9), f"{near / 1e6:.3g} MB"),
        Cause("memory", seconds * 1e-9, f"{(reads + writes) / 1e6:.3g} MB"),
    ]


def _sent(tree: Tree, machine: Machine) -> float:
    """Sectors that all stores send to the last cache: near caches do not put together what several of them bring."""
    assert machine.occupancy is not None
    return sum(
        one.passes * _sub_groups(one, machine.occupancy) * sent(access, one, machine)
        for one in tree.walk()
        for access in one.accesses.values()
        if access.writes and access.buffer.unit == "DRAM" and not _rate(one, machine)
    )


def _asked(buffer: Buffer, tree: Tree, machine: Machine, resident: int) -> float:
    """Share of a buffer's near traffic that is left where groups that run at once touch the same parts of it.

    Of so many groups on one multiprocessor, drawn from all, some meet the same part; about half of what they share is still
    there. Of what several multiprocessors ask for at about the same time, a share is answered together.
    """
    accesses = [a for t in tree.walk() for a in t.accesses.values() if a.buffer is buffer]
    grid = [i for i in tree.loops if i.bind is Bind.GRID]
    moving = [i for i in grid if any(a.moved_by(i.name) for a in accesses)]
    groups, parts = (prod(i.extent for i in loops) for loops in (grid, moving))
    merged = machine.caches[-1].merged * (1 - _apart(groups, parts, min(groups, resident * machine.cores)))
    return (1 + _apart(groups, parts, min(groups, resident))) / 2 * (1 - merged)


def _apart(groups: int, parts: int, some: int) -> float:
    """Different parts to a group among some of the groups that touch one each, where all parts are touched by as many."""
    others = groups - groups // parts
    if some > others:
        return parts / some
    missed = lgamma(others + 1) - lgamma(others - some + 1) - lgamma(groups + 1) + lgamma(groups - some + 1)
    return parts * (1 - exp(missed)) / some


def _levels(lines: Mapping[int, Lines], machine: Machine) -> tuple[tuple[str, int], ...]:
    sector = machine.caches[0].sector or machine.caches[0].line
    totals = [0.0] * len(machine.caches)
    for found in lines.values():
        for buffer, counts in found.items():
            if buffer.unit == "DRAM":
                totals = [a + b * sector for a, b in zip(totals, counts, strict=True)]
    return tuple((f"L{c.level}", round(n)) for c, n in zip(machine.caches, totals, strict=True))


# --- latency --------------------------------------------------------------------------------------


def _latency(tree: Tree, machine: Machine, lines: Mapping[int, Lines], groups: int) -> float:
    """Cycles from the start to the end of one group that had a multiprocessor for itself."""
    return _path(tree, machine, _far(tree, lines, machine)) / groups


def _far(tree: Tree, lines: Mapping[int, Lines], machine: Machine) -> float:
    """Cycles of a load of global memory: from the last cache, or from memory, as often as each has it."""
    loaded = {a.buffer for t in tree.walk() for a in t.accesses.values() if a.reads and a.buffer.unit == "DRAM"}
    counts = [levels for found in lines.values() for buffer, levels in found.items() if buffer in loaded]
    near, last = sum(levels[0] for levels in counts), sum(levels[-1] for levels in counts)
    share = min(1.0, last / near) if near else 0.0
    return machine.caches[-1].latency + share * machine.memory.latency * machine.clock_ghz


def _path(tree: Tree, machine: Machine, far: float) -> float:
    """Cycles that an item spends in a block, all entries together, while nothing else holds it up.

    Loads that no barrier parts start together, so that their latency counts once; copies ahead run beside the rest of a loop.
    """
    loop = any(i.bind is Bind.NONE and i.extent > 1 for i in tree.loops)
    ahead = rest = 0.0
    for part in _straight(tree):
        inner = [t for t in part if isinstance(t, Tree)]
        direct = [t for t in inner if _rate(t, machine) or not _loops(t)]
        if any(_fetches(t) and not (loop and _is_prefetch(t)) for t in direct):
            rest += far * max(t.runs for t in direct)
        ahead += far * max((t.runs for t in inner if loop and _is_prefetch(t)), default=0.0)
        for one in inner:
            spent = _leaf_path(one, machine) if one in direct else _path(one, machine, far)
            if loop and _is_prefetch(one):
                ahead += spent
            else:
                rest += spent
    own = _own_path(tree, machine, far, loop)
    return own + (max(ahead, rest) if loop else ahead + rest)


def _straight(tree: Tree) -> list[list[object]]:
    """The statements between barriers, inner blocks as their trees."""
    parts: list[list[object]] = [[]]
    inner = iter(tree.inner)
    for statement in tree.block.body:
        if isinstance(statement, Sync):
            parts.append([])
        else:
            parts[-1].append(next(inner) if isinstance(statement, Block) else statement)
    return parts


def _loops(tree: Tree) -> bool:
    return any(i.bind is Bind.NONE and i.extent > 1 for t in tree.walk() for i in t.loops) or bool(tree.inner)


def _fetches(tree: Tree) -> bool:
    """Reads global memory, or an item's own array that is too long for registers and lies there as well."""
    return any(a.reads and (a.buffer.unit == "DRAM" or _is_private(a.buffer)) for a in tree.accesses.values())


def _is_private(buffer: Buffer) -> bool:
    return buffer.unit == "LOCAL" and buffer.scope is Scope.THREAD and buffer.bytes > PRIVATE


def _leaf_path(tree: Tree, machine: Machine) -> float:
    """Cycles of straight-line code, its loads of global memory left out; a matrix instruction is one of its sub-group's slot."""
    if rate := _rate(tree, machine):
        assert machine.occupancy is not None
        subgroups = prod(i.extent for i in tree.path if i.bind is Bind.SUBGROUP)
        return tree.entries / subgroups * machine.occupancy.slots / rate
    work = straight_line(tree, machine)
    near = machine.caches[0].latency if _fetches(tree) else 0.0
    return max(work.chain, work.depth - near, work.issue * ALONE) * tree.runs + _waiting(tree, machine, 0)


def _own_path(tree: Tree, machine: Machine, far: float, loop: bool) -> float:
    if not tree.accesses:
        return _waiting(tree, machine, far)
    work = straight_line(tree, machine)
    depth = (work.depth + (far if _fetches(tree) else 0.0)) / (UNROLLED if loop and not tree.inner else 1)
    return max(work.chain, depth, work.issue * ALONE) * tree.runs + _waiting(tree, machine, far)


def _is_prefetch(tree: Tree) -> bool:
    """Only copies from global memory to registers, or starts copies: nothing waits for it at once."""
    if tree.inner:
        return all(map(_is_prefetch, tree.inner)) and not tree.accesses
    if any(isinstance(s, Transfer) for s in tree.block.body):
        return True
    accesses = tree.accesses.values()
    return bool(accesses) and all(
        a.buffer.unit == "DRAM" if not a.writes else a.buffer.in_registers and a.agg is None for a in accesses
    )


def _waiting(tree: Tree, machine: Machine, far: float) -> float:
    """Cycles of barriers, of waiting for copies, and of combining values across items, all passes together."""
    local = machine.local.latency if machine.local is not None else 0.0
    cycles = 0.0
    for statement in tree.block.body:
        match statement:
            case Sync():
                cycles += machine.launch.barrier
            case Wait(pending=0):
                cycles += far
            case Reduce():
                cycles += log2(max(2, tree.items)) * (local + machine.launch.barrier)
            case _:
                pass
    return cycles * tree.runs
