"""The two changes of variables: output reduction and defracting.

Both keep the set of valid tuples. Reduction makes every independent output formula one index;
defracting replaces rational forms by integer ones, so that every integer point is a valid tuple.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from tile_ir.program.nodes import Poly

from tile_opt.analysis.linear import Basis, Matrix, Row, hermite, inverse, transpose
from tile_opt.analysis.system import EmptyDomain, Range, System, merge_parallel


def row_of(form: Poly, names: tuple[str, ...]) -> Row:
    """Coefficients of `form` in the order of `names`."""
    table = dict(form.terms)
    return [table.get(name, Fraction(0)) for name in names]


def needs_reduction(system: System) -> bool:
    """True when some output formula mixes two or more indexes."""
    return any(len(form.terms) >= 2 for form in system.output)


def reduce_output(system: System) -> System:
    """New indexes v0, v1, …: the independent output forms, then constraint forms until the basis is full."""
    basis = Basis(len(system.indexes))
    for form in (*system.output, *(r.form for r in system.ranges)):
        if basis.full:
            break
        basis.add(row_of(form, system.indexes))
    names = [f"v{k}" for k in range(basis.columns)]
    back = inverse(basis.rows)
    values = {old: Poly.of(dict(zip(names, row, strict=True))) for old, row in zip(system.indexes, back, strict=True)}
    return system.substituted(names, values)


def needs_defract(ranges: tuple[Range, ...]) -> bool:
    return any(not r.form.is_integral for r in ranges)


def defract(system: System) -> System:
    """Integer coordinates for the lattice on which every range's form is an integer.

    The lattice basis is triangular: old index i is ``D[i][i] * y_i`` plus multiples of earlier y_j. Those
    matter only modulo a small number, so y_j is split into mixed-radix digits. Splitting is not exact for
    every chain of three coupled indexes; where it leaves a fraction, y_j stays whole.
    """
    ranges = merge_parallel(system.ranges)
    names = system.indexes
    dual, shift = _lattice(ranges, names)
    for split in (_digit_steps(dual), [[1]] * len(names)):
        if split is None:
            continue
        result = _apply(replace(system, ranges=ranges), dual, shift, split)
        if all(r.form.is_integral for r in result.ranges):
            return result
    raise AssertionError("the dual basis spans the lattice")


def _lattice(ranges: tuple[Range, ...], names: tuple[str, ...]) -> tuple[Matrix, Row]:
    """Triangular lattice basis (rows), and a particular solution that makes constants integral."""
    rows = [row_of(r.form, names) for r in ranges]
    if all(r.form.const.denominator == 1 for r in ranges):
        return _dual(rows), [Fraction(0)] * len(names)
    pinned = [[r.form.const, *row] for r, row in zip(ranges, rows, strict=True)]
    pinned.append([Fraction(1)] + [Fraction(0)] * len(names))
    dual = _dual(pinned)
    if dual[0][0] != 1:
        raise EmptyDomain
    return [row[1:] for row in dual[1:]], dual[0][1:]


def _dual(rows: Matrix) -> Matrix:
    """Hermite form of a basis of ``{x : every row . x is an integer}``; basis vectors are rows."""
    return hermite(transpose(inverse(hermite(rows))))


def _digit_steps(dual: Matrix) -> list[list[int]] | None:
    """Place values of each coordinate's digits; None when they do not divide one another."""
    steps: list[list[int]] = []
    for j, row in enumerate(dual):
        values = sorted({1, *((row[k] / dual[k][k]).denominator for k in range(j + 1, len(dual)))})
        if any(b % a for a, b in pairwise(values)):
            return None
        steps.append(values)
    return steps


def _apply(system: System, dual: Matrix, shift: Row, steps: list[list[int]]) -> System:
    names = system.indexes
    digits = [[f"{name}_{t}" for t in range(len(step))] for name, step in zip(names, steps, strict=True)]
    values: dict[str, Poly] = {}
    for i, name in enumerate(names):
        form = Poly(const=shift[i]) + _number(digits[i], steps[i]).scaled(dual[i][i])
        for j in range(i):
            if dual[j][i]:
                whole = len(steps[j]) == 1
                modulus = None if whole else (dual[j][i] / dual[i][i]).denominator
                form += _number(digits[j], steps[j], modulus).scaled(dual[j][i])
        values[name] = form
    limits = [
        Range(Poly.of({digits[j][t]: 1}), step[t + 1] // step[t])
        for j, step in enumerate(steps)
        for t in range(len(step) - 1)
    ]
    return system.substituted((d for group in digits for d in group), values, *limits)


def _number(digits: list[str], steps: list[int], modulus: int | None = None) -> Poly:
    """The coordinate its digits spell, or its residue: the digits whose place value is below `modulus`."""
    return Poly.of({d: s for d, s in zip(digits, steps, strict=True) if modulus is None or s < modulus})
