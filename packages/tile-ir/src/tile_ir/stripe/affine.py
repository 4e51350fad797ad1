"""Integer affine and quasi-affine forms over index names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Protocol, cast

from tile_ir.frozen import frozen


@frozen
class Affine:
    """``sum(coefficient * name) + const``; terms are sorted by name and never zero."""

    terms: tuple[tuple[str, int], ...] = ()
    const: int = 0

    @staticmethod
    def of(terms: Mapping[str, int] | Iterable[tuple[str, int]] = (), const: int = 0) -> Affine:
        """Normalise: sum equal names, drop zeros, sort."""
        total: dict[str, int] = {}
        pairs = cast("Mapping[str, int]", terms).items() if isinstance(terms, Mapping) else terms
        for name, coefficient in pairs:
            total[name] = total.get(name, 0) + coefficient
        return Affine(tuple(sorted([(n, c) for n, c in total.items() if c])), const)

    @staticmethod
    def var(name: str, coefficient: int = 1) -> Affine:
        return Affine(((name, coefficient),) if coefficient else (), 0)

    @property
    def is_const(self) -> bool:
        return not self.terms

    @property
    def names(self) -> tuple[str, ...]:
        return tuple([name for name, _ in self.terms])

    def coefficient(self, name: str) -> int:
        for found, coefficient in self.terms:
            if found == name:
                return coefficient
        return 0

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.const + other) if other else self
        if not (self.terms and other.terms):
            return Affine(self.terms or other.terms, self.const + other.const)
        return Affine.of((*self.terms, *other.terms), self.const + other.const)

    def __sub__(self, other: Affine | int) -> Affine:
        return self + (-other if isinstance(other, int) else other * -1)

    def __mul__(self, factor: int) -> Affine:
        if factor == 1:
            return self
        if not factor:
            return Affine()
        return Affine(tuple([(n, c * factor) for n, c in self.terms]), self.const * factor)

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value at a point; KeyError for an unknown name."""
        total = self.const
        for name, coefficient in self.terms:
            value = values[name]
            total = total + (value if coefficient == 1 else coefficient * value)
        return total

    def substitute(self, values: Mapping[str, Affine]) -> Affine:
        """Replace each name found in `values` by its form; other names stay."""
        if len(self.terms) == 1:  # most are
            ((name, coefficient),) = self.terms
            form = values.get(name)
            return self if form is None else form * coefficient + self.const
        if not any(name in values for name, _ in self.terms):
            return self
        terms: list[tuple[str, int]] = []
        const = self.const
        for name, coefficient in self.terms:
            form = values.get(name)
            if form is None:
                terms.append((name, coefficient))
            else:
                terms.extend((n, c * coefficient) for n, c in form.terms)
                const += form.const * coefficient
        return Affine.of(terms, const)

    def bounds(self, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """Smallest and largest value when each name lies in its inclusive (low, high)."""
        low = high = self.const
        for name, c in self.terms:
            a, b = ranges[name]
            low += c * (a if c > 0 else b)
            high += c * (b if c > 0 else a)
        return low, high


class DivModOp(Enum):
    DIV = "//"
    MOD = "%"


@frozen
class DivMod:
    """``scale * (num // den) + plus`` or ``scale * (num % den) + plus``; floor division, den > 0."""

    num: Affine
    den: int
    op: DivModOp
    scale: int = 1
    plus: Affine = Affine()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted({*self.num.names, *self.plus.names}))

    def evaluate(self, values: Mapping[str, int]) -> int:
        num = self.num.evaluate(values)
        part = num // self.den if self.op is DivModOp.DIV else num % self.den
        return self.scale * part + self.plus.evaluate(values)

    def substitute(self, values: Mapping[str, Affine]) -> DivMod:
        return DivMod(self.num.substitute(values), self.den, self.op, self.scale, self.plus.substitute(values))


Quasi = Affine | DivMod


class Named(Protocol):
    """A form that knows the indexes in it."""

    @property
    def names(self) -> tuple[str, ...]: ...


def names_in(forms: Iterable[Named]) -> set[str]:
    """The indexes that any of the forms names."""
    return {name for form in forms for name in form.names}


def intervals(extents: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """The smallest and the largest value of each index, as `Affine.bounds` takes them."""
    return {name: (0, extent - 1) for name, extent in extents.items()}
