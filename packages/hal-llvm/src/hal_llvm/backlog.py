"""How much work may wait in a device's queue, so that whoever submits in a loop does not run out of memory."""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from tile_hal.interfaces import Event
from tile_ir import forking

MOST = 64
"""Pieces of work that wait."""
MOST_BYTES = 1 << 28
"""Bytes that they keep alive, unless one alone needs more."""


class Backlog:
    """Work that was handed over, in order. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = forking.rlock()
        self._waiting: deque[tuple[Event, int]] = deque()
        self._bytes = 0

    def make_room(self, nbytes: int) -> None:
        """Wait until so many bytes more may wait."""
        while (first := self._crowded(nbytes)) is not None:
            with suppress(Exception):  # who waits for it hears of it
                first.wait()

    def _crowded(self, nbytes: int) -> Event | None:
        """The first piece of work, while there is too much."""
        with self._lock:
            first = self._waiting[0] if self._waiting else None
            while first is not None and first[0].done:
                with suppress(ValueError):  # a signal's handler has taken it out
                    self._waiting.remove(first)
                    self._bytes -= first[1]
                first = self._waiting[0] if self._waiting else None
            crowded = len(self._waiting) >= MOST or self._bytes + nbytes > MOST_BYTES
            return first[0] if first is not None and crowded else None

    def add(self, event: Event, nbytes: int) -> None:
        with self._lock:
            self._waiting.append((event, nbytes))
            self._bytes += nbytes
