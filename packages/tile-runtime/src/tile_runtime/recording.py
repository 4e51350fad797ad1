"""What executables tell whoever records how long their steps take; nobody does most of the time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from tile_hal.events import COMPLETED

if TYPE_CHECKING:
    from tile_hal.interfaces import Buffer, Event
    from tile_hal.submission import Prepared, StepTime

    from tile_runtime.typed import Typed


class Recorder(Protocol):
    """Hears of every run, in any thread."""

    def add(self, typed: Typed, prepared: Prepared, times: Sequence[StepTime]) -> None: ...


RECORDERS: list[Recorder] = []
"""While it is empty, calls do nothing but look at it."""


def recorded(typed: Typed, prepared: Prepared, bindings: Sequence[Buffer], waits: Sequence[Event]) -> Event:
    """Run step by step, and tell every recorder how long each took."""
    times = prepared.run_timed(bindings, waits)
    for recorder in tuple(RECORDERS):
        recorder.add(typed, prepared, times)
    return COMPLETED
