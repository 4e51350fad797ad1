"""Boxes of cells, and grids that cut an array into them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise, product
from math import prod

from tile_ir.frozen import frozen

Place = tuple[int, ...]
"""Which chunk of a grid: its number along each axis."""


@frozen
class Box:
    """Cells from `low` (inclusive) to `high` (exclusive) along each axis."""

    low: tuple[int, ...]
    high: tuple[int, ...]

    @staticmethod
    def around(reaches: Sequence[tuple[int, int]]) -> Box:
        """From `low` to `high` along each axis."""
        return Box(tuple(low for low, _ in reaches), tuple(high for _, high in reaches))

    @staticmethod
    def whole(shape: Sequence[int]) -> Box:
        return Box((0,) * len(shape), tuple(shape))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple([high - low for low, high in zip(self.low, self.high, strict=True)])

    @property
    def size(self) -> int:
        """Number of cells."""
        return prod(self.shape)

    def hull(self, other: Box) -> Box:
        """The smallest box around both."""
        return Box(tuple(map(min, self.low, other.low)), tuple(map(max, self.high, other.high)))

    def within(self, other: Box) -> bool:
        return self.hull(other) == other

    def shared(self, other: Box) -> Box:
        """The cells of both; one without any where they do not meet."""
        low = tuple(map(max, self.low, other.low))
        return Box(low, tuple(map(max, low, map(min, self.high, other.high))))

    def meets(self, other: Box) -> bool:
        return self.shared(other).size > 0

    def along(self, axis: int, ends: tuple[int, int]) -> Box:
        """The cells from one place to another along an axis."""
        low, high = (
            [*side[:axis], end, *side[axis + 1 :]] for side, end in zip((self.low, self.high), ends, strict=True)
        )
        return Box(tuple(low), tuple(high))

    def beside(self, other: Box) -> Box:
        """The axes of both, those of `other` behind."""
        return Box(self.low + other.low, self.high + other.high)

    def parted(self, axes: int) -> tuple[Box, Box]:
        """The first axes, and those behind."""
        return Box(self.low[:axes], self.high[:axes]), Box(self.low[axes:], self.high[axes:])

    def moved(self, steps: Sequence[int]) -> Box:
        """As many cells further along each axis."""
        return Box(
            tuple([a + b for a, b in zip(self.low, steps, strict=True)]),
            tuple([a + b for a, b in zip(self.high, steps, strict=True)]),
        )

    def relative(self, low: Sequence[int]) -> Box:
        """The same cells, counted from `low`."""
        return self.moved([-n for n in low])


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
