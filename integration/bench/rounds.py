"""Interleaved rounds between probes, and their medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Contestant = Callable[[], object]

GATE = 0.84
"""Share of the fastest probe that both probes of a round must reach."""
PAUSE = 0.03
"""Seconds that let the previous contestant's spinning threads go to sleep."""


@dataclass(frozen=True)
class Round:
    """Seconds of each contestant in one round, and the slower of the probes around it."""

    seconds: Mapping[str, float]
    speed: float


@dataclass(frozen=True)
class Timing:
    """The gated rounds of one row."""

    rounds: list[Round]
    """Those that count."""
    discarded: int
    peak: float
    """GFLOP/s of the fastest probe."""

    def median(self, name: str) -> float:
        return statistics.median(r.seconds[name] for r in self.rounds)

    def spread(self, value: Callable[[Round], float]) -> float:
        """Half the distance of the quartiles of a value, relative to its median."""
        values = sorted(value(r) for r in self.rounds)
        if len(values) < 2:
            return 0.0
        low, middle, high = statistics.quantiles(values, n=4)
        return (high - low) / 2 / abs(middle) if middle else 0.0


def measure(
    contestants: Mapping[str, Contestant],
    probe: Callable[[], float],
    wanted: int,
    patience: float,
    pause: float = PAUSE,
) -> Timing:
    """Rounds until `wanted` of them passed the gate or `patience` seconds are over.

    `pause` seconds go by before each. A contestant that returns a float has measured itself, in seconds. With no round through the gate, the
    fastest machine that was seen counts: the result then says how many were discarded.
    """
    for run in contestants.values():
        run()
    rounds: list[Round] = []
    peak, start = max(probe() for _ in range(20)), time.perf_counter()
    while True:
        names = list(contestants)
        turn = len(rounds) % len(names)
        before = probe()
        seconds = {n: _seconds(contestants[n], pause) for n in names[turn:] + names[:turn]}
        time.sleep(pause)
        after = probe()
        rounds.append(Round(seconds, min(before, after)))
        peak = max(peak, before, after)
        gated = [r for r in rounds if r.speed >= GATE * peak]
        if len(gated) >= wanted or time.perf_counter() - start > patience:
            break
    kept = gated or [max(rounds, key=lambda r: r.speed)]
    return Timing(kept, len(rounds) - len(kept), peak)


def _seconds(run: Contestant, pause: float) -> float:
    time.sleep(pause)
    start = time.perf_counter()
    result = run()
    elapsed = time.perf_counter() - start
    return result if isinstance(result, float) else elapsed
