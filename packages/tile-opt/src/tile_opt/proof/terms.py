"""What a scalar is worth at the points of a set: a term whose leaves are relations from points to cells.

A value is a list of pieces, disjoint sets of points with one term each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from tile_ir.dots import DOTS
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.ops import Aggregation

from tile_opt.proof.sites import Access, Unsupported
from tile_opt.proof.spaces import Relation, Set, simple

LARGEST = 200
"""Operations of one term."""


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """The content of a cell, or the value of an index form (buffer "")."""

    buffer: str
    at: Relation
    dtype: DType


@frozen
class Constant:
    value: int | float | bool
    dtype: DType
    filled: bool = False
    """The zero of a copy that may not read: only a user who allows reduced precision gets such copies, and with them products
    of zeros that count as none whatever the other factor is."""


@dataclass(frozen=True, slots=True, eq=False)
class Apply:
    name: str
    args: tuple[Term, ...]
    dtype: DType
    size: int = 1
    """Operations in it, those that it has several times each time."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Contributions: from the points of the aggregate to those that contribute, and what they contribute."""

    reach: Relation
    value: Value


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    agg: Aggregation
    parts: tuple[Part, ...]
    dtype: DType
    together: bool = False
    """Threads merge what each of them has, as a tree where their number is a power of two."""


@dataclass(frozen=True, slots=True, eq=False)
class Unwritten:
    """The content of a cell that nothing wrote."""

    load: Access
    at: Relation

    @property
    def dtype(self) -> DType:
        return self.load.buffer.type.dtype


Term = Leaf | Constant | Apply | Aggregate | Unwritten
Piece = tuple[Set, Term]
Value = tuple[Piece, ...]


def moved(term: Term, along: Relation) -> Term:
    """The term at the image of each point; `along` has one image for each."""
    match term:
        case Leaf(_, at) | Unwritten(_, at):
            return replace(term, at=simple(along.apply_range(at)))
        case Constant():
            return term
        case Apply(_, args):
            return replace(term, args=tuple(moved(arg, along) for arg in args))
        case Aggregate(_, parts):
            return replace(term, parts=tuple(replace(p, reach=simple(along.apply_range(p.reach))) for p in parts))
        case _:
            assert_never(term)


def pulled(value: Value, along: Relation) -> Iterator[Piece]:
    """The value at the image of each point."""
    for points, term in value:
        reach = along.intersect_range(points)
        if not reach.is_empty():
            yield simple(reach.domain()), moved(term, reach)


def within(value: Iterable[Piece], points: Set) -> Value:
    """The value at some of its points."""
    cut = ((piece.intersect(points), term) for piece, term in value)
    return tuple((piece, term) for piece, term in cut if not piece.is_empty())


def applied(name: str, args: Iterable[Value], dtype: DType, points: Set) -> Value:
    """An operation of values; the pieces are those that the operands' have in common."""
    combined: list[tuple[Set, tuple[Term, ...]]] = [(points, ())]
    for arg in args:
        if len(arg) == 1:
            combined = [(s, (*terms, arg[0][1])) for s, terms in combined]
            continue
        met = ((simple(s.intersect(piece)), (*terms, term)) for s, terms in combined for piece, term in arg)
        combined = [(s, terms) for s, terms in met if not s.is_empty()]
    return tuple((s, _applied(name, terms, dtype)) for s, terms in combined)


def _applied(name: str, args: tuple[Term, ...], dtype: DType) -> Term:
    """An operation of terms; what has a dtype already is not cast to it, and products of zeros are such.

    A word of zeros adds nothing to a dot product: only sums of integers, and those of a user who allows reduced precision, have words.
    """
    if name == "cast" and args[0].dtype is dtype:
        return args[0]
    filled = any(isinstance(a, Constant) and a.filled for a in args)
    if name in ("mul", "cast") and (filled or all(map(_is_zero, args))) and _is_written(args):
        return Constant(0, dtype, filled)
    if name in DOTS and any(map(_is_zero, args[:2])) and _is_written(args):
        return args[2]
    size = 1 + sum(arg.size for arg in args if isinstance(arg, Apply))
    if size > LARGEST:
        raise Unsupported(f"expressions of more than {LARGEST} operations")
    return Apply(name, args, dtype, size)


def _is_written(args: tuple[Term, ...]) -> bool:
    return not any(isinstance(leaf, Unwritten) for a in args for leaf in leaves_in(a))


def _is_zero(term: Term) -> bool:
    """A literal 0 that is not negative: products of such ones are again one."""
    return isinstance(term, Constant) and repr(float(term.value)) == "0.0"


_MERGES = {agg.op: agg for agg in Aggregation if agg is not Aggregation.ASSIGN}


def aggregation(term: Term) -> Aggregation | None:
    """How a term merges contributions: an aggregate's way, or that of an operation that adds something to one."""
    match term:
        case Aggregate(agg):
            return agg
        case Apply(name, args) if name in _MERGES and any(aggregation(arg) is _MERGES[name] for arg in args):
            return _MERGES[name]
        case _:
            return None


def aggregates_in(term: Term) -> Iterator[Term]:
    """The outermost aggregates of a term, in order."""
    return (part for part in _parts(term) if isinstance(part, Aggregate | Apply))


def leaves_in(term: Term) -> Iterator[Leaf | Unwritten]:
    """The leaves of a term outside its aggregates, in order."""
    return (part for part in _parts(term) if isinstance(part, Leaf | Unwritten))


def _parts(term: Term) -> Iterator[Term]:
    """What functions that aggregate nothing are applied to, in order."""
    match term:
        case Apply(_, args) if aggregation(term) is None:
            for arg in args:
                yield from _parts(arg)
        case _:
            yield term


def shape(term: Term) -> str:
    """The term without its relations: terms of one shape differ only in which cells they take."""
    match term:
        case Leaf(buffer):
            return buffer or "index"
        case Constant(value, dtype):
            return f"{dtype}({float(value)!r})"
        case Unwritten(load):
            return f"unwritten {load.buffer.name}"
        case Apply(name, args, dtype) if aggregation(term) is None:
            return f"{name}:{dtype}({', '.join(map(shape, args))})"
        case Aggregate() | Apply():
            merged = aggregation(term)
            assert merged is not None
            return f"{merged.value}(…)"
        case _:
            assert_never(term)
