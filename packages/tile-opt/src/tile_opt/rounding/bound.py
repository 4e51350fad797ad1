"""Bounds on rounding errors, and how operations propagate them.

With unit roundoff u, a result of n roundings in a row is its exact value times a product of n factors 1 + d, |d| <= u, so that its
relative error is at most n u / (1 - n u). A `Bound` keeps the sum of u over the longest chain of roundings, in whichever
dtypes they happen, and what the error is relative to. Valid while nothing overflows, and nothing underflows.

An error e of x is one of exp(e) in exp(x), and exp(e) <= 1 / (1 - e): it counts as e more. Where x is a sum with terms of both
signs, e depends on how large these are, so that a bound has a second number, for each unit of the largest of such exponents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from math import inf

from tile_ir.accuracy import eps, ulp_bound
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import ROUNDINGS


class Relation(Enum):
    """What an error is relative to; each follows from the ones before it."""

    EXACT = "exact"
    VALUE = "value"
    """The result."""
    TERMS = "terms"
    """The result's expression with every input and every difference made positive: for a matrix product, the sum of |products|.
    A logarithm of a rounded value counts as one more than it is."""
    NONE = "none"
    """Nothing: there is no bound."""


_ORDER = (*Relation,)


@frozen
class Bound:
    """The rounding error of a value."""

    relation: Relation = Relation.EXACT
    roundoff: float = 0.0
    """Sum of the unit roundoffs along the longest chain of roundings."""
    positive: bool = False
    """The value is never negative."""
    reason: str = ""
    """Why there is no bound."""
    exponent: float = 0.0
    """What `roundoff` grows by for each unit of the largest exponent that is a sum with terms of both signs: of that sum with every
    input and every difference made positive."""

    @property
    def factor(self) -> float | None:
        """|error| <= factor times what it is relative to; None where there is no bound, or where it grows with exponents."""
        return None if self.exponent else self.factor_for(0.0)

    def factor_for(self, exponent: float) -> float | None:
        """The factor where no exponent is larger; None where there is no bound."""
        return None if self.relation is Relation.NONE else factor(self.roundoff + self.exponent * exponent)


def factor(roundoff: float) -> float:
    """The largest relative error of so many unit roundoffs in a row."""
    return roundoff / (1 - roundoff) if roundoff < 1 else inf


def none(reason: str) -> Bound:
    return Bound(Relation.NONE, reason=reason)


def worst(*bounds: Bound) -> Bound:
    """A bound for each of several values; the reason is the first one's."""
    relation = max((b.relation for b in bounds), key=_ORDER.index, default=Relation.EXACT)
    roundoff = max((b.roundoff for b in bounds), default=0.0)
    reason = next((b.reason for b in bounds if b.reason), "")
    exponent = max((b.exponent for b in bounds), default=0.0)
    return Bound(relation, roundoff, all(b.positive for b in bounds), reason, exponent)


def unit(dtype: DType) -> float:
    """The largest relative error of rounding to a dtype."""
    return eps(dtype) / 2 if dtype.is_float else 0.0


def rounded(bound: Bound, roundoff: float) -> Bound:
    """After further roundings; TERMS or NONE stay what they are."""
    if bound.relation is Relation.NONE or not roundoff:
        return bound
    total = bound.roundoff + roundoff
    if total >= 0.5:
        return none("there are so many roundings that nothing is certain of the result")
    relation = Relation.VALUE if bound.relation is Relation.EXACT else bound.relation
    return replace(bound, relation=relation, roundoff=total)


def repeated(bound: Bound, times: float) -> Bound:
    """With so many times the roundings: those of a power."""
    return rounded(replace(bound, roundoff=0.0, exponent=bound.exponent * times), bound.roundoff * times)


def added(terms: tuple[Bound, ...], roundings: float, dtype: DType) -> Bound:
    """A sum, or a difference, in which each term takes part in so many roundings of `dtype` at most."""
    found = worst(*terms)
    exact = found.relation is Relation.EXACT
    if not dtype.is_float:
        return found if exact else none("a sum of whole numbers that come from rounded ones")
    if found.relation is Relation.NONE or (exact and roundings <= 1):
        return rounded(found, roundings * unit(dtype))
    if not found.positive and len(terms) + roundings > 1:
        found = replace(found, relation=Relation.TERMS)
    return rounded(found, roundings * unit(dtype))


