"""A contraction's domain as range constraints over rational forms, and the merging of parallel ones.

A range constraint says that its form is an integer in ``[0, size)``; without a size it
only says that the form is an integer (the guard that keeps an old index integral after a change of
variables; the +-5e8 of PlaidML's guard is not kept, since unbounded indexes are found by rank instead).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import ceil, floor

from tile_ir.frozen import frozen
from tile_ir.program.nodes import Constraint, Contraction, Poly
from tile_ir.stripe.affine import Affine


class EmptyDomain(Exception):
    """No index tuple satisfies the constraints: every output cell holds 0 or the default."""


@frozen
class Range:
    """``form`` is an integer in [0, size); `size` None means any integer."""

    form: Poly
    size: int | None


@frozen
class System:
    """Indexes, the forms that address tensors, and the ranges that say which tuples are valid."""

    indexes: tuple[str, ...]
    output: tuple[Poly, ...]
    accesses: tuple[tuple[Poly, ...], ...]
    ranges: tuple[Range, ...]

    def substituted(self, indexes: Iterable[str], values: Mapping[str, Poly], *extra: Range) -> System:
        """The same system over new indexes, each old one replaced by its form of them."""
        return System(
            tuple(sorted(indexes)),
            tuple(substitute(form, values) for form in self.output),
            tuple(tuple(substitute(form, values) for form in access) for access in self.accesses),
            tuple(Range(substitute(r.form, values), r.size) for r in self.ranges) + extra,
        )


def poly(form: Affine) -> Poly:
    """The same form, with rational coefficients."""
    return Poly.of(dict(form.terms), form.const)


def affine(form: Poly) -> Affine:
    """A form of integers, as one."""
    return Affine(tuple((name, int(c)) for name, c in form.terms), int(form.const))


def substitute(form: Poly, values: Mapping[str, Poly]) -> Poly:
    """Replace every index of `form`."""
    total: dict[str, Fraction] = {}
    const = form.const
    for name, c in form.terms:
        value = values[name]
        const += c * value.const
        for inner, k in value.terms:
            total[inner] = total.get(inner, Fraction(0)) + c * k
    return Poly.of(total, const)


def gather(contraction: Contraction) -> System:
    """All constraints, the user's first, then output and inputs by dimension; small ranges first.

    Of ranges as large those come last whose indexes step over cells of the output: what is solved for such an index has a
    part for each place within a step, where otherwise every cell would look at all indexes that may reach it.
    """
    subscripts = len(contraction.output) + sum(len(load.formulas) for load in contraction.loads)
    given = contraction.constraints
    ordered: Sequence[Constraint] = (*given[subscripts:], *given[:subscripts])
    ranges = sorted((Range(c.formula, c.size) for c in ordered), key=partial(_order, _steps(contraction.output)))
    guards = tuple(Range(Poly.of({name: 1}), None) for name in contraction.indexes)
    return System(
        tuple(sorted(contraction.indexes)),
        contraction.output,
        tuple(load.formulas for load in contraction.loads),
        (*ranges, *guards),
    )


def _steps(output: Iterable[Poly]) -> dict[str, Fraction]:
    """Of each index the cells between neighbouring iterations, where that is more than one and other indexes fill them."""
    mixed = (form for form in output if len(form.terms) > 1)
    return {name: abs(c) for form in mixed for name, c in form.terms if abs(c) > 1}


def _order(steps: Mapping[str, Fraction], given: Range) -> tuple[int, Fraction]:
    """Small ones first, then those without `steps`."""
    return given.size or 0, max((steps.get(name, Fraction()) for name, _ in given.form.terms), default=Fraction())


def merge_parallel(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Fold every constraint into the first one whose form is proportional to it; EmptyDomain when they clash."""
    kept: dict[tuple[tuple[str, Fraction], ...], Range] = {}
    for r in ranges:
        if r.size is not None and r.size <= 0:
            raise EmptyDomain
        if not r.form.terms:
            _check_constant(r)
            continue
        lead = r.form.terms[0][1]
        key = r.form.terms if lead == 1 else tuple((name, c / lead) for name, c in r.form.terms)
        kept[key] = _merge(kept[key], r) if key in kept else r
    return tuple(kept.values())


def _check_constant(r: Range) -> None:
    value = r.form.const
    inside = r.size is None or 0 <= value < r.size
    if not inside or value.denominator != 1:
        raise EmptyDomain


def _merge(a: Range, b: Range) -> Range:
    """One range for two parallel ones: ``a = n q + ca`` and ``b = m q + cb`` with n, m coprime."""
    sizes = [r.size for r in (a, b) if r.size is not None]
    if sizes and a.form == b.form and a.form.const.denominator == 1:  # most are
        return Range(a.form, min(sizes))
    ratio = a.form.terms[0][1] / b.form.terms[0][1]
    n, m = ratio.numerator, ratio.denominator
    u, v = _bezout(n, m)
    offset = u * a.form.const + v * b.form.const
    offset -= floor(offset)
    if (n * offset - a.form.const).denominator != 1 or (m * offset - b.form.const).denominator != 1:
        raise EmptyDomain
    form = Poly(a.form.terms).scaled(Fraction(1, n))
    bounds = [_interval(r, k, offset) for r, k in ((a, n), (b, m)) if r.size is not None]
    if not bounds:
        return Range(form + Poly(const=offset), None)
    low, high = max(b[0] for b in bounds), min(b[1] for b in bounds)
    if high < low:
        raise EmptyDomain
    return Range(form + Poly(const=offset - low), high - low + 1)


def _interval(r: Range, factor: int, offset: Fraction) -> tuple[int, int]:
    """The integers ``q + offset`` may be when ``0 <= factor * q + const < size``."""
    assert r.size is not None
    ends = sorted((-r.form.const / factor, (r.size - 1 - r.form.const) / factor))
    return ceil(ends[0] + offset), floor(ends[1] + offset)


def _bezout(a: int, b: int) -> tuple[int, int]:
    """(u, v) with ``u * a + v * b == 1`` for coprime a, b."""
    old, new = (a, 1, 0), (b, 0, 1)
    while new[0]:
        q = old[0] // new[0]
        old, new = new, (old[0] - q * new[0], old[1] - q * new[1], old[2] - q * new[2])
    return (old[1], old[2]) if old[0] == 1 else (-old[1], -old[2])
