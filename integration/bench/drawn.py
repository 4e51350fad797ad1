"""Measures drawn cases: ours and the peers' in alternating rounds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import tile_runtime as tile
from classes import Case
from contest import Prepared, WrongResult, bytes_moved
from machine import Probe
from report import Row
from roofline import Roofline
from rounds import Round, Timing, measure
from rows import OURS


@dataclass(frozen=True, slots=True)
class Bench:
    """How cases are measured."""

    evaluator: tile.Evaluator
    probe: Probe
    roofline: Roofline
    rounds: int
    patience: float
    """Seconds after which a case takes the rounds that it has."""

    def rows(self, cases: Iterable[tuple[str, Case, Sequence[str]]], budget: float) -> Iterator[Row]:
        """A row per (class, case, peers), until `budget` seconds are over."""
        end = time.monotonic() + budget
        for class_, case, peers in cases:
            if time.monotonic() > end:
                return
            yield self.row(class_, case, peers)

    def row(self, class_: str, case: Case, peers: Sequence[str]) -> Row:
        """One case; what goes wrong is the row's problem."""
        prepared = Prepared(case, self.evaluator)
        try:
            compile_seconds = prepared.compile_seconds
            contestants, missing = prepared.contestants(peers)
        except (tile.TileError, WrongResult, MemoryError) as problem:
            first = str(problem).partition("\n")[0]
            return Row(class_, case.name, 0.0, "", 0, 0, 0, 0, 0, 0, 0, problem=f"{type(problem).__name__}: {first}")
        timing = measure(contestants, self.probe, self.rounds, self.patience)
        ours = timing.median(OURS)
        best = min((n for n in contestants if n != OURS), key=timing.median)
        floor = self.roofline.seconds(case.work.operations, bytes_moved(prepared))
        return Row(
            class_, case.name, _ratio(timing, best), best, ours, timing.median(best), timing.spread(_against(best)),
            floor / ours, prepared.kernels, compile_seconds, len(timing.rounds), missing=missing,
        )  # fmt: skip


def _against(peer: str):  # noqa: ANN202
    def value(round_: Round) -> float:
        return round_.seconds[peer] / round_.seconds[OURS]

    return value


def _ratio(timing: Timing, peer: str) -> float:
    """The median of the rounds' ratios: what disturbs a round disturbs both."""
    return statistics.median(_against(peer)(r) for r in timing.rounds)