def multiplied(terms: tuple[Bound, ...], dtype: DType) -> Bound:
    """A product."""
    found = _together(*terms)
    if not dtype.is_float:
        return (
            found
            if found.relation is Relation.EXACT
            else none("a product of whole numbers that come from rounded ones")
        )
    return rounded(found, (len(terms) - 1) * unit(dtype))


def divided(num: Bound, den: Bound, dtype: DType) -> Bound:
    if not dtype.is_float:
        return _whole("a quotient", num, den)
    if den.relation is Relation.TERMS:
        return none("a quotient whose divisor may have lost digits by cancellation")
    return rounded(_together(num, den), _function("div", dtype))


def _together(*terms: Bound) -> Bound:
    """Of what has the roundings of all of them."""
    return replace(worst(*terms), roundoff=sum(t.roundoff for t in terms), exponent=sum(t.exponent for t in terms))


def _whole(what: str, *terms: Bound) -> Bound:
    """Whole numbers are exact, or nothing is known of them."""
    found = worst(*terms)
    return found if found.relation is Relation.EXACT else none(f"{what} of whole numbers that come from rounded ones")


def _function(name: str, dtype: DType) -> float:
    ulp = ulp_bound(name, dtype)
    return ulp * eps(dtype) if ulp else unit(dtype)


# --- functions ---------------------------------------------------------------------------------------

_LARGEST_EXPONENT = {DType.FLOAT64: 746.0, DType.FLOAT16: 18.0}
"""Beyond this the exponential is infinite or zero; other dtypes 104."""

_AMPLIFIED: Mapping[str, Callable[[DType], float]] = {
    "sqrt": lambda _: 0.5, **dict.fromkeys(("tanh", "atan", "asinh", "erf"), lambda _: 1.0),
    "exp": lambda dtype: _LARGEST_EXPONENT.get(dtype, 104.0),
    **dict.fromkeys(("sinh", "cosh", "expm1"), lambda dtype: _LARGEST_EXPONENT.get(dtype, 104.0) + 1),
}  # fmt: skip
"""How many times larger the relative error of a result is than that of the operand, at most."""
_POSITIVE = ("exp", "sqrt", "cosh", "acosh", "erfc", "abs")


def applied(name: str, arg: Bound, dtype: DType) -> Bound:
    """A function of one operand."""
    positive = name in _POSITIVE or (arg.positive and name not in ("log", "sin", "cos", "tan"))
    if arg.relation is Relation.EXACT:
        return replace(rounded(arg, 0.0 if name in ROUNDINGS else _function(name, dtype)), positive=positive)
    if arg.relation is Relation.NONE:
        return arg
    if name == "log" and arg.relation is Relation.VALUE:
        return replace(rounded(arg, _function(name, dtype)), relation=Relation.TERMS, positive=False)
    amplified = _AMPLIFIED.get(name)
    if amplified is None:
        return none(f"{name} of a rounded value: its error has no bound that holds for every value")
    times = amplified(dtype)
    if times > 1 and arg.exponent:
        return none(f"{name} of what an exponential is in: the error depends on how large both exponents are")
    if arg.relation is Relation.TERMS:
        return _of_terms(name, arg, dtype)
    passed = arg.roundoff * times if times <= 1 else factor(arg.roundoff) * times
    found = replace(arg, roundoff=0.0, exponent=arg.exponent * times)
    return replace(rounded(found, passed + _function(name, dtype)), positive=positive)


def _of_terms(name: str, arg: Bound, dtype: DType) -> Bound:
    if name != "exp":
        return none(f"{name} of a sum with terms of both signs: the error depends on how large they are")
    return rounded(Bound(Relation.VALUE, 0.0, True, "", factor(arg.roundoff)), _function(name, dtype))


def converted(arg: Bound, source: DType, dtype: DType) -> Bound:
    """A cast."""
    if arg.relation is Relation.NONE or source is dtype:
        return arg
    if not dtype.is_float:
        return arg if arg.relation is Relation.EXACT else none("a whole number or truth value made of a rounded one")
    return arg if _holds(source, dtype) else rounded(arg, unit(dtype))


def _holds(source: DType, dtype: DType) -> bool:
    """Every value of the one dtype is one of the other."""
    if not source.is_float:
        return source.bytes * 8 <= {DType.FLOAT64: 53, DType.FLOAT32: 24, DType.FLOAT16: 11}.get(dtype, 8)
    wider = {DType.FLOAT64: 3, DType.FLOAT32: 2}
    return wider.get(dtype, 1) > wider.get(source, 1)
