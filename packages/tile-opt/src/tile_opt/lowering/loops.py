"""Constraints as loop bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tile_ir.frozen import frozen
from tile_ir.semtree.nodes import Binary, Const, Expr, Var
from tile_ir.stripe.affine import Affine, DivMod, DivModOp, Quasi
from tile_ir.stripe.nodes import Index

from tile_opt.lowering.builder import Builder
from tile_opt.lowering.forms import Scaled, fold, resolve, without


@frozen
class LoopBounds:
    """``for start <= i < stop``; the value lies in [low, high]. `single` is the only value, when there is one."""

    start: Expr
    stop: Expr
    low: int
    high: int
    pending: tuple[Quasi, ...]
    single: Affine | None = None
    held: tuple[Affine, ...] = ()
    """What the bounds say, of the index by the name that `probe` gives it."""


def probe(index: Index) -> str:
    """The name of a loop's variable before it has one."""
    return f"?{index.name}"


@frozen
class _Limit:
    """One bound that is known only at run time: its form and its interval."""

    affine: Affine
    quasi: tuple[Scaled, ...]
    low: int
    high: int


def loop_bounds(
    builder: Builder, index: Index, env: Mapping[str, Affine], pending: Sequence[Quasi], lane: str
) -> LoopBounds | None:
    """Bounds of a loop over `index` from the constraints that mention it and known names; None when it is empty.

    Constraints that became bounds leave the pending ones; those that depend on the lane stay.
    """
    low, high = 0, index.range - 1
    starts: list[_Limit] = []
    stops: list[_Limit] = []
    rest: list[Quasi] = []
    held: list[Affine] = []
    known = {**env, index.name: Affine.var(probe(index))}
    for form in pending:
        if not isinstance(form, Affine) or index.name not in form.names or any(n not in known for n in form.names):
            rest.append(form)
            continue
        whole = resolve(form, known)
        other = without(whole, probe(index))
        if lane and lane in other.names:
            rest.append(form)
            continue
        held.append(whole)
        coefficient = form.coefficient(index.name)
        limit = _limit(builder, other, coefficient)
        if coefficient > 0:
            low = max(low, limit.low)
            starts.append(limit)
        else:
            high = min(high, limit.high)
            stops.append(limit)
    if low > high:
        return None
    found = _bounds(builder, low, high, starts, stops, tuple(rest))
    return replace(found, held=tuple(held))


def _limit(builder: Builder, other: Affine, coefficient: int) -> _Limit:
    """Smallest i (coefficient > 0) or largest i (< 0) with ``coefficient * i + other >= 0``."""
    size = abs(coefficient)
    num = (other * -1) + (size - 1) if coefficient > 0 else other
    affine, quasi = fold(DivMod(num, size, DivModOp.DIV), builder.ranges) if size > 1 else (num, ())
    low, high = num.bounds(builder.ranges)
    if coefficient < 0:
        affine = affine + 1
    return _Limit(affine, quasi, low // size, high // size)


def _bounds(
    builder: Builder,
    low: int,
    high: int,
    starts: Sequence[_Limit],
    stops: Sequence[_Limit],
    rest: tuple[Quasi, ...],
) -> LoopBounds:
    # A limit whose whole interval is within the static bound says nothing new.
    late = [s for s in starts if s.high > low]
    early = [s for s in stops if s.low < high]
    if not late and not early and low == high:
        return LoopBounds(builder.literal(low), builder.literal(high + 1), low, high, rest, Affine((), low))
    start: Expr = builder.literal(low)
    for limit in late:
        start = _combine(builder, "max", start, limit, needed=low > limit.low or len(late) > 1)
    stop: Expr = builder.literal(high + 1)
    for limit in early:
        stop = _combine(builder, "min", stop, limit, needed=high < limit.high or len(early) > 1)
    return LoopBounds(_bound(builder, start), _bound(builder, stop), low, high, rest)


def _combine(builder: Builder, op: str, left: Expr, limit: _Limit, needed: bool) -> Expr:
    right = builder.index(limit.affine, limit.quasi)
    if isinstance(left, Const) and not needed:
        return right
    return Binary(op, left, right, builder.index_type)


def _bound(builder: Builder, value: Expr) -> Expr:
    return value if isinstance(value, (Var, Const)) else builder.let("n", value)
