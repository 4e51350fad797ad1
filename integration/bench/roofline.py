"""What the machine could do: the time that a case's instructions and bytes need at the probed rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

FOOTPRINTS = (1 << 18, 1 << 21, 1 << 23, 1 << 25, 1 << 28)
"""Bytes read and written together, at which a copy is timed: each level of the caches, and memory."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Rates of one machine."""

    slots: float
    """Float32 instructions a second, one an element: half of the operations of multiply-adds."""
    bandwidth: Mapping[int, float]
    """Footprint in bytes, rising -> bytes a second, read and written; the last one is memory's."""

    def seconds(self, slots: float, moved: float) -> float:
        """The floor: the larger of what arithmetic and what memory need."""
        held = next((rate for size, rate in self.bandwidth.items() if moved <= size), min(self.bandwidth.values()))
        return max(slots / self.slots, moved / held)

    def __str__(self) -> str:
        rates = ", ".join(f"{rate / 1e9:.0f} GB/s in {size >> 10} KiB" for size, rate in self.bandwidth.items())
        return f"{2 * self.slots / 1e9:.0f} GFLOP/s; {rates}"


def probed(flops: Callable[[], float], copied: Callable[[int], float], sizes: Sequence[int] = FOOTPRINTS) -> Roofline:
    """Of a probe of multiply-adds, in GFLOP/s, and one of copies: footprint -> bytes a second.

    What a larger footprint reaches a smaller one does too.
    """
    best: dict[int, float] = {}
    for size in sorted(sizes, reverse=True):
        best[size] = max(copied(size), *best.values(), 0.0)
    return Roofline(max(flops() for _ in range(50)) * 1e9 / 2, dict(sorted(best.items())))
