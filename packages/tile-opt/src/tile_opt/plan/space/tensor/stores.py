"""What it takes that sub-groups store the fragments of a contraction's results."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tile_ir.dtype import DType
from tile_ir.machine import Machine
from tile_ir.matrix import CHUNK_BYTES, LANES, LINES
from tile_ir.stripe.nodes import Scope

from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import Use
from tile_opt.model.contraction import SECTOR, Contraction
from tile_opt.plan.plan import Staging

PARTIAL = 1.5
"""Sectors' worth of time that a store to a sector takes of which little is written (an H200: 4.2 MB of float32, an element of each
at a time, 15 µs)."""
GIVEN = 1.2
"""Times longer that results take which go through local memory than their bytes."""
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


def given_seconds(work: Contraction, machine: Machine) -> float:
    """Seconds of storing whole pieces of rows, out of local memory."""
    width = max((work.view.type_of(use.buffer).dtype.bytes for use in work.results), default=0)
    return GIVEN * prod(work.shared.values()) * width / (machine.memory.all_cores.write * 1e9)


def given_results(work: Contraction, level: int) -> tuple[Staging, ...]:
    """The results' copies in local memory, rows along memory, each behind the other's banks."""
    found: list[Staging] = []
    for use in {u.buffer: u for u in work.results}.values():
        strides = {n: abs(flat_stride(work.view, use, n)) for n in work.shared}
        order = tuple(sorted((n for n in strides if strides[n]), key=lambda n: -strides[n]))
        pad = CHUNK_BYTES // work.view.type_of(use.buffer).dtype.bytes
        found.append(Staging(use.buffer, level, "LOCAL", order, Scope.SUBGROUP, pad))
    return tuple(found)


def given_bytes(staging: Staging, dtype: DType, tile: Mapping[str, int]) -> int:
    """Of a sub-group's part of a result, rows padded."""
    line = tile.get(staging.order[-1], 1)
    return prod(tile.values()) // line * (line + staging.pad) * dtype.bytes


def _touched(work: Contraction, loop: str, lines: int) -> int:
    """Sectors that so many lanes along a loop touch, which share eight of its iterations."""

    def apart(use: Use) -> int:
        return abs(flat_stride(work.view, use, loop)) * work.view.type_of(use.buffer).dtype.bytes

    return max((max(1, min(lines, -(-LINES * apart(use) // SECTOR))) for use in work.results), default=lines)


def _pairs(work: Contraction) -> bool:
    """Neighbours along columns begin at even places in all results."""
    steps = (flat_stride(work.view, use, n) for use in work.results for n in work.shared)
    return all(step == 1 or step % 2 == 0 for step in steps)
