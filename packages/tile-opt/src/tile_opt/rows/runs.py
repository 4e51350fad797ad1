"""Pieces of a number of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tile_ir.frozen import frozen

ROUNDED_UP = 7 / 8
"""How full a piece must be, or how much of all rows must be done before it, so that the rest is filled up to a whole piece."""


@frozen
class Run:
    """Rows `start` to ``start + used``, computed by a piece for `rows` rows."""

    start: int
    used: int
    rows: int

    @property
    def filled(self) -> bool:
        """The piece has more rows than there are."""
        return self.used < self.rows


def runs(rows: int, least: int = 1) -> Sequence[Run]:
    """Pieces for `rows` rows, of powers of two from `least` on (a power of two itself): few, and nearly all rows of use."""
    found: list[Run] = []
    start = 0
    while start < rows:
        left = rows - start
        above = max(least, 1 << (left - 1).bit_length())
        below = above if left == above else above // 2
        if below < least or left >= above * ROUNDED_UP or start >= rows * ROUNDED_UP:
            found.append(Run(start, left, above))
            break
        found.append(Run(start, below, below))
        start += below
    return found


def least_rows(row_bytes: Iterable[int], align: int) -> int:
    """The smallest power of two of rows that takes a multiple of `align` bytes (a power of two) in every one of several arrays."""
    least = 1
    for size in row_bytes:
        while size * least % align:
            least *= 2
    return least
