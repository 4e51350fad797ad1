"""Rounding errors of a scheduled program's values, from its actual tree of partial sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import isinf, log2, prod
from typing import assert_never

from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import OPS, Aggregation, Signature

from tile_opt.proof.spaces import OUT, Set, integer
from tile_opt.proof.spaces import Relation as Reach
from tile_opt.proof.terms import Aggregate, Apply, Constant, Leaf, Part, Term, Unwritten, Value
from tile_opt.rounding.bound import (
    Bound,
    Relation,
    added,
    applied,
    converted,
    divided,
    multiplied,
    none,
    repeated,
    rounded,
    unit,
    worst,
)


@frozen
class Arithmetic:
    """What differs from operations that are rounded once each."""

    merge: float = 1.0
    """Unit roundoffs of adding a term: matrix instructions may cut digits off."""
    operand: float = 0.0
    """The relative error of an operand that is rounded before it is multiplied."""


class Rounding:
    """Bounds of terms; `known` are those of the tensors that kernels hand on, filled as they are found; `given` are exact."""

    def __init__(self, known: dict[str, Bound], given: frozenset[str], arithmetic: Arithmetic) -> None:
        self._known, self._given = known, given
        self._arithmetic = arithmetic

    def value(self, value: Value) -> Bound:
        """One bound for all cells."""
        return worst(*(self.term(term, points) for points, term in value))

    def term(self, term: Term, points: Set) -> Bound:
        """A bound for a term at some points."""
        match term:
            case Leaf(buffer, _, dtype):
                if buffer in self._known:
                    return self._known[buffer]
                given = not buffer or buffer in self._given
                return Bound(positive=_unsigned(dtype)) if given else none(f"{buffer} is taken before it is made")
            case Constant(value):
                return Bound(positive=value >= 0)
            case Unwritten():
                return none("cells that nothing writes")
            case Aggregate():
                return self._aggregate(term, points)
            case Apply():
                return self._apply(term, points)
            case _:
                assert_never(term)

    # --- aggregates ----------------------------------------------------------------------------------

    def _aggregate(self, term: Aggregate, points: Set) -> Bound:
        parts = [*_contributing(term, points)]
        bounds = tuple(self.term(worth, reach.range()) for reach, worth in parts)
        if not bounds:
            return Bound(positive=True)
        if term.agg in (Aggregation.MAX, Aggregation.MIN):
            return worst(*bounds)
        merges = sum(_most(reach) for reach, _ in parts) - 1
        if term.together and log2(merges + 1).is_integer():
            merges = int(log2(merges + 1))
        if term.agg is Aggregation.SUM:
            whole = tuple(self._rounded_operands(worth, b) for (_, worth), b in zip(parts, bounds, strict=True))
            return added(whole, merges * self._arithmetic.merge, term.dtype)
        found = worst(*bounds)
        if not term.dtype.is_float:
            return multiplied((found,), term.dtype)
        return rounded(repeated(found, merges + 1), merges * unit(term.dtype))

    def _rounded_operands(self, term: Term, bound: Bound) -> Bound:
        partial = isinstance(term, Aggregate)
        return bound if partial else rounded(bound, 2 * self._arithmetic.operand)

    # --- operations ----------------------------------------------------------------------------------

    def _apply(self, term: Apply, points: Set) -> Bound:
        args = tuple(self.term(arg, points) for arg in term.args)
        if term.name == "cond":
            return _chosen(term, args)
        if (broken := next((a for a in args if a.relation is Relation.NONE), None)) is not None:
            return broken
        return _RULES.get(term.name, _other)(term, args)


def _added(term: Apply, args: tuple[Bound, ...]) -> Bound:
    for this, other in ((0, 1), (1, 0)):
        if _is(term.args[other], 0) and (term.name == "add" or other == 1):
            return args[this]
    signed = args if term.name == "add" else (args[0], replace(args[1], positive=False))
    return added(signed, 1, term.dtype)


def _multiplied(term: Apply, args: tuple[Bound, ...]) -> Bound:
    for this, other in ((0, 1), (1, 0)):
        if _is(term.args[other], 1):
            return args[this]
    made = multiplied(args, term.dtype)
    return replace(made, positive=True) if _same(*term.args) else made


def _chosen(term: Apply, args: tuple[Bound, ...]) -> Bound:
    """A choice by an exact test; or a maximum or minimum written as one."""
    test, *branches = term.args
    chosen = worst(*args[1:])
    if args[0].relation is Relation.EXACT or chosen.relation is Relation.NONE:
        return chosen
    if isinstance(test, Apply) and test.name in ("cmp_lt", "cmp_gt", "cmp_le", "cmp_ge"):
        for pair, first in ((test.args, True), (test.args[::-1], False)):
            if all(_same(a, b) for a, b in zip(pair, branches, strict=True)):
                larger = (test.name in ("cmp_gt", "cmp_ge")) is first
                return replace(chosen, positive=chosen.positive or (larger and any(a.positive for a in args[1:])))
    return none("a choice by a comparison of rounded values")


def _is_infinite(term: Term) -> bool:
    """Rounding makes no finite value equal to it, but what is too large."""
    return isinstance(term, Constant) and isinf(float(term.value))


def _power(term: Apply, args: tuple[Bound, ...]) -> Bound:
    base, exponent = args
    if base.relation is Relation.EXACT and exponent.relation is Relation.EXACT:
        return replace(applied("pow", base, term.dtype), positive=base.positive)
    if not isinstance(term.args[1], Constant) or base.relation is Relation.TERMS:
        return none("a power of rounded values")
    times = max(1.0, abs(float(term.args[1].value)))
    return rounded(repeated(base, times), applied("pow", Bound(), term.dtype).roundoff)


def _of_two(term: Apply, args: tuple[Bound, ...]) -> Bound:
    """atan2 and fmod, which have the first operand's sign."""
    if any(a.relation is not Relation.EXACT for a in args):
        return none(f"{term.name} of rounded values")
    return applied(term.name, args[0], term.dtype)


