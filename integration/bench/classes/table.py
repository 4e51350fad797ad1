"""Classes of cases: what is drawn in each, and what every row and the geometric mean must reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Literal

from classes.draw import Draw
from classes.work import Case, Value, Work, instance

Drawn = tuple[str, Mapping[str, Value]]
"""A program's name and its sizes."""
Against = Literal["peers", "float32", "issue slots"]
"""What a row is compared with: other libraries, ourselves in float32, or as many instructions as the machine can issue."""
LARGE = 64e6
"""Bytes from which on a row must reach the class's share of the roofline."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What keeps one run of a case short."""

    operations: float
    elements: float
    """Of all inputs together."""

    def allow(self, work: Work) -> bool:
        return work.operations <= self.operations and work.elements <= self.elements


@dataclass(frozen=True, slots=True)
class Class:
    """Draws that are judged together: `floor` is for every row's ratio, `mean` for the geometric mean."""

    floor: float
    mean: float | None
    kinds: Sequence[Callable[[Draw], Drawn]]
    """Taken in turn, so that a sample has some of each."""
    limits: Limits
    peers: Sequence[str] = ("numpy", "torch", "compile", "onnx", "numba")
    """Who is asked; a peer that cannot express a case is left out."""
    against: Against = "peers"
    share: float | None = None
    """Of the roofline, that rows which move more than `LARGE` bytes must reach."""
    reduced: bool = False
    """Whether ours and the peers may round factors for matrix instructions."""

    def cases(self, name: str, seed: int, largest: int | None = None) -> Iterator[Case]:
        """An endless supply; the n-th case depends on the class, the seed and n alone."""
        first = Draw(name, seed).number(len(self.kinds))
        for number in count():
            yield self._case(self.kinds[(first + number) % len(self.kinds)], (name, seed, number), largest)

    def sample(self, name: str, seed: int, wanted: int, largest: int | None = None) -> list[Case]:
        """The first `wanted` cases; `largest` bounds the sizes."""
        return list(islice(self.cases(name, seed, largest), wanted))

    def _case(self, kind: Callable[[Draw], Drawn], words: Sequence[object], largest: int | None) -> Case:
        for attempt in count():
            made = instance(*kind(Draw(*words, attempt, largest=largest)))
            if self.limits.allow(made.work):
                return made
        raise AssertionError("count() is endless")
