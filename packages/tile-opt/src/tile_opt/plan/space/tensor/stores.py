"""What it takes that sub-groups store the fragments of a contraction's results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from tile_ir.machine import Machine, Occupancy
from tile_ir.matrix import CHUNK_BYTES, LANES, LINES
from tile_ir.stripe.nodes import Op, Scope

from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import KernelView, Stage, Use
from tile_opt.model.contraction import SECTOR, Contraction
from tile_opt.plan.builders.tensor_results import begins_with_sectors
from tile_opt.plan.plan import Staging

PARTIAL = 1.5
"""Sectors' worth of time that a store to a sector takes of which little is written (an H200: 4.2 MB of float32, an element of each
at a time, 15 µs)."""
GIVEN, NARROW = 1.2, 1.25
"""Times longer that results take which go through local memory than their bytes; and than that where pieces of rows are single
sectors (an H200: 2480 x 2480 of bfloat16 by pieces of 32 bytes 17.0 µs, of 64 bytes 14.6)."""
PARTS = 45
"""The same where pieces are parts of sectors, beside other groups of the core (an H200: 8 µs for each MB that is stored by 8 or by 16 bytes)."""
SET, LONE = 5, 2
"""Instructions that set a result in local memory and store it, beside its operations; times longer that a lone group of a core takes
for them, which has too few sub-groups to hide what each waits for (an H200: 75 µs for 51 MB of a convolution's results and as many
operands, where memory takes 28)."""
RAGGED_BYTES = 100
"""Bytes of a row at a time with which results take about twice as long where rows begin anywhere, so that its ends are parts of sectors; as
long as fragments take (an H200: 154 MB of float32 by 64 bytes 118 µs, by 128 97, by 256 78, as fragments 102, and of rows that begin with
sectors 64)."""
TAKEN_VERSIONS = 3
"""Parts of an operand in local memory at once: those under way hide the latency of memory."""
WORD = 4
"""Bytes of elements whose pairs are stored at once."""


def store_seconds(work: Contraction, rows: str, columns: str, machine: Machine) -> float:
    """Seconds of the sectors that stores touch, of fragments whose rows and columns follow these loops.

    A sub-group stores an element of each lane at once: of eight rows in four columns, pairs of which may be neighbours.
    """
    width = max((work.view.type_of(use.buffer).dtype.bytes for use in work.results), default=0)
    down, along = _touched(work, rows, LINES), _touched(work, columns, LANES // LINES)
    stored = LANES * (2 if along == 1 and width == WORD and _pairs(work) else 1)
    each = max(1.0, PARTIAL * (1 - stored * width / (down * along * SECTOR)))
    sectors = prod(work.shared.values()) * down * along / stored * each
    return sectors * SECTOR / (machine.memory.all_cores.write * 1e9)


def given_seconds(work: Contraction, machine: Machine, run: int) -> float:
    """Seconds of storing whole pieces of rows, so many bytes long, out of local memory."""
    width = max((work.view.type_of(use.buffer).dtype.bytes for use in work.results), default=0)
    return (
        max(GIVEN, 1 + ragged(work, run)) * prod(work.shared.values()) * width / (machine.memory.all_cores.write * 1e9)
    )


def run_bytes(work: Contraction, tile: Mapping[str, int]) -> int:
    """What lies together in memory of a `tile` of a result, the fewest of all results; two sectors where no loop is along their rows."""
    widths = {use.buffer: work.view.type_of(use.buffer).dtype.bytes for use in work.results}
    runs = (
        size * widths[u.buffer]
        for u in work.results
        for n, size in tile.items()
        if abs(flat_stride(work.view, u, n)) == 1
    )
    return min(runs, default=2 * SECTOR if work.contiguous is None else min(widths.values()))


def ragged(work: Contraction, run: int = RAGGED_BYTES) -> float:
    """Share of its time that a result takes longer which is stored by so many bytes of a row one after the other, or as fragments."""
    even = all(begins_with_sectors(work.view, use) for use in work.results)
    return 0.0 if even or work.contiguous is None else RAGGED_BYTES / run


def narrow_pieces(run: int) -> float:
    """Times longer than that, where pieces of rows are no longer than sectors."""
    return NARROW if run <= SECTOR else 1.0


def parts_of_sectors(run: int) -> float:
    """Times longer than that, where different groups store the parts of a sector."""
    return PARTS if run < SECTOR else 1.0


def set_seconds(view: KernelView, main: Stage, machine: Machine, *, alone: bool) -> float:
    """Seconds in which cores issue what sets results in local memory, and stores them from there; a group may be a core's only one."""
    stages = (s for s in view.stages if s is not main)
    each = SET + sum(isinstance(statement, Op) for s in stages for statement in s.body)
    slots = (machine.occupancy or Occupancy()).slots * max(1, machine.cores) / (LONE if alone else 1)
    return prod(i.range for i in view.loops) * each / LANES / slots / (machine.clock_ghz * 1e9)


def given_results(work: Contraction, operands: Iterable[Use], level: int, scope: Scope) -> tuple[Staging, ...]:
    """Copies in local memory of results and of their operands, rows along memory, each behind the other's banks."""
    found: list[Staging] = []
    uses = [*((u, 1) for u in work.results), *((u, TAKEN_VERSIONS) for u in operands)]
    for use, versions in {u.buffer: (u, count) for u, count in uses}.values():
        strides = {n: abs(flat_stride(work.view, use, n)) for n in work.shared}
        order = tuple(sorted((n for n in strides if strides[n]), key=lambda n: -strides[n]))
        pad = CHUNK_BYTES // work.view.type_of(use.buffer).dtype.bytes
        found.append(Staging(use.buffer, level, "LOCAL", order, scope, pad, versions=versions))
    return tuple(found)


def given_bytes(view: KernelView, staging: Staging, tile: Mapping[str, int]) -> int:
    """Of a sub-group's part of a result, or of the parts of an operand at each of its places, rows padded."""
    line, dtype = tile.get(staging.order[-1], 1), view.type_of(staging.operand).dtype
    places = len({u.forms for u in view.uses if u.buffer == staging.operand})
    return places * prod(tile.values()) // line * (line + staging.pad) * dtype.bytes * staging.versions


def _touched(work: Contraction, loop: str, lines: int) -> int:
    """Sectors that so many lanes along a loop touch, which share eight of its iterations."""

    def apart(use: Use) -> int:
        return abs(flat_stride(work.view, use, loop)) * work.view.type_of(use.buffer).dtype.bytes

    return max((max(1, min(lines, -(-LINES * apart(use) // SECTOR))) for use in work.results), default=lines)


def _pairs(work: Contraction) -> bool:
    """Neighbours along columns begin at even places in all results."""
    steps = (flat_stride(work.view, use, n) for use in work.results for n in work.shared)
    return all(step == 1 or step % 2 == 0 for step in steps)
