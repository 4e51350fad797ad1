"""The result of an estimate: seconds, and the resource that they are spent on."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from tile_ir.frozen import frozen, replace


@frozen
class Cause:
    """A part of the time: `name` of the resource or delay, its seconds, and a few words on why."""

    name: str
    seconds: float
    note: str = ""


@frozen
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


def overlapped(demands: Sequence[Cause], exposed: float) -> list[Cause]:
    """The causes of demands that run at the same time: the longest nearly in full, the more of another the closer it comes.

    Their sum is ``(a**p + b**p + ...)**(1/p)``, with p such that two equal demands take ``1 + exposed`` times as long as one.
    """
    power = log(2) / log(1 + exposed)
    longest = max((c.seconds for c in demands), default=0.0)
    if longest <= 0:
        return []
    total = longest * sum((c.seconds / longest) ** power for c in demands) ** (1 / power)
    return [replace(c, seconds=c.seconds * (c.seconds / total) ** (power - 1)) for c in demands if c.seconds > 0]
