"""Scores that weigh nothing: where rows are minus infinity, found from the comparisons of indexes that make them so.

``x = t <= s ? p : -inf`` has weights ``exp(x - largest)`` of 0 wherever ``s - t < 0``: causal masks and sliding windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import cast

from tile_ir.dtype import DType
from tile_ir.stripe.affine import Affine

from tile_opt.kernel.rows_in_steps import RowsInSteps, Scalars, Value, merges_into

ORDERED = {"cmp_le": (1, 0, 0), "cmp_lt": (1, 0, 1), "cmp_ge": (0, 1, 0), "cmp_gt": (0, 1, 1)}
"""By comparison: it holds where one side minus the other is not below a number."""
OPPOSITE = {"cmp_le": "cmp_gt", "cmp_gt": "cmp_le", "cmp_lt": "cmp_ge", "cmp_ge": "cmp_lt"}


def seen(kinds: RowsInSteps) -> tuple[Affine, ...]:
    """Forms over shared loops and the loop over scores, each >= 0 for every score that is not minus infinity."""
    if not kinds.largest:
        first, *others = (dict.fromkeys(_weighs(value)) for value in _weights(kinds))
        return tuple(form for form in first if all(form in other for other in others))
    # If several stages look for the largest element, they look at the same.
    scalars = next(Scalars(kinds, k) for k in kinds.pieces if merges_into(kinds.view.stages[k], kinds.largest))
    return tuple(dict.fromkeys(_seen(scalars.value(scalars.stored))))


def _weights(kinds: RowsInSteps) -> Iterator[Value]:
    """What the last products take, from the stages that make it."""
    taken = {*map(kinds.weights, kinds.lasts)}
    for k in kinds.pieces:
        if any(u.writes and u.buffer in taken for u in kinds.view.stages[k].uses):
            scalars = Scalars(kinds, k)
            yield scalars.value(scalars.stored)


def _weighs(value: object) -> Iterator[Affine]:
    """Forms that are >= 0 wherever no factor is 0 by a comparison, or the exponential of minus infinity."""
    match _parts(value):
        case ("cond", _, condition, kept, fill) if _parts(fill)[:1] == (0,):
            yield from _holds(condition, True)
            yield from _weighs(kept)
        case ("cond", _, condition, fill, kept) if _parts(fill)[:1] == (0,):
            yield from _holds(condition, False)
            yield from _weighs(kept)
        case ("exp", _, inner):
            (below,) = [inner]
            yield from _seen(_parts(below)[2]) if _parts(below)[:1] == ("sub",) else ()
        case ("mul", _, a, b):
            yield from _weighs(a)
            yield from _weighs(b)
        case ("div" | "cast" | "neg", _, a, *_):
            yield from _weighs(a)
        case _:
            return


def _parts(value: object) -> Value:
    return cast("Value", value) if isinstance(value, tuple) else ()


def _seen(value: object) -> Iterator[Affine]:
    match _parts(value):
        case ("cond", _, condition, kept, fill) if _parts(fill)[:1] == (-inf,):
            yield from _holds(condition, True)
            yield from _seen(kept)
        case ("cond", _, condition, fill, kept) if _parts(fill)[:1] == (-inf,):
            yield from _holds(condition, False)
            yield from _seen(kept)
        case _:
            return


def _holds(condition: object, truth: bool) -> Iterator[Affine]:
    """What is >= 0 where the condition is so."""
    both = "bit_and" if truth else "bit_or"
    match _parts(condition):
        case (str() as name, _, a, b) if name == both:
            yield from _holds(a, truth)
            yield from _holds(b, truth)
        case (str() as name, _, a, b) if name in ORDERED:
            above, below, least = ORDERED[name if truth else OPPOSITE[name]]
            sides = _whole(a), _whole(b)
            high, low = sides[above], sides[below]
            if high is not None and low is not None:
                yield high - low - least
        case _:
            return


def _whole(value: object) -> Affine | None:
    """An integer as a form over loops."""
    match _parts(value):
        case (Affine() as form, DType() as dtype) if dtype.is_integer:
            return form
        case (int() as number, DType() as dtype) if dtype.is_integer:
            return Affine((), number)
        case ("add" | "sub" as name, DType() as dtype, a, b) if dtype.is_integer:
            left, right = _whole(a), _whole(b)
            if left is None or right is None:
                return None
            return left + right if name == "add" else left - right
        case _:
            return None
