"""Sizes from a seed: the kinds of numbers that break schedules, in equal shares."""

from __future__ import annotations

import math
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """A source of sizes. The same words give the same sizes, whatever was drawn from other sources."""

    def __init__(self, *words: object, largest: int | None = None) -> None:
        """`largest` bounds every size: to try what is drawn."""
        self._random = Random("/".join(map(str, words)))
        self._largest = largest

    def size(self, low: int, high: int) -> int:
        """Between `low` and `high`, evenly in its logarithm: as `near` has them."""
        if self._largest is not None:
            low, high = min(low, self._largest // 2), min(high, self._largest)
        return min(max(self.near(math.exp(self._random.uniform(math.log(low), math.log(high)))), low), high)

    def near(self, value: float) -> int:
        """A power of two, a prime, a multiple of 8, or whatever is nearest."""
        return self._random.choice((_power, _prime, _eighths, round))(value)

    def common(self, *sizes: int) -> int:
        """One of these sizes."""
        found = self.pick(*sizes)
        return found if self._largest is None else min(found, self._largest)

    def number(self, count: int) -> int:
        """From 0 to below `count`."""
        return self._random.randrange(count)

    def pick(self, *options: T) -> T:
        return self._random.choice(options)

    def axes(self, rank: int, *, least: int = 1, most: int | None = None) -> str:
        """A set of axes in rising order, as digits."""
        count = self._random.randint(least, rank if most is None else most)
        return "".join(map(str, sorted(self._random.sample(range(rank), count))))

    def order(self, rank: int) -> str:
        """A permutation of the axes that is not the identity, as digits."""
        axes = list(range(rank))
        while axes == sorted(axes):
            self._random.shuffle(axes)
        return "".join(map(str, axes))

    def shape(self, rank: int, low: int, high: int) -> str:
        """Sizes of `rank` axes whose product is about between `low` and `high`, joined by x."""
        total = math.log(self.size(low, high))
        cuts = sorted(self._random.uniform(0, total) for _ in range(rank - 1))
        shares = [b - a for a, b in zip([0.0, *cuts], [*cuts, total], strict=True)]
        return "x".join(str(max(2, self.near(math.exp(s)))) for s in shares)


def sizes(text: str) -> tuple[int, ...]:
    """What `Draw.shape` wrote."""
    return tuple(map(int, text.split("x")))


def axes(text: str) -> tuple[int, ...]:
    """What `Draw.axes` and `Draw.order` wrote."""
    return tuple(map(int, text))


def _power(value: float) -> int:
    return 1 << round(math.log2(value))


def _eighths(value: float) -> int:
    return round(value / 8) * 8 if value > 4 else round(value)


def _prime(value: float) -> int:
    number = max(2, round(value))
    while any(number % d == 0 for d in range(2, math.isqrt(number) + 1)):
        number += 1
    return number
