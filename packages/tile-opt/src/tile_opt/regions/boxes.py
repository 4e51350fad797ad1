"""Boxes of cells."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tile_ir.frozen import frozen


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