def _other(term: Apply, args: tuple[Bound, ...]) -> Bound:
    kind = OPS[term.name].signature
    exact = all(a.relation is Relation.EXACT for a in args)
    if kind is Signature.COMPARE:
        return (
            Bound(positive=True)
            if exact or any(map(_is_infinite, term.args))
            else none("a comparison of rounded values")
        )
    if kind is not Signature.MATH:
        return Bound() if exact else none("whole numbers that come from rounded ones")
    return applied(term.name, args[0], term.dtype)


_RULES: Mapping[str, Callable[[Apply, tuple[Bound, ...]], Bound]] = {
    "add": _added,
    "sub": _added,
    "mul": _multiplied,
    "div": lambda term, args: divided(args[0], args[1], term.dtype),
    "recip": lambda term, args: divided(Bound(positive=True), args[0], term.dtype),
    "neg": lambda _, args: replace(args[0], positive=False),
    "abs": lambda _, args: replace(args[0], positive=True),
    "ident": lambda _, args: args[0],
    "max": lambda _, args: replace(worst(*args), positive=any(a.positive for a in args)),
    "min": lambda _, args: worst(*args),
    "cast": lambda term, args: converted(args[0], term.args[0].dtype, term.dtype),
    "pow": _power,
    "atan2": _of_two,
    "fmod": _of_two,
}


def _is(term: Term, value: int) -> bool:
    return isinstance(term, Constant) and term.value == value


def _same(a: Term, b: Term) -> bool:
    """Known to be the same value."""
    match a, b:
        case Leaf(x, at), Leaf(y, to):
            return x == y and bool(at.is_equal(to))
        case Constant(x), Constant(y):
            return x == y
        case Apply(x, args), Apply(y, others):
            return x == y and len(args) == len(others) and all(map(_same, args, others))
        case Aggregate(x, parts), Aggregate(y, others) if x is y and len(parts) == len(others):
            return all(map(_same_part, parts, others))
        case _:
            return a is b


def _same_part(a: Part, b: Part) -> bool:
    if len(a.value) != len(b.value) or not a.reach.is_equal(b.reach):
        return False
    return all(bool(p.is_equal(q)) and _same(x, y) for (p, x), (q, y) in zip(a.value, b.value, strict=True))


def _unsigned(dtype: DType) -> bool:
    return not dtype.is_float and dtype.min_value >= 0


def _contributing(term: Aggregate, points: Set) -> Iterator[tuple[Reach, Term]]:
    """What contributes to an aggregate, and from where; identities are nothing."""
    for part in term.parts:
        for there, worth in part.value:
            reach = part.reach.intersect_domain(points).intersect_range(there)
            nothing = isinstance(worth, Constant) and worth.value == term.agg.identity(worth.dtype)
            if not nothing and not reach.is_empty():
                yield reach, worth


def _most(reach: Reach) -> int:
    """At most so many contributions has a point: the box of the distances between them."""
    if reach.is_single_valued():
        return 1
    steps = reach.reverse().apply_range(reach).deltas()
    return prod(integer(steps.dim_max_val(n)) + 1 for n in range(reach.dim(OUT)))
