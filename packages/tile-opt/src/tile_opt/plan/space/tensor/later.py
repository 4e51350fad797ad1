"""Candidates best first, of which those are made last that can hardly be the best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from operator import attrgetter
from typing import Generic, TypeVar, cast

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

SECONDS = attrgetter("seconds")
"""What every candidate takes."""


@dataclass(frozen=True)
class Later(Generic[T_co]):
    """Candidates that are made when they are asked for, none of which takes less than `seconds`."""

    seconds: float
    make: Callable[[], Iterable[T_co | Later[T_co]]]

    @cached_property
    def made(self) -> tuple[T_co | Later[T_co], ...]:
        return tuple(self.make())


def best_first(found: Iterable[T | Later[T]]) -> Iterator[T]:
    """All of them in the order of their seconds, of equal ones those first that come first; made as late as that allows."""
    heap: list[tuple[float, tuple[int, ...], T | Later[T]]] = []

    def add(several: Iterable[T | Later[T]], place: tuple[int, ...]) -> None:
        for n, each in enumerate(several):
            heappush(heap, (SECONDS(each), (*place, n), each))

    add(found, ())
    while heap:
        _, place, first = heappop(heap)
        if isinstance(first, Later):
            add(cast("Later[T]", first).made, place)
        else:
            yield first
