"""Bounds of index variables and formulas, by intervals: never too narrow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

from tile_ir.program.nodes import Contraction, Poly

Interval = tuple[float | Fraction, float | Fraction]
EVERYWHERE: Interval = (-math.inf, math.inf)
ROUNDS = 4
"""How often constraints of several variables are looked at again."""


def span(formula: Poly, bounds: Mapping[str, Interval]) -> Interval:
    """The least and the greatest value of a formula."""
    low: float | Fraction = formula.const
    high: float | Fraction = formula.const
    for name, c in formula.terms:
        ends = [c * b for b in bounds.get(name, EVERYWHERE)]
        low, high = low + min(ends), high + max(ends)
    return low, high


def variable_bounds(ranges: Sequence[tuple[Poly, int]]) -> dict[str, Interval]:
    """Of variables where ``0 <= formula < size`` holds for all of `ranges`."""
    found: dict[str, Interval] = {}
    for _ in range(ROUNDS):
        before = dict(found)
        for formula, size in ranges:
            for name, c in formula.terms:
                found[name] = _narrowed(found.get(name, EVERYWHERE), formula, name, c, size, found)
        if found == before:
            break
    return found


def _narrowed(
    known: Interval, formula: Poly, name: str, c: Fraction, size: int, bounds: Mapping[str, Interval]
) -> Interval:
    low, high = span(Poly(tuple(t for t in formula.terms if t[0] != name), formula.const), bounds)
    ends = sorted(((0 - high) / c, (size - 1 - low) / c))
    return max(known[0], _whole(math.ceil, ends[0])), min(known[1], _whole(math.floor, ends[1]))


def _whole(rounded: Callable[[float | Fraction], int], value: float | Fraction) -> float | Fraction:
    return value if isinstance(value, float) else Fraction(rounded(value))


def inside(op: Contraction, shape: Sequence[int]) -> dict[str, Interval]:
    """Bounds of a contraction's indexes where its output lies in the box `shape`."""
    return variable_bounds([*((c.formula, c.size) for c in op.constraints), *zip(op.output, shape, strict=True)])


def cells(shape: Iterable[int]) -> dict[str, Interval]:
    """Bounds of the coordinates ``i0, i1, …`` of a cell."""
    return {f"i{k}": (Fraction(0), Fraction(size - 1)) for k, size in enumerate(shape)}
