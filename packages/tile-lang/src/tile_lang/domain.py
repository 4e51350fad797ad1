"""The valid index tuples of a contraction, enumerated exactly: clear and slow, without integer-set machinery.

Every constraint ``0 <= formula < size`` takes one of `size` integer values. As many linearly independent
formulas as there are indexes determine the indexes, so the tuples are found by running through the values of
those formulas, solving for the indexes, and keeping what is integral and meets the other constraints.
Fewer independent formulas leave an index without bounds (or the domain is empty for another reason).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import lcm, prod
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_ir.diagnostics import TileLimitError
from tile_ir.frozen import frozen
from tile_ir.program.nodes import Constraint, Poly

Integers = npt.NDArray[Any]
"""int64, or object (Python integers) where int64 might overflow."""

MAX_ENTRIES = 1 << 27
"""Most integers that a table of tuples may hold (1 GiB); larger contractions are not for the reference evaluator."""

_CHUNK = 1 << 18
_SAFE = 1 << 60


def independent(forms: Sequence[Poly], indexes: Sequence[str]) -> list[int]:
    """Positions of the first linearly independent forms (constants ignored), at most one per index."""
    chosen: list[int] = []
    rows: list[tuple[int, list[Fraction]]] = []
    for position, form in enumerate(forms):
        row = [form.coefficient(n) for n in indexes]
        for pivot, other in rows:
            if row[pivot]:
                row = _minus(row, other, row[pivot] / other[pivot])
        pivot = next((k for k, c in enumerate(row) if c), None)
        if pivot is not None:
            rows.append((pivot, row))
            chosen.append(position)
    return chosen


def _minus(row: list[Fraction], other: list[Fraction], factor: Fraction) -> list[Fraction]:
    return [a - factor * b for a, b in zip(row, other, strict=True)]


def undetermined(constraints: Sequence[Constraint], indexes: Sequence[str]) -> list[str]:
    """Indexes that the constraints leave without finite bounds; exact, since every constraint has two sides."""
    forms = [c.formula for c in constraints]
    rank = len(independent(forms, indexes))
    if rank == len(indexes):
        return []
    units = [Poly.of({n: 1}) for n in indexes]
    return [n for n, u in zip(indexes, units, strict=True) if len(independent([*forms, u], indexes)) > rank]


def tuples(constraints: Sequence[Constraint], indexes: Sequence[str]) -> Integers:
    """All valid tuples in lexicographic order: an integer array of shape [count, len(indexes)].

    A tuple is valid when every formula is an integer in [0, size). ValueError when an index is unbounded,
    TileLimitError when there are more than MAX_ENTRIES // len(indexes).
    """
    if any(c.size <= 0 for c in constraints):
        return np.zeros((0, len(indexes)), np.int64)
    ordered = sorted(constraints, key=lambda c: c.size)
    chosen = independent([c.formula for c in ordered], indexes)
    basis = [ordered[k] for k in chosen]
    if len(basis) < len(indexes):
        raise ValueError(f"index {', '.join(undetermined(constraints, indexes))} has no finite bounds")
    found: list[Integers] = []
    entries = 0
    for chunk in _candidates(basis, indexes):
        found.append(chunk)
        entries += chunk.size
        if entries > MAX_ENTRIES:
            raise TileLimitError(
                f"a contraction has more than {MAX_ENTRIES // len(indexes)} valid tuples", code="TILE-E050"
            )
    table = np.concatenate(found) if found else np.zeros((0, len(indexes)), np.int64)
    for constraint in (c for k, c in enumerate(ordered) if k not in chosen):
        value, whole = evaluate_form(constraint.formula, indexes, table)
        table = table[whole & (value >= 0) & (value < constraint.size)]
    order = np.lexsort(table.T[::-1]) if len(indexes) else np.arange(len(table))
    return table[order]


def evaluate_form(form: Poly, indexes: Sequence[str], table: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Floor of the formula at every tuple, and where it is an integer."""
    row = _IntegerRow.of([form.coefficient(n) for n in indexes], form.const)
    return row.apply(table)


@frozen
class _IntegerRow:
    """``(factors · x + const) / den`` with integers."""

    factors: tuple[int, ...]
    const: int
    den: int

    @staticmethod
    def of(factors: Sequence[Fraction], const: Fraction) -> _IntegerRow:
        den = lcm(const.denominator, *(f.denominator for f in factors))
        shift, *scaled = (f.numerator * (den // f.denominator) for f in (const, *factors))
        return _IntegerRow(tuple(scaled), shift, den)

    def apply(self, table: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
        largest = max(int(table.max()), -int(table.min())) if table.size else 0
        if sum(abs(f) for f in self.factors) * largest + abs(self.const) + self.den >= _SAFE:
            table = table.astype(object)
        total = np.full(len(table), self.const, table.dtype)
        for k, factor in enumerate(self.factors):
            if factor:
                total += table[:, k] * factor if factor != 1 else table[:, k]
        if self.den == 1:
            return total, np.ones(len(table), bool)
        return total // self.den, np.asarray(total % self.den == 0, bool)


def _candidates(basis: Sequence[Constraint], indexes: Sequence[str]) -> Iterator[Integers]:
    """Integral solutions x of ``basis formulas = v`` for every v in the product of their ranges."""
    matrix = [[c.formula.coefficient(n) for n in indexes] for c in basis]
    inverse = inverted(matrix)
    rows = [
        _IntegerRow.of(row, -sum((f * c.formula.const for f, c in zip(row, basis, strict=True)), Fraction(0)))
        for row in inverse
    ]
    sizes = [c.size for c in basis]
    total = prod(sizes)
    for start in range(0, total, _CHUNK):
        values = _digits(np.arange(start, min(total, start + _CHUNK), dtype=np.int64), sizes)
        solved = [row.apply(values) for row in rows]
        whole = np.ones(len(values), bool)
        for _, integral in solved:
            whole &= integral
        columns = [x[whole] for x, _ in solved]
        yield np.stack(columns, axis=1) if columns else np.zeros((int(whole.sum()), 0), np.int64)


def _digits(numbers: Integers, sizes: Sequence[int]) -> Integers:
    """Mixed-radix digits, the last one fastest."""
    columns: list[Integers] = []
    for size in reversed(sizes):
        columns.append(numbers % size)
        numbers = numbers // size
    return np.stack(columns[::-1], axis=1) if columns else np.zeros((len(numbers), 0), np.int64)


def inverted(matrix: list[list[Fraction]]) -> list[list[Fraction]]:
    """Gauss–Jordan over the rationals; the matrix is square and regular."""
    n = len(matrix)
    rows = [row + [Fraction(int(i == j)) for j in range(n)] for i, row in enumerate(matrix)]
    for k in range(n):
        pivot = next(r for r in range(k, n) if rows[r][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        if rows[k][k] != 1:
            rows[k] = [c / rows[k][k] for c in rows[k]]
        for r in range(n):
            if r != k and rows[r][k]:
                rows[r] = _minus(rows[r], rows[k], rows[r][k])
    return [row[n:] for row in rows]
