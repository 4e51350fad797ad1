"""Where the values that a loop carries are in each round, so that none is ever copied.

A value that a round computes is written to the next place of a ring, and read from there by the rounds that follow:
the round after it, and, where a carried value is only handed on (``(u, p) -> (new, u)``), the rounds after that.
"""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.frozen import frozen


@frozen
class Reading:
    """Where a round finds what carry number `carry` holds: first the initial values `inits` (by carry), one a round, then,
    with a `ring`, what was computed as that ring's value `age` + 1 rounds ago; without one, `inits` from `repeats` on again.
    """

    carry: int
    inits: tuple[int, ...]
    ring: str | None
    age: int = 0
    repeats: int = 0

    def init(self, round: int) -> int | None:
        """The carry whose initial value is read in a round (or is the result after so many); None for the ring."""
        if round < len(self.inits):
            return self.inits[round]
        if self.ring is not None:
            return None
        return self.inits[self.repeats + (round - self.repeats) % (len(self.inits) - self.repeats)]


def readings(sources: Sequence[int | str]) -> tuple[Reading, ...]:
    """For each carry where it is read; `sources[j]` is what a round makes carry j: another carry, by number, or a value."""
    return tuple(_reading(carry, sources) for carry in range(len(sources)))


def _reading(carry: int, sources: Sequence[int | str]) -> Reading:
    seen = [carry]
    while isinstance(source := sources[seen[-1]], int):
        if source in seen:
            return Reading(carry, tuple(seen), None, repeats=seen.index(source))
        seen.append(source)
    return Reading(carry, tuple(seen), source, len(seen) - 1)
