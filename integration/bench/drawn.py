"""Measures drawn cases: ours and the peers' in alternating rounds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import tile_runtime as tile
from classes import Case, Class
from contest import NoPeer, Ready, WrongResult
from report import Row
from roofline import Roofline
from rounds import PAUSE, Round, measure
from rows import OURS


@dataclass(frozen=True, slots=True)
class Bench:
    """How cases are measured."""

    ready: Callable[[Class, Case], Ready]
    probe: Callable[[], float]
    roofline: Roofline
    rounds: int
    patience: float
    """Seconds after which a case takes the rounds that it has."""
    pause: float = PAUSE
    """Seconds before each sample."""

    def rows(self, cases: Iterable[tuple[str, Class, Case]], budget: float) -> Iterator[Row]:
        """A row for each case, until `budget` seconds are over."""
        end = time.monotonic() + budget
        for name, class_, case in cases:
            if time.monotonic() > end:
                return
            yield self.row(name, class_, case)

    def row(self, name: str, class_: Class, case: Case) -> Row:
        """One case; what goes wrong is the row's problem."""
        try:
            return self._measured(name, class_, case)
        except (tile.TileError, WrongResult, NoPeer, MemoryError) as problem:
            first = str(problem).partition("\n")[0]
            return Row(name, case.name, problem=f"{type(problem).__name__}: {first}")

    def _measured(self, name: str, class_: Class, case: Case) -> Row:
        ready = self.ready(class_, case)
        compile_seconds = ready.compile_seconds
        contestants, missing = ready.contestants(class_)
        timing = measure(contestants, self.probe, self.rounds, self.patience, self.pause)
        ours, best = timing.median(OURS), min((n for n in contestants if n != OURS), key=timing.median, default=OURS)
        share = self.roofline.seconds(case.work.slots, ready.moved) / ours
        value = _against(best)
        ratio = share if class_.against == "issue slots" else statistics.median(map(value, timing.rounds))
        peer = "" if best == OURS else best
        return Row(
            name, case.name, ratio, peer, ours, timing.median(best), timing.spread(value), share, ready.moved,
            len(ready.lowered.kernels.kernels), compile_seconds, len(timing.rounds), _share(ready.predicted, ours),
            missing=missing,
        )  # fmt: skip


def _share(predicted: float | None, measured: float) -> float | None:
    return None if predicted is None else predicted / measured


def _against(peer: str) -> Callable[[Round], float]:
    """A round's ratio: what disturbs a round disturbs both."""
    return lambda round_: round_.seconds[peer] / round_.seconds[OURS]
