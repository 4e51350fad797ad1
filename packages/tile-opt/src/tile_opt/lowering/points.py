"""How many iterations of nested loops run: the product of their ranges, less those that constraints exclude."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from math import gcd, prod
from typing import Any, cast

import numpy as np
from tile_ir.frozen import frozen, replace
from tile_ir.stripe.affine import Affine, Quasi
from tile_ir.stripe.nodes import Block

Array = np.ndarray[Any, np.dtype[Any]]
Ranges = Mapping[str, int]
Step = tuple[int, int]
"""What an index is multiplied by in a sum, and how many values it has."""

LIMIT = 1 << 16
"""Points, or values of sums of indexes, that are looked at one by one; where there would be more, the count is a bound."""
FEW = 1 << 12
"""Points that are sooner tried than reasoned about."""


@frozen
class Nest:
    """Loops around a block: `ranges` by unique name, what the block calls them, and constraints that may fail."""

    ranges: Ranges
    names: Mapping[str, Affine]
    constraints: tuple[Quasi, ...] = ()
    empty: bool = False

    def inside(self, block: Block) -> Nest:
        """The nest of the statements of `block`, which stands in this one."""
        ranges, names = dict(self.ranges), dict[str, Affine]()
        for index in block.indexes:
            if index.value is None:
                unique = f"{index.name}.{len(ranges)}"
                ranges[unique] = index.range
                names[index.name] = Affine.var(unique)
            else:
                names[index.name] = index.value.substitute(self.names)
        forms = [g.substitute(self.names) for g in block.guard] + [c.substitute(names) for c in block.constraints]
        lows_highs = [(f, *_bounds(f, ranges)) for f in forms]
        open_ = tuple(f for f, low, _ in lows_highs if low < 0)
        kept = tuple(dict.fromkeys((*self.constraints, *open_))) if open_ else self.constraints
        return Nest(ranges, names, kept, self.empty or any(high < 0 for _, _, high in lows_highs))

    def points(self) -> int:
        """Iterations that run; at most so many where one of the coupled constraints is too long (see `LIMIT`)."""
        if self.empty or not all(self.ranges.values()):
            return 0
        total, free = 1, dict(self.ranges)
        for forms in _coupled(self.constraints):
            involved = {n: free.pop(n) for form in forms for n in form.names if n in free}
            total *= _count(forms, involved)
        return total * prod(free.values())

    def by_vectors(self, name: str, lanes: int) -> Nest:
        """The nest with iterations of a loop taken `lanes` at a time: vectors of which a constraint leaves some lanes run whole."""
        if self.ranges[name] % lanes:
            return self
        forms = tuple(_of_vectors(form, name, lanes) for form in self.constraints)
        return replace(self, ranges={**self.ranges, name: self.ranges[name] // lanes}, constraints=forms)


def _of_vectors(form: Quasi, name: str, lanes: int) -> Quasi:
    """The constraint of the lane that is the last to fail, in numbers of vectors."""
    vectors = form.substitute({name: Affine.var(name, lanes)})
    last = max(0, form.coefficient(name)) * (lanes - 1) if isinstance(form, Affine) else 0
    return vectors + last if isinstance(vectors, Affine) else vectors


OUTSIDE = Nest({}, {})


def _bounds(form: Quasi, ranges: Ranges) -> tuple[int, int]:
    """Values that the form stays within; of one with a division only that it may fail."""
    if not isinstance(form, Affine):
        return -1, 0
    return form.bounds({n: (0, max(0, ranges[n] - 1)) for n in form.names})


def _coupled(forms: Iterable[Quasi]) -> list[list[Quasi]]:
    """The constraints in groups that have no index in common."""
    groups: list[tuple[set[str], list[Quasi]]] = []
    for form in forms:
        names, members = set(form.names), [form]
        for group in [g for g in groups if names & g[0]]:
            groups.remove(group)
            names |= group[0]
            members = group[1] + members
        groups.append((names, members))
    return [members for _, members in groups]


def _count(forms: Sequence[Quasi], ranges: Ranges) -> int:
    """Points of the box `ranges` where all `forms` are >= 0."""
    forms, ranges = _narrowed(*_joined(forms, ranges))
    lines = [f for f in forms if isinstance(f, Affine)]
    everything = prod(ranges.values())
    if everything <= (LIMIT if len(lines) < len(forms) else FEW):
        return _listed(forms, ranges)
    counts = [_by_values(lines, ranges)] if lines else []
    if counts == [None]:
        counts = [_by_values([form], ranges) for form in lines]
    return min((n for n in counts if n is not None), default=everything)


def _joined(forms: Sequence[Quasi], ranges: Ranges) -> tuple[Sequence[Quasi], Ranges]:
    """Indexes that all forms take as digits of one number, such as ``16*i_g + i_t`` with 16 values of ``i_t``, as that number.

    It has the name of the last digit.
    """
    if not all(isinstance(form, Affine) for form in forms):
        return forms, ranges
    weights = {n: [form.coefficient(n) for form in forms if isinstance(form, Affine)] for n in ranges}
    for low, high in permutations(ranges, 2):
        if weights[high] == [ranges[low] * weight for weight in weights[low]]:
            left = {n: r for n, r in ranges.items() if n != high} | {low: ranges[low] * ranges[high]}
            return _joined([form.substitute({high: Affine()}) for form in forms], left)
    return forms, ranges


def _narrowed(forms: Sequence[Quasi], ranges: Ranges) -> tuple[Sequence[Quasi], Ranges]:
    """Constraints on one index alone as what they are, its bounds; it then counts from the first value on."""
    alone = next((f for f in forms if isinstance(f, Affine) and len(f.names) == 1), None)
    if alone is None:
        return forms, ranges
    ((name, factor),) = alone.terms
    first = max(0, -(alone.const // factor)) if factor > 0 else 0
    end = min(ranges[name], alone.const // -factor + 1) if factor < 0 else ranges[name]
    moved = {name: Affine.var(name) + first if end - first > 1 else Affine((), first)}
    rest = [f.substitute(moved) for f in forms if f is not alone]
    if end <= first or any(not f.names and f.evaluate({}) < 0 for f in rest):
        return (), {name: 0}
    left = {n: r for n, r in ranges.items() if n != name} | ({name: end - first} if end - first > 1 else {})
    return _narrowed([f for f in rest if f.names], left)


def _listed(forms: Sequence[Quasi], ranges: Ranges) -> int:
    """The count by trying every point."""
    axes = np.ix_(*(np.arange(n) for n in ranges.values()))
    values = cast("Mapping[str, Any]", dict(zip(ranges, axes, strict=True)))
    holds = np.ones(tuple(ranges.values()), np.bool_)
    for form in forms:
        holds &= np.asarray(form.evaluate(values)) >= 0
    return int(np.count_nonzero(holds))


@frozen
class _Sum:
    """Indexes that appear in all forms in one proportion, such as ``16*i_g + i_t``, as one index of many weights."""

    factors: tuple[int, ...]
    """What each form multiplies the sum by."""
    values: Array
    often: Array
    """How many points have each value."""


def _by_values(forms: Sequence[Affine], ranges: Ranges) -> int | None:
    """The exact count, by the values of few sums instead of by points; None where they are still too many."""
    columns: dict[tuple[int, ...], list[Step]] = {}
    for name, extent in ranges.items():
        column = [form.coefficient(name) for form in forms]
        step = gcd(*column) * (1 if next(filter(None, column), 1) > 0 else -1)
        columns.setdefault(tuple(c // step for c in column) if step else (0,) * len(forms), []).append((step, extent))
    rest = prod(extent for _, extent in columns.pop((0,) * len(forms), ()))
    sums = dict(_whole(factors, steps) for factors, steps in columns.items())
    lengths = sorted(1 + sum(abs(step) * (n - 1) for step, n in steps) for steps in sums.values())
    if any(n > LIMIT for n in lengths) or prod(lengths[:-1]) > LIMIT:
        return None
    *listed, last = sorted((_sum(f, steps) for f, steps in sums.items()), key=lambda s: len(s.values))
    return rest * _pairs(listed, last, [form.const for form in forms])


def _whole(factors: tuple[int, ...], steps: Sequence[Step]) -> tuple[tuple[int, ...], Sequence[Step]]:
    """A sum in the largest units that all its steps are multiples of."""
    unit = gcd(*(step for step, _ in steps))
    return tuple(factor * unit for factor in factors), [(step // unit, extent) for step, extent in steps]


def _sum(factors: tuple[int, ...], steps: Sequence[Step]) -> _Sum:
    often = np.ones(1, np.int64)
    for step, extent in ((abs(step), extent) for step, extent in steps):
        size = len(often) + step * (extent - 1)
        padded = np.zeros(-(-size // step) * step, np.int64)
        padded[: len(often)] = often
        sums = padded.reshape(-1, step).cumsum(0)
        # The sum of the `extent` rows that end here.
        sums[extent:] -= sums[:-extent].copy()
        often = sums.reshape(-1)[:size]
    lowest = sum(min(0, step * (extent - 1)) for step, extent in steps)
    return _Sum(factors, np.arange(lowest, lowest + len(often)), often)


def _pairs(listed: Sequence[_Sum], last: _Sum, consts: Sequence[int]) -> int:
    """For all values of the `listed` sums: how many of the `last` one the forms leave."""
    axes = np.ix_(*(s.values for s in listed))
    weights: Any = 1
    for weight in np.ix_(*(s.often for s in listed)):
        weights = weights * weight
    first, end = int(last.values[0]), int(last.values[-1]) + 1
    low, high = np.full(np.shape(weights), first), np.full(np.shape(weights), end)
    for k, const in enumerate(consts):
        base: Any = const + sum(s.factors[k] * axis for s, axis in zip(listed, axes, strict=True))
        factor = last.factors[k]
        if factor > 0:
            low = np.maximum(low, -(base // factor))
        elif factor < 0:
            high = np.minimum(high, base // -factor + 1)
        else:
            high = np.where(base >= 0, high, first)
    low = np.minimum(low, end)
    upto = np.concatenate(([0], last.often.cumsum()))
    return int((weights * (upto[np.maximum(high, low) - first] - upto[low - first])).sum())
