"""Pieces of a number of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tile_ir.frozen import frozen
from tile_ir.powers import power_of_two

ROUNDED_UP = 7 / 8
"""How full a piece must be, or how much of all rows must be done before it, so that the rest is filled up to a whole piece."""
TWICE = 1 / 7
"""The part of all rows that may be computed twice, so that the last piece is a whole one which ends with them."""
FEW = 4
"""So many rows are one piece in any case: another launch takes longer than they do."""


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

    @property
    def end(self) -> int:
        return self.start + self.used


def runs(rows: int, least: int = 1) -> Sequence[Run]:
    """Pieces for `rows` rows, of powers of two: few, and nearly all rows of use.

    All begin at multiples of `least`, a power of two. A piece may begin with rows that the one before it has computed: these
    are the same again. Only where it cannot it is filled up with zeros, for which rows are copied.
    """
    found: list[Run] = []
    start = 0
    while start < rows:
        run = _next(rows, start, least)
        found.append(run)
        start = run.end
    return found


def _next(rows: int, start: int, least: int) -> Run:
    """The piece that computes row `start`."""
    left = rows - start
    if left & (left - 1) == 0:
        return Run(start, left, left)
    above = max(least, power_of_two(left))
    below = above // 2
    if below < least:
        return Run(start, left, above)
    back = _back(rows, start, above, least)
    if back is not None:
        return Run(back, above, above)
    full = left >= above * ROUNDED_UP and _back(rows, start + below, below, least) is None
    if full or start >= rows * ROUNDED_UP or above <= FEW:
        return Run(start, left, above)
    return Run(start, below, below)


def _back(rows: int, start: int, size: int, least: int) -> int | None:
    """Where a piece of `size` begins that ends with the last multiple of `least` rows; None where too much is done twice."""
    begin = (rows - size) // least * least
    rest = least if rows % least else 0
    return begin if 0 <= begin <= start and (start - begin + rest) <= rows * TWICE else None


def least_rows(row_bytes: Iterable[int], align: int) -> int:
    """The smallest power of two of rows that takes a multiple of `align` bytes (a power of two) in every one of several arrays."""
    least = 1
    for size in row_bytes:
        while size * least % align:
            least *= 2
    return least
