"""Grids, which cut arrays into boxes: chunks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise, product
from math import prod

from tile_opt.regions.boxes import Box

Place = tuple[int, ...]
"""Which chunk of a grid: its number along each axis."""


@dataclass(frozen=True)
class Grid:
    """How many cells the chunks along each axis have: as `dask.array.Array.chunks`, unequal ones included."""

    sizes: tuple[tuple[int, ...], ...]

    @staticmethod
    def single(shape: Sequence[int]) -> Grid:
        """One chunk."""
        return Grid(tuple((n,) for n in shape))

    @staticmethod
    def cut(size: int, cuts: Sequence[int]) -> tuple[int, ...]:
        """The sizes along an axis that is cut before certain cells."""
        inner = sorted({c for c in cuts if 0 < c < size})
        ends = [0, *inner, size]
        return tuple(b - a for a, b in pairwise(ends))

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return tuple(map(sum, self.sizes))

    @property
    def counts(self) -> tuple[int, ...]:
        """Chunks along each axis."""
        return tuple(map(len, self.sizes))

    @property
    def chunks(self) -> int:
        return prod(self.counts)

    @cached_property
    def ends(self) -> tuple[tuple[int, ...], ...]:
        """Where chunks begin along each axis, and where the last one ends."""
        return tuple((0, *accumulate(sizes)) for sizes in self.sizes)

    def cuts(self, axis: int) -> tuple[int, ...]:
        """The cells before which an axis is cut."""
        return self.ends[axis][1:-1]

    def places(self) -> Iterator[Place]:
        """All chunks, in row-major order."""
        return product(*map(range, self.counts))

    def box(self, place: Place) -> Box:
        ends = self.ends
        return Box(
            tuple([ends[k][p] for k, p in enumerate(place)]), tuple([ends[k][p + 1] for k, p in enumerate(place)])
        )

    def parts(self, box: Box) -> list[tuple[Place, Box]]:
        """The chunks that a box meets, each with the cells they share."""
        return [(place, self.box(place).shared(box)) for place in product(*self.meeting(box))]

    def meeting(self, box: Box) -> list[range]:
        """The numbers of the chunks that a box meets, along each axis."""
        return [self._along(k, low, high) for k, (low, high) in enumerate(zip(box.low, box.high, strict=True))]

    def _along(self, axis: int, low: int, high: int) -> range:
        ends = self.ends[axis]
        return range(bisect_right(ends, low) - 1, bisect_left(ends, high))


def stacked(row: Grid, count: int) -> Grid:
    """The grid of `count` arrays on top of each other, each with a first axis of one cell."""
    return Grid(((1,) * count, *row.sizes[1:]))
