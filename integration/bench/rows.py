"""What a row of the benchmark is: contestants, what is required of them, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rounds import Contestant, Round, Timing

OURS = "tile"


@dataclass(frozen=True)
class Contest:
    """Our speed against the best of the peers: ``peer seconds / our seconds >= required``."""

    name: str
    required: float
    prepare: Callable[[bool], Mapping[str, Contestant]]
    """Makes data, checks that answers agree, and returns the contestants; True asks for small data."""
    work: float = 0.0
    """Operations of one run at full size, for GFLOP/s."""
    optional: Sequence[str] = ()
    """Peers that `prepare` leaves out where they are not installed."""

    unit = "x"

    def value(self, round_: Round) -> float:
        return min(s for n, s in round_.seconds.items() if n != OURS) / round_.seconds[OURS]

    def result(self, timing: Timing) -> Result:
        peers = {n: timing.median(n) for n in timing.rounds[0].seconds if n != OURS}
        best = min(peers, key=lambda n: peers[n])
        measured = peers[best] / timing.median(OURS)
        note = f"{1e3 * timing.median(OURS):.3g} ms, {best} {1e3 * peers[best]:.3g} ms"
        note += "".join(f"; {name} is not installed" for name in self.optional if name not in peers)
        return Result(self.name, f">= {self.required:g}x", measured, "x", measured >= self.required, note)


@dataclass(frozen=True)
class Limit:
    """A time of ours, beyond those of the other contestants, that must not exceed `most` units."""

    name: str
    most: float
    unit: str
    prepare: Callable[[bool], Mapping[str, Contestant]]

    def value(self, round_: Round) -> float:
        return _SCALE[self.unit] * (2 * round_.seconds[OURS] - sum(round_.seconds.values()))

    def result(self, timing: Timing) -> Result:
        others = {n: _SCALE[self.unit] * timing.median(n) for n in timing.rounds[0].seconds if n != OURS}
        ours = _SCALE[self.unit] * timing.median(OURS)
        measured = ours - sum(others.values())
        note = ", ".join(f"{n} {v:.3g} {self.unit}" for n, v in {OURS: ours, **others}.items()) if others else ""
        return Result(self.name, f"<= {self.most:g} {self.unit}", measured, self.unit, measured <= self.most, note)


@dataclass(frozen=True)
class Growth:
    """The time of ours beside that of a quarter of the program, the only other contestant: at most `most` times as long."""

    name: str
    most: float
    prepare: Callable[[bool], Mapping[str, Contestant]]

    unit = "x"

    def value(self, round_: Round) -> float:
        (quarter,) = (s for n, s in round_.seconds.items() if n != OURS)
        return round_.seconds[OURS] / quarter

    def result(self, timing: Timing) -> Result:
        (quarter,) = (timing.median(n) for n in timing.rounds[0].seconds if n != OURS)
        measured = timing.median(OURS) / quarter
        note = f"{timing.median(OURS):.3g} s, {quarter:.3g} s"
        return Result(self.name, f"<= {self.most:g}x", measured, "x", measured <= self.most, note)


@dataclass(frozen=True)
class Result:
    """One line of the final table."""

    name: str
    required: str
    measured: float
    unit: str
    passed: bool
    note: str
    spread: float = 0.0
    rounds: int = 0
    discarded: int = 0
    peak: float = 0.0


_SCALE = {"s": 1.0, "ms": 1e3, "us": 1e6}
