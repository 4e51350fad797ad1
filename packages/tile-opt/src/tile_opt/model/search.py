"""The cheapest of a few plans: each is built and estimated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import TypeVar

from tile_ir.stripe.nodes import Block
from tile_ir.target import Target

from tile_opt.model.estimate import estimate

T = TypeVar("T")
FASTER = 1.05
"""Times by which a plan must be estimated faster than one that a space puts first: the model knows no smaller differences."""
ALIKE = 1.01
"""The same where a space takes both for as fast: its own forecast and the model's know more together than either."""
LESS = 2
"""Times by which what plans copy has to differ."""
SURELY = 1.2
"""The same where a space ranks plans by times of its own, which know the classes of its kernels: of 126 drawn GPU kernels, whose plans
were timed, that took 1.05 times the fastest plan's time, and either forecast alone 1.07 and 1.09."""


def choose(
    target: Target,
    first: T,
    others: Iterable[T],
    kernel: Callable[[T], Block],
    copied: Callable[[T], int] = lambda _: 0,
    enough: float = 0.0,
    slower: Callable[[T], float] = lambda _: inf,
) -> T:
    """Of candidates whose scheduled top block is `kernel(candidate)`, the one with the shortest estimated time.

    That is `first`, what the space of plans itself would take, unless another is clearly faster, or none is and another is
    faster by more than the space takes it for `slower` (times as long as `first`); and one that is hardly slower, but takes far less memory, `copied`
    bytes, in each call, goes before either. The others are neither made nor estimated where `first` takes
    about `enough` seconds: what any plan takes at the least, or so little more that it is not doubted.
    """
    alone = estimate(kernel(first), target).seconds
    if alone <= FASTER * enough and not copied(first) // LESS:
        return first
    timed = [(alone, first), *((estimate(kernel(candidate), target).seconds, candidate) for candidate in others)]
    seconds, best = min(timed, key=lambda t: t[0])
    if FASTER * seconds >= alone:
        seconds, best = min(timed, key=lambda t: t[0] * (1 if t is timed[0] else _behind(slower(t[1]))))
    if not (most := copied(best) // LESS):
        return best
    small = [(s, candidate) for s, candidate in timed if s <= FASTER * seconds and copied(candidate) <= most]
    return min(small, key=lambda t: t[0], default=(seconds, best))[1]


def _behind(slower: float) -> float:
    """Times by which a plan must be estimated faster that a space takes for so much slower."""
    return min(max(slower, ALIKE), FASTER)


def surely_faster(target: Target, first: T, seconds: float, others: Iterable[T], kernel: Callable[[T], Block]) -> T:
    """`first`, which a space takes for the fastest at `seconds`, unless the model doubts it and takes another for much faster.

    The others are neither made nor estimated where the model agrees about the first.
    """
    alone = estimate(kernel(first), target).seconds
    if alone <= SURELY * seconds:
        return first
    timed = [(estimate(kernel(candidate), target).seconds, candidate) for candidate in others]
    least, best = min(timed, key=lambda t: t[0], default=(alone, first))
    return best if SURELY * least <= alone else first
