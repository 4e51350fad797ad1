"""Events: what says that a buffer is ready, and calls back when it is."""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

from tile_hal.host_queue import HostEvent
from tile_hal.interfaces import Event as Work
from tile_ir import forking

from tile_jax.pjrt.errors import failure
from tile_jax.pjrt.handles import Handler, drop, find, lasting, new

_c_function = lru_cache(64)(ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64))
"""The C function at an address; JAX has a few."""


class Event:
    """The completion of work on a device, or of what `finish` says."""

    __slots__ = ("_open", "_work")

    def __init__(self, work: Sequence[Work] = (), *, open: bool = False) -> None:
        """Work that may be pending; with `open` it is not over before `finish`."""
        self._work = [w for w in work if not w.done]
        self._open = HostEvent() if open else None
        self._work += [w for w in work if w.done and _problem([w]) is not None]

    def finish(self) -> None:
        """What was open is over."""
        assert self._open is not None
        self._open.set()

    @property
    def ready(self) -> bool:
        return (self._open is None or self._open.done) and all(w.done for w in self._work)

    def error(self) -> int:
        """A handle of the error that it ended with, 0 for none; waits for it."""
        if self._open is not None:
            self._open.wait()
        problem = _problem(self._work)
        return 0 if problem is None else failure(problem)

    def call(self, callback: int, argument: int) -> None:
        """Calls a C function with the error once it is over: now, when open work ends, or from the thread that waits."""
        if self._open is not None and not self._open.done:
            self._open.add_done_callback(partial(self._call, callback, argument))
        elif self.ready:
            self._call(callback, argument)
        else:
            _waiter.add(self, callback, argument)

    def _call(self, callback: int, argument: int) -> None:
        _c_function(callback)(self.error(), argument)


def _problem(work: Sequence[Work]) -> Exception | None:
    for item in work:
        try:
            item.wait()
        except Exception as problem:
            return problem
    return None


class _Waiter:
    """One thread that waits for devices which work while we do not; it begins when it is first needed."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Event, int, int] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = forking.rlock()

    def add(self, event: Event, callback: int, argument: int) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tile-jax events", daemon=True)
                self._thread.start()
            self._queue.put((event, callback, argument))

    def stop(self) -> None:
        """Everything that was waited for has been called back then."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            event, callback, argument = item
            event._call(callback, argument)  # pyright: ignore[reportPrivateUsage]


_waiter = _Waiter()


def finish_all() -> None:
    """Returns when every callback that was asked for has been made."""
    _waiter.stop()


DONE = lasting(Event())
"""The handle of the event of what was over before anybody could ask."""


def event_of(work: Sequence[Work | None]) -> int:
    """A handle of the event of work that may be pending; None is work that is over."""
    pending = [w for w in work if w is not None]
    return new(Event(pending)) if pending else DONE


def _is_ready(args: Any) -> None:
    args.is_ready = find(Event, args.event).ready


def _await(args: Any) -> int:
    return find(Event, args.event).error()


def _on_ready(args: Any) -> None:
    if args.event == DONE:
        _c_function(args.callback)(0, args.user_arg)
    else:
        find(Event, args.event).call(args.callback, args.user_arg)


def _destroy(args: Any) -> None:
    drop(args.event)


HANDLERS: dict[str, Handler] = {
    "Event_IsReady": _is_ready,
    "Event_Error": _await,
    "Event_Await": _await,
    "Event_OnReady": _on_ready,
    "Event_Destroy": _destroy,
}
