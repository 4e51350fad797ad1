"""Boundary conditions (padding, ragged edges): what they cost the tiles of a contraction on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod

from tile_ir.stripe.affine import Affine

from tile_opt.kernel.segments import interior
from tile_opt.model.contraction import Contraction, Counts

PEELED = 0.7
"""Share of groups that no condition cuts from which they get code of their own, without any."""


@dataclass(frozen=True)
class Conditions:
    """The constraints of a contraction's stage, which keep taps of a window inside an image."""

    work: Contraction
    known: dict[tuple[str, int, int], float] = field(default_factory=dict[tuple[str, int, int], float], compare=False)
    """What was asked so far: many tiles have the same cells along a loop."""

    def limits(self, loop: str) -> tuple[Affine, ...]:
        """Those that mention the loop, each >= 0."""
        return tuple(c for c in self.work.main.constraints if loop in c.names)

    @cached_property
    def interiors(self) -> dict[str, tuple[int, int]]:
        """The iterations that no condition cuts, of each shared loop that one mentions: the first, and the end."""
        constraints, ranges = self.work.main.constraints, self.work.view.ranges
        return {n: interior(n, constraints, ranges) for n in self.work.shared if self.limits(n)}

    def peels(self, sizes: Mapping[str, int]) -> bool:
        """Enough groups, of so many iterations of each shared loop, are free of conditions for code of their own."""
        return prod(self.inside(loop, sizes[loop]) for loop in self.work.shared) >= PEELED

    def inside(self, loop: str, size: int) -> float:
        """Share of the tiles of `size` iterations along a loop that no condition cuts."""
        if loop not in self.interiors:
            return 1.0
        low, high = self.interiors[loop]
        return max(0, high // size - -(-low // size)) / -(-self.work.shared[loop] // size)

    def asked(self, loop: str, cells: int, size: int) -> float:
        """Share of the taps of an item's `cells` along a loop that the first item or the last has outside: all have to ask.

        The last one is that of a whole tile of `size` iterations, which may lie beyond the loop.
        """
        last = -(-self.work.shared[loop] // size) * size // cells - 1
        if (loop, cells, last) not in self.known:
            self.known[loop, cells, last] = self._asked(loop, cells, last)
        return self.known[loop, cells, last]

    def _asked(self, loop: str, cells: int, last: int) -> float:
        limits = self.limits(loop)
        taps = {n: self.work.own[n] for c in limits for n in c.names if n in self.work.own}
        points = [dict(zip(taps, at, strict=True)) for at in product(*map(range, taps.values()))] if limits else []
        asked = sum(
            any(_outside(limit, point | {loop: item * cells + cell}) for limit in limits for item in (0, last))
            for cell in range(cells)
            for point in points
        )
        return asked / max(1, cells * len(points))


def _outside(limit: Affine, point: Counts) -> bool:
    """The limit does not hold at a point; loops that the point does not name stand at their first iteration."""
    return limit.const + sum(c * point.get(n, 0) for n, c in limit.terms) < 0
