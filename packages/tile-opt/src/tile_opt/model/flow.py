"""Latency that out-of-order execution does not hide: the critical path of an iteration, and how many iterations are in flight.

An iteration's instructions are issued while earlier ones wait, as far as the window of instructions reaches: of a body
that fills a share of the window, so many fit side by side. What is longer than the window waits for its own results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tile_ir.machine import Machine
from tile_ir.stripe.nodes import STATIC

from tile_opt.model.arithmetic import Work
from tile_opt.model.scheduled import Buffer, Tree

LOOP = 2
"""Scalar instructions of one trip of a loop."""
SHOWN = 1.5
"""Power of the norm that adds work and the path of latencies through it: values on other ways are computed meanwhile."""


@dataclass(slots=True)
class Flow:
    """One entry of a block: cycles until the next may follow it, and further ones until its results are there."""

    cycles: float = 0
    depth: float = 0
    issue: float = 0
    """Instructions."""
    waits: float = 0
    """Cycles of waiting in the whole kernel; of the `cycles` of all entries."""
    reads: set[Buffer] = field(default_factory=set[Buffer])
    writes: set[Buffer] = field(default_factory=set[Buffer])


def leaf_flow(tree: Tree, work: Work, passes: float, machine: Machine) -> Flow:
    """Of straight-line code that runs `passes` times in the whole kernel, in a loop of its own."""
    ports = max(cycles for name, cycles in work.cycles(machine.ports).items() if name != "latency")
    each = _hidden(ports, work.depth, work.issue + LOOP, machine)
    trips = passes / max(1, tree.entries)
    cycles = each * trips
    carried = max(0.0, work.chain * trips - cycles)
    accesses = tree.accesses.values()
    return Flow(
        cycles, carried + work.depth * min(1.0, trips), (work.issue + LOOP) * trips, (each - ports) * passes,
        {a.buffer for a in accesses if a.reads}, {a.buffer for a in accesses if a.writes},
    )  # fmt: skip


def block_flow(tree: Tree, parts: Sequence[Flow], machine: Machine) -> Flow:
    """Of blocks one after the other, again and again where the tree has loops around them."""
    cycles, issue = sum(p.cycles for p in parts), sum(p.issue for p in parts)
    depth = _path(parts)
    loops = any(i.bind not in STATIC and i.extent > 1 for i in tree.loops)
    each = _hidden(cycles, depth, issue, machine) if loops else cycles
    times = tree.points / max(1, tree.entries)
    return Flow(
        each * times, depth * min(1.0, times), issue * times,
        sum(p.waits for p in parts) + (each - cycles) * tree.points,
        set[Buffer]().union(*(p.reads for p in parts)), set[Buffer]().union(*(p.writes for p in parts)),
    )  # fmt: skip


def again(flow: Flow, machine: Machine) -> float:
    """Cycles of one entry that are spent waiting for its last results, while the next entry begins."""
    return _hidden(flow.cycles, flow.depth, flow.issue, machine) - flow.cycles


def _hidden(cycles: float, depth: float, issue: float, machine: Machine) -> float:
    """Cycles of one of many iterations that do not need each other, each `cycles` of work on a path of `depth` more."""
    alone = (cycles**SHOWN + depth**SHOWN) ** (1 / SHOWN)
    return max(cycles, min(1.0, issue / max(1, machine.ports.window)) * alone)


def _path(parts: Sequence[Flow]) -> float:
    """Cycles of waiting along the longest way on which a block reads what an earlier one wrote."""
    ends: list[tuple[set[Buffer], float]] = []
    for part in parts:
        start = max((end for writes, end in ends if not writes.isdisjoint(part.reads)), default=0.0)
        ends.append((part.writes, start + part.depth))
    return max((end for _, end in ends), default=0.0)
