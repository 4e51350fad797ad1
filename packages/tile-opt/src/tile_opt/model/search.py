"""The best of a handful of plans, by the estimate of what each builds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from tile_ir.stripe.nodes import Block
from tile_ir.target import Target

from tile_opt.model.estimate import estimate

T = TypeVar("T")
FASTER = 1.05
"""Times by which a plan must be estimated faster than one that a space puts first: the model knows no smaller differences."""


def choose(target: Target, first: T, others: Iterable[T], kernel: Callable[[T], Block]) -> T:
    """Of candidates whose scheduled top block is `kernel(candidate)`, the one with the shortest estimated time.

    That is `first`, what the space of plans itself would take, unless another is clearly faster.
    """
    before = estimate(kernel(first), target).seconds / FASTER
    timed = [(estimate(kernel(other), target).seconds, number, other) for number, other in enumerate(others)]
    seconds, _, best = min(timed, key=lambda t: t[:2], default=(before, 0, first))
    return best if seconds < before else first
