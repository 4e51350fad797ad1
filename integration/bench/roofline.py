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
    launch: float = 0.0
    """Seconds that the device's clock gives a kernel with next to nothing to do; the copies' rates have it in them."""

    def seconds(self, slots: float, moved: float) -> float:
        """The floor: the larger of what arithmetic and what memory need."""
        held = next((rate for size, rate in self.bandwidth.items() if moved <= size), min(self.bandwidth.values()))
        return max(self.launch + slots / self.slots, moved / held)

    def __str__(self) -> str:
        rates = ", ".join(f"{rate / 1e9:.0f} GB/s in {size >> 10} KiB" for size, rate in self.bandwidth.items())
        launch = f"; {self.launch * 1e6:.1f} µs a launch" if self.launch else ""
        return f"{2 * self.slots / 1e9:.0f} GFLOP/s; {rates}{launch}"


def probed(
    flops: Callable[[], float],
    copied: Callable[[int], float],
    sizes: Sequence[int] = FOOTPRINTS,
    launched: Callable[[], float] = lambda: 0.0,
) -> Roofline:
    """Of probes: multiply-adds, in GFLOP/s; copies, footprint -> bytes a second; and seconds of an empty kernel.

    What a larger footprint reaches a smaller one does too.
    """
    best: dict[int, float] = {}
    for size in sorted(sizes, reverse=True):
        best[size] = max(copied(size), *best.values(), 0.0)
    slots = max(flops() for _ in range(50)) * 1e9 / 2
    return Roofline(slots, dict(sorted(best.items())), min(launched() for _ in range(50)))
