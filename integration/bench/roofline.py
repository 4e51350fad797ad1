"""What the machine could do: the time that a case's operations and bytes need at the probed rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tile_runtime as tile
from machine import Probe

FOOTPRINTS = (1 << 18, 1 << 21, 1 << 23, 1 << 27)
"""Bytes read and written together, at which a copy is timed: each level of the caches, and memory."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Rates of one machine."""

    flops: float
    """Float32 operations a second."""
    bandwidth: Mapping[int, float]
    """Footprint in bytes -> bytes a second, read and written; the last one is memory's."""

    def seconds(self, operations: float, moved: float) -> float:
        """The floor: the larger of what arithmetic and what memory need."""
        held = next((b for size, b in self.bandwidth.items() if moved <= size), min(self.bandwidth.values()))
        return max(operations / self.flops, moved / held)


def probed(probe: Probe, evaluator: tile.Evaluator) -> Roofline:
    """Takes about a second."""
    flops = max(probe() for _ in range(50)) * 1e9
    best: dict[int, float] = {}
    for size in reversed(FOOTPRINTS):
        best[size] = max(_copied(size, evaluator), *best.values()) if best else _copied(size, evaluator)
    return Roofline(flops, dict(sorted(best.items())))


def _copied(size: int, evaluator: tile.Evaluator) -> float:
    """Bytes a second of a copy that reads and writes `size` bytes in all; the best of several."""
    from contest import repeated

    copy = tile.Function("function (A) -> (O) { O = A + 1.0; }")
    source = np.ones(size // 8, np.float32)
    target = np.empty_like(source)
    sample = repeated(lambda: evaluator(copy, source, out=target))
    return size / min(sample() for _ in range(9))
