"""What it takes that sub-groups store the fragments of a contraction's results."""

from __future__ import annotations

from math import prod

from tile_ir.machine import Machine
from tile_ir.matrix import LANES, LINES

from tile_opt.kernel.strides import flat_stride
from tile_opt.kernel.view import Use
from tile_opt.model.contraction import SECTOR, Contraction

PARTIAL = 1.5
"""Sectors' worth of time that a store to a sector takes of which little is written (an H200: 4.2 MB of float32, an element of each
at a time, 15 µs)."""
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


def _touched(work: Contraction, loop: str, lines: int) -> int:
    """Sectors that so many lanes along a loop touch, which share eight of its iterations."""

    def apart(use: Use) -> int:
        return abs(flat_stride(work.view, use, loop)) * work.view.type_of(use.buffer).dtype.bytes

    return max((max(1, min(lines, -(-LINES * apart(use) // SECTOR))) for use in work.results), default=lines)


def _pairs(work: Contraction) -> bool:
    """Neighbours along columns begin at even places in all results."""
    steps = (flat_stride(work.view, use, n) for use in work.results for n in work.shared)
    return all(step == 1 or step % 2 == 0 for step in steps)
