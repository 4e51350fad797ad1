"""What an estimate says: seconds, and which part of the machine they are spent in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """A part of the time: `name` of the resource or delay, its seconds, and a few words on why."""

    name: str
    seconds: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The predicted time of one run of a kernel; the causes' seconds add up to `seconds`."""

    seconds: float
    causes: tuple[Cause, ...]
    """The largest first."""
    traffic: tuple[tuple[str, int], ...] = ()
    """(level, bytes that it gets from the next one, or sends there): "L1", "L2", …, the last is memory's."""

    @property
    def bound(self) -> str:
        """The name of the largest cause."""
        return self.causes[0].name if self.causes else "nothing"
