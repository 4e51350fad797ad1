"""An event that a test opens by hand, and starting work that may block on it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tile_ir.diagnostics import TileDeviceError

from tile_hal.interfaces import Device, Event, Result

PATIENCE = 0.03
"""Seconds after which work that wrongly ignores its dependencies would long be done."""


class Gate(Event):
    """Pending until opened or failed; of no device, so that a backend can only ask and wait."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._error: TileDeviceError | None = None

    def wait(self) -> Result:
        self._open.wait()
        if self._error is not None:
            raise self._error
        return Result()

    @property
    def done(self) -> bool:
        return self._open.is_set()

    def open(self) -> None:
        self._open.set()

    def fail(self, message: str) -> None:
        self._error = TileDeviceError(message)
        self._open.set()


class Started:
    """Work being submitted: at once on an asynchronous device, on a thread on one that may block until it is done."""

    def __init__(self, device: Device, submit: Callable[[], Event]) -> None:
        self._submit = submit
        self._event: Event | None = None
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None
        if device.capabilities.is_async:
            self._event = submit()
        else:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            self._event = self._submit()
        except Exception as problem:
            self._error = problem

    @property
    def done(self) -> bool:
        return self._event is not None and self._event.done

    def wait(self) -> Result:
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._event is not None
        return self._event.wait()
