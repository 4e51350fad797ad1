"""Pieces of a number of rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tile_ir.frozen import frozen

STEPS = 8
"""Numbers of rows between one power of two and the next for which there are pieces."""
LAUNCH_BYTES = 1 << 15
"""What memory moves while another kernel is launched, and few rows keep few cores busy."""


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


def runs(rows: int, least: int = 1, row_bytes: int = 1, shared_bytes: int = 0) -> Sequence[Run]:
    """One piece for `rows` rows, or two: nearly all of them, and the last ones.

    Pieces begin at multiples of `least`, a power of two. The second piece may begin with rows that the first has computed: these
    are the same again. Where it cannot it is filled up with zeros, for which its rows are copied. All rows are, for one piece,
    where a second one would take longer: it reads `shared_bytes` again, which all rows share; `row_bytes` are those of a row.
    """
    above = _above(rows)
    if above == rows:
        return [Run(0, rows, rows)]
    below = rows - rows % max(least, _step(rows))
    if below == 0 or 2 * rows * row_bytes < shared_bytes + LAUNCH_BYTES:
        return [Run(0, rows, above)]
    rest = rows - below
    return [Run(0, below, below), _last(rows, rest, _above(rest), least)]


def _last(rows: int, rest: int, size: int, least: int) -> Run:
    start = rows - size
    return Run(rows - rest, rest, size) if start < 0 or start % least else Run(start, size, size)


def _above(rows: int) -> int:
    """The least number of rows, as many at least, for which there is a piece."""
    step = _step(rows)
    return -(-rows // step) * step


def _step(rows: int) -> int:
    """How far apart pieces of about so many rows are, a power of two."""
    return max(1, 1 << max(0, rows.bit_length() - STEPS.bit_length()))


def least_rows(row_bytes: Iterable[int], align: int) -> int:
    """The smallest power of two of rows that takes a multiple of `align` bytes (a power of two) in every one of several arrays."""
    least = 1
    for size in row_bytes:
        while size * least % align:
            least *= 2
    return least
