"""From a contraction to a flat domain: integer loop indexes from 0, leftover constraints, affine accesses.

Every integer point of the result that satisfies the
constraints is one valid tuple of the contraction, and every valid tuple is one such point.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import gcd

from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.frozen import frozen
from tile_ir.program.nodes import Contraction
from tile_ir.stripe.affine import Affine, names_in
from tile_ir.stripe.nodes import row_major_strides

from tile_opt.analysis.linear import Basis
from tile_opt.analysis.reduce import defract, needs_defract, needs_reduction, reduce_output, row_of
from tile_opt.analysis.sets import Bounds, Sets
from tile_opt.analysis.system import EmptyDomain, Range, System, affine, gather, merge_parallel


@frozen
class FlatDomain:
    """Loop indexes ``0 <= name < range`` in name order, constraints (>= 0) and accesses over them.

    `output` has a form per output dimension, `accesses` a tuple of forms per load. An `empty` domain
    has no indexes and no accesses. `implied` are constraints of the contraction that the ranges alone do not
    give but the ranges and `constraints` together do: nothing need check them.
    """

    names: tuple[str, ...]
    ranges: tuple[int, ...]
    constraints: tuple[Affine, ...]
    output: tuple[Affine, ...]
    accesses: tuple[tuple[Affine, ...], ...]
    empty: bool = False
    implied: tuple[Affine, ...] = ()

    def strides(self, access: Sequence[Affine], shape: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """(stride per index, offset) of an access into a packed C-order tensor of `shape`."""
        flat = Affine()
        for form, step in zip(access, row_major_strides(tuple(shape)), strict=True):
            flat += form * step
        return tuple(flat.coefficient(name) for name in self.names), flat.const

    @property
    def extents(self) -> dict[str, int]:
        """The range of each index, by its name."""
        return dict(zip(self.names, self.ranges, strict=True))

    @property
    def box(self) -> tuple[Affine, ...]:
        """The ranges of the indexes as constraints."""
        return tuple(
            form
            for name, size in zip(self.names, self.ranges, strict=True)
            for form in (Affine.var(name), Affine.var(name, -1) + (size - 1))
        )


def analyze(contraction: Contraction, sets: Sets) -> FlatDomain:
    """The flat domain of a contraction; TileTypeError for an index that nothing bounds or a repeated ``=``."""
    key = _key(contraction)
    found = sets.domains.get(key)
    if isinstance(found, FlatDomain):
        return found
    sets.begin(contraction.name, contraction.origin)
    _check_bounded(contraction)
    try:
        domain = _flatten(_canonical(contraction), sets)
    except EmptyDomain:
        domain = FlatDomain((), (), (), (), (), empty=True)
    sets.domains[key] = domain
    return domain


def _key(contraction: Contraction) -> object:
    """All that the domain depends on: long programs ask for the same few again and again."""
    return (
        contraction.indexes,
        contraction.output,
        tuple((c.formula, c.size) for c in contraction.constraints),
        tuple(load.formulas for load in contraction.loads),
        contraction.no_defract,
    )


def _check_bounded(contraction: Contraction) -> None:
    """Every constraint is a two-sided range, so the domain is bounded exactly when their forms have full rank."""
    basis = Basis(len(contraction.indexes))
    for constraint in contraction.constraints:
        basis.add(row_of(constraint.formula, contraction.indexes))
    free = [contraction.indexes[k] for k in basis.free_columns()]
    if free:
        names = ", ".join(f"'{name}'" for name in free)
        plural = "indexes" if len(free) > 1 else "index"
        message = f"nothing bounds the {plural} {names} of this contraction"
        hint = f"use {'them' if len(free) > 1 else 'it'} in a subscript, or add a constraint such as ', {free[0]} < 3'"
        raise TileTypeError(Diagnostic("TILE-E131", message, contraction.origin, hint))


def _canonical(contraction: Contraction) -> System:
    system = gather(contraction)
    if not contraction.no_defract and needs_reduction(system):
        system = reduce_output(system)
    if needs_defract(merge_parallel(system.ranges)):
        system = defract(system)
    return replace(system, ranges=merge_parallel(system.ranges))


def _sides(ranges: Iterable[Range]) -> list[Affine]:
    """Each range as two one-sided constraints, lower before upper."""
    sides: list[Affine] = []
    for r in ranges:
        if r.size is not None:
            form = affine(r.form)
            sides += [form, form * -1 + (r.size - 1)]
    return sides


def _flatten(system: System, sets: Sets) -> FlatDomain:
    sides = _sides(system.ranges)
    bounds = find_bounds(system.indexes, sides, sets)
    if bounds is None:
        raise EmptyDomain
    sides, values = _without_equalities(leftover(sides, bounds), bounds, system)
    if values:
        bounds = {name: b for name, b in bounds.items() if name not in values}
    shift = {name: _shifted(name, b) for name, b in bounds.items()}
    names = tuple(name for name, (low, high) in bounds.items() if high > low)
    ranges = tuple(bounds[name][1] - bounds[name][0] + 1 for name in names)

    def rebase(form: Affine) -> Affine:
        for name, value in values.items():
            form = form.substitute({name: value})
        return form.substitute(shift)

    domain = FlatDomain(
        names,
        ranges,
        tuple(form for form in map(rebase, sides) if form.terms),
        tuple(rebase(affine(form)) for form in system.output),
        tuple(tuple(rebase(affine(form)) for form in access) for access in system.accesses),
    )
    needed, implied = _needed(domain, sets)
    return replace(domain, constraints=needed, implied=implied)


def _shifted(name: str, bounds: tuple[int, int]) -> Affine:
    low, high = bounds
    return Affine((), low) if low == high else Affine.var(name) + low


def find_bounds(names: Sequence[str], sides: Sequence[Affine], sets: Sets) -> Bounds | None:
    """Exact bounds of each name: by intervals where every constraint has one name, else by ISL; None if empty."""
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    for form in sides:
        if len(form.terms) != 1:
            return sets.bounds(names, sides)
        name, c = form.terms[0]
        if c > 0:
            low[name] = max(low.get(name, -form.const // c), -(form.const // c))
        else:
            high[name] = min(high.get(name, form.const // -c), form.const // -c)
    if any(low[name] > high[name] for name in names):
        return None
    return {name: (low[name], high[name]) for name in names}


def leftover(sides: Iterable[Affine], bounds: Bounds) -> list[Affine]:
    """The constraints that the box of bounds does not imply."""
    return [form for form in sides if form.bounds(bounds)[0] < 0]


def _without_equalities(sides: list[Affine], bounds: Bounds, system: System) -> tuple[list[Affine], dict[str, Affine]]:
    """Solve constraints that allow one value (a diagonal, say) for an index with coefficient +-1.

    Gives the remaining constraints and, in order of substitution, a form for each index that went. Its
    own bounds stay as constraints.
    """
    values: dict[str, Affine] = {}
    outputs = names_in(system.output)
    while equality := next((form for form in sides if form * -1 in sides), None):
        units = [name for name, c in equality.terms if abs(c) == 1]
        if not units:
            break
        name = min(units, key=lambda n: (n in outputs, n))
        value = Affine.var(name) - equality * equality.coefficient(name)
        values[name] = value
        low, high = bounds[name]
        sides = [f.substitute({name: value}) for f in sides] + [value - low, value * -1 + high]
        rest = {n: b for n, b in bounds.items() if n not in values}
        sides = leftover(dict.fromkeys(sides), rest)
    return sides, values


def _needed(domain: FlatDomain, sets: Sets) -> tuple[tuple[Affine, ...], tuple[Affine, ...]]:
    """The constraints without repetitions, apart from those that the others imply, and these."""
    distinct = tuple(dict.fromkeys(_tightened(form) for form in domain.constraints))
    if len(distinct) < 2:
        return distinct, ()
    kept = list(distinct)
    box = domain.box
    for form in distinct:
        others = [f for f in kept if f is not form]
        shared = set(form.names) <= names_in(others)
        if shared and sets.implied(domain.names, (*box, *others), form):
            kept = others
    return tuple(kept), tuple(form for form in distinct if form not in kept)


def _tightened(form: Affine) -> Affine:
    """Divide by the common factor of the coefficients; the constant is rounded towards the set."""
    factor = gcd(*(c for _, c in form.terms))
    if factor == 1:
        return form
    return Affine(tuple((n, c // factor) for n, c in form.terms), form.const // factor)
