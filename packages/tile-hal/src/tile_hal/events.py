"""Events that every backend and the runtime share: finished ones, failed ones and joins of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType

from tile_hal.errors import execution_error
from tile_hal.interfaces import Event, Result

_NOT_MEASURED = Result()


class CompletedEvent(Event):
    """Work that was finished when the event was made."""

    __slots__ = ("_result",)

    def __init__(self, seconds: float | None = None) -> None:
        self._result = _NOT_MEASURED if seconds is None else Result(seconds)

    def wait(self) -> Result:
        return self._result

    @property
    def done(self) -> bool:
        return True


COMPLETED = CompletedEvent()
"""The one finished event without a duration, for backends that complete before they return."""


class FailedEvent(Event):
    """Work that failed before the event was handed out; `wait` raises `error` as a TileDeviceError."""

    __slots__ = ("_error", "_traceback")

    def __init__(self, error: BaseException) -> None:
        self._error = execution_error(error)
        self._traceback: TracebackType | None = self._error.__traceback__

    def wait(self) -> Result:
        # The stored traceback keeps the chain from growing with every wait.
        raise self._error.with_traceback(self._traceback)

    @property
    def done(self) -> bool:
        return True


class JoinedEvent(Event):
    """Done when all its `parts` are. `wait` waits for every part, then raises the first error, if any."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Event]) -> None:
        self.parts: tuple[Event, ...] = tuple(parts)
        """The joined events; a backend may depend on these instead (see `flatten`)."""

    def wait(self) -> Result:
        """`seconds` is the sum over the parts, None when one was not measured."""
        error: Exception | None = None
        total: float | None = 0.0
        for part in self.parts:
            try:
                seconds = part.wait().seconds
            except Exception as problem:  # kept so that every part has ended before buffers may go
                error = error or problem
            else:
                total = None if total is None or seconds is None else total + seconds
        if error is not None:
            raise error
        return Result(total)

    @property
    def done(self) -> bool:
        return all(part.done for part in self.parts)


def join(events: Sequence[Event]) -> Event:
    """One event for several; a single event is returned as it is, no event gives a finished one."""
    if len(events) == 1:
        return events[0]
    return JoinedEvent(events) if events else COMPLETED


def flatten(events: Iterable[Event]) -> list[Event]:
    """`events` with every event that has `parts` (joins, submissions) replaced by them, so that a backend sees its own."""
    result: list[Event] = []
    stack = list(events)[::-1]
    while stack:
        event = stack.pop()
        parts: tuple[Event, ...] | None = getattr(event, "parts", None)
        if parts is None:
            result.append(event)
        else:
            stack.extend(reversed(parts))
    return result
