"""Exact linear algebra on small matrices of fractions: rank, inverse, Hermite form.

A matrix is a list of rows. Sizes here are numbers of indexes of one contraction (about ten), so the
textbook algorithms are the fast ones.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm

Row = list[Fraction]
Matrix = list[Row]


class Basis:
    """Linearly independent rows, grown one candidate at a time by Gaussian elimination."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.rows: Matrix = []
        """The candidates that were accepted, unreduced."""
        self._reduced: list[tuple[int, Row]] = []

    def add(self, row: Row) -> bool:
        """Keep `row` if it is independent of the rows kept so far; tells whether it was."""
        rest = list(row)
        for pivot, kept in self._reduced:
            if factor := rest[pivot]:
                rest = [a - factor * b for a, b in zip(rest, kept, strict=True)]
        pivot = next((k for k, value in enumerate(rest) if value), None)
        if pivot is None:
            return False
        self._reduced.append((pivot, [value / rest[pivot] for value in rest]))
        self.rows.append(list(row))
        return True

    @property
    def full(self) -> bool:
        return len(self.rows) == self.columns

    def free_columns(self) -> list[int]:
        """Columns that no row fixes; empty when the basis is full."""
        pivots = {pivot for pivot, _ in self._reduced}
        return [k for k in range(self.columns) if k not in pivots]


def inverse(matrix: Matrix) -> Matrix:
    """The inverse of a square matrix; ZeroDivisionError when it is singular."""
    n = len(matrix)
    work = [list(row) + [Fraction(int(r == c)) for c in range(n)] for r, row in enumerate(matrix)]
    for column in range(n):
        pivot = next((r for r in range(column, n) if work[r][column]), None)
        if pivot is None:
            raise ZeroDivisionError("singular matrix")
        work[column], work[pivot] = work[pivot], work[column]
        scale = work[column][column]
        work[column] = [value / scale for value in work[column]]
        for r in range(n):
            if r != column and (factor := work[r][column]):
                work[r] = [a - factor * b for a, b in zip(work[r], work[column], strict=True)]
    return [row[n:] for row in work]


def transpose(matrix: Matrix) -> Matrix:
    return [list(row) for row in zip(*matrix, strict=True)]


def hermite(matrix: Matrix) -> Matrix:
    """Row Hermite form of a rational matrix: upper triangular, entries above a pivot in [0, pivot).

    Only integer row operations are used, so the rows generate the same lattice. Zero rows are dropped.
    """
    scale = lcm(1, *(value.denominator for row in matrix for value in row))
    rows = [[int(value * scale) for value in row] for row in matrix]
    done = _integer_hermite(rows)
    return [[Fraction(value, scale) for value in row] for row in done]


def _integer_hermite(rows: list[list[int]]) -> list[list[int]]:
    columns = len(rows[0]) if rows else 0
    top = 0
    for column in range(columns):
        if not _clear_below(rows, top, column):
            continue
        if rows[top][column] < 0:
            rows[top] = [-value for value in rows[top]]
        for r in range(top):
            _subtract(rows, r, top, rows[r][column] // rows[top][column])
        top += 1
    return rows[:top]


def _clear_below(rows: list[list[int]], top: int, column: int) -> bool:
    """Euclid's algorithm on a column from row `top` down; false when the column is zero there."""
    while True:
        live = [r for r in range(top, len(rows)) if rows[r][column]]
        if not live:
            return False
        best = min(live, key=lambda r: abs(rows[r][column]))
        rows[top], rows[best] = rows[best], rows[top]
        if len(live) == 1:
            return True
        for r in range(top + 1, len(rows)):
            _subtract(rows, r, top, rows[r][column] // rows[top][column])


def _subtract(rows: list[list[int]], target: int, source: int, factor: int) -> None:
    if factor:
        rows[target] = [a - factor * b for a, b in zip(rows[target], rows[source], strict=True)]
