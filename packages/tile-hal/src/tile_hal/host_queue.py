"""An asynchronous queue of host work: callables that run once their dependency events are done."""

from __future__ import annotations

import atexit
import contextlib
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType

from tile_ir import forking

from tile_hal.errors import Code, device_error, execution_error
from tile_hal.events import COMPLETED, CompletedEvent, FailedEvent, flatten
from tile_hal.interfaces import Event, Result

Work = Callable[[], object]
"""Device work; its return value is ignored, an exception fails the event and everything that depends on it."""


class HostEvent(Event):
    """An event that host code completes: `set` or `fail` it once, from any thread."""

    __slots__ = ("_callbacks", "_error", "_finished", "_lock", "_result", "_traceback", "left")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._finished = threading.Event()
        self._callbacks: list[Callable[[], None]] | None = []
        self._result = Result()
        self._error: BaseException | None = None
        self._traceback: TracebackType | None = None
        self.left = False
        """Somebody was interrupted while waiting for it, and nobody began anew."""

    @property
    def done(self) -> bool:
        return self._finished.is_set()

    @property
    def error(self) -> BaseException | None:
        """The failure of a finished event; None while pending or after success."""
        return self._error

    def wait(self) -> Result:
        self.left = False
        try:
            self._finished.wait()
        except BaseException:
            self.left = True
            raise
        if self._error is not None:
            raise self._error.with_traceback(self._traceback)
        return self._result

    def set(self, seconds: float | None = None) -> None:
        """Mark success."""
        self._finish(Result(seconds), None)

    def fail(self, error: BaseException) -> None:
        """Mark failure: `wait` raises `error` as a TileDeviceError."""
        self._finish(Result(), execution_error(error))

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the event is done (at once if it is), on the thread that completes it.

        Callbacks must be short and must not raise.
        """
        with self._lock:
            if self._callbacks is not None:
                self._callbacks.append(callback)
                return
        callback()

    def _finish(self, result: Result, error: BaseException | None) -> None:
        with self._lock:
            callbacks, self._callbacks = self._callbacks, None
            if callbacks is None:
                return
            self._result, self._error = result, error
            self._traceback = error.__traceback__ if error else None
            self._finished.set()
        for callback in callbacks:
            callback()


class HostQueue:
    """Runs callables on worker threads once their dependencies are done; threads start with the first deferred one.

    Workers never block on a dependency, so a chain of any length needs one thread, and `threads` of
    them let independent work overlap. Survives fork (the child gets fresh threads; work that was
    pending in the parent fails there) and stops at interpreter exit after the work in hand.
    """

    def __init__(self, threads: int = 1, name: str = "tile-hal", stop: Callable[[], None] | None = None) -> None:
        """`stop` makes the work in hand end soon, whatever becomes of its results."""
        self._threads = threads
        self._stop = stop
        self._name = name
        self._reset()
        _queues.add(self)

    def run(
        self, work: Work, dependencies: Sequence[Event] = (), *, profile: bool = False, inline: bool = True
    ) -> Event:
        """`work` once `dependencies` are done. With `inline`, on the calling thread if they already are.

        A failed dependency fails the returned event without running `work`. `profile` puts the
        duration of `work` in the event's result.
        """
        pending = [event for event in flatten(dependencies) if not event.done] if dependencies else ()
        if pending or not inline:
            return self._defer(work, dependencies, pending, profile)
        try:
            for event in dependencies:
                event.wait()
            if profile:
                return CompletedEvent(_timed(work))
            work()
        except Exception as problem:
            return FailedEvent(problem)
        return COMPLETED

    def _defer(self, work: Work, dependencies: Sequence[Event], pending: Sequence[Event], profile: bool) -> HostEvent:
        task = _Task(self, work, tuple(dependencies), profile)
        with self._lock:
            self._open.add(task.event)
            self._start()
        task.arm(pending)
        return task.event

    def _start(self) -> None:
        while len(self._workers) < self._threads:
            worker = threading.Thread(
                target=_serve, args=(self._ready,), name=f"{self._name}-{len(self._workers)}", daemon=True
            )
            self._workers.append(worker)
            worker.start()

    def _abandon(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                task = self._ready.get_nowait()
                if task is not None:
                    task.event.fail(_Lost())
        if self._stop is not None:
            self._stop()

    def enqueue(self, task: _Task) -> None:
        self._ready.put(task)

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._ready: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._workers: list[threading.Thread] = []
        self._open: weakref.WeakSet[HostEvent] = weakref.WeakSet()

    def after_fork(self) -> None:
        """In a forked child: the parent's threads are gone, so fail what they would have done."""
        lost = list(self._open)
        self._reset()
        for event in lost:
            event._lock = threading.RLock()  # pyright: ignore[reportPrivateUsage]
            event.fail(device_error(Code.EXECUTION, "the process forked while this work was pending"))

    def finish(self) -> None:
        """Wait for all that is pending now; failures stay with their events."""
        with self._lock:
            pending = list(self._open)
        for event in pending:
            with contextlib.suppress(Exception):
                event.wait()

    def close(self) -> None:
        """Finish the work in hand and the ready work before it, then end the threads.

        Work that a user was tired of waiting for is given up, and what is behind it; so is all work where Ctrl-C ends the process.
        """
        pending = [event for event in list(self._open) if not event.done]
        ended = getattr(sys, "last_type", None) is KeyboardInterrupt
        if pending and (ended or any(event.left for event in pending)):
            self._abandon()
        workers, self._workers = self._workers, []
        for _ in workers:
            self._ready.put(None)
        for worker in workers:
            worker.join()


class _Lost(Exception):
    """The process ends before the work is done."""


class _Task:
    """Deferred work and the number of dependencies it still waits for."""

    __slots__ = ("_count", "_dependencies", "_lock", "_profile", "_queue", "_work", "event")

    def __init__(self, owner: HostQueue, work: Work, dependencies: tuple[Event, ...], profile: bool) -> None:
        self._queue = owner
        self._work: Work | None = work
        self._dependencies = dependencies
        self._profile = profile
        self._lock = threading.RLock()
        self._count = 1
        self.event = HostEvent()

    def arm(self, pending: Sequence[Event]) -> None:
        """Get going once every event of `pending` is done."""
        self._count += len(pending)
        for event in pending:
            if isinstance(event, HostEvent):
                event.add_done_callback(self._arrive)
            else:
                _watch(event, self._arrive)
        self._arrive()

    def _arrive(self) -> None:
        with self._lock:
            self._count -= 1
            ready = self._count == 0
        # Through the queue even to fail: a long chain of dependents must not become a deep recursion.
        if ready:
            self._queue.enqueue(self)

    def execute(self) -> None:
        work, self._work = self._work, None
        assert work is not None
        try:
            for event in self._dependencies:
                event.wait()
            seconds = _timed(work)
        except BaseException as problem:
            self.event.fail(problem)
        else:
            self.event.set(seconds if self._profile else None)
        self._dependencies = ()


def _timed(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _serve(ready: queue.SimpleQueue[_Task | None]) -> None:
    while (task := ready.get()) is not None:
        task.execute()
        del task  # buffers of finished work must not live until the next task


def _watch(event: Event, callback: Callable[[], None]) -> None:
    """Call `callback` when an event of another device is done; such events can only be waited for, so a thread does."""
    with _watch_lock:
        known = _watched.get(id(event))
        if known is not None:
            known.append(callback)
            return
        callbacks = _watched[id(event)] = [callback]

    def watch() -> None:
        # The tasks see a failure when they wait themselves.
        with contextlib.suppress(Exception):
            event.wait()
        with _watch_lock:
            del _watched[id(event)]
        for item in callbacks:
            item()

    threading.Thread(target=watch, name="tile-hal-watch", daemon=True).start()


_watch_lock = forking.lock()
_watched: dict[int, list[Callable[[], None]]] = {}
"""Callbacks by the id of the foreign event they wait for: one thread per event, however many depend on it."""
_queues: weakref.WeakSet[HostQueue] = weakref.WeakSet()


def _after_fork() -> None:
    _watched.clear()
    for item in list(_queues):
        item.after_fork()


def _at_exit() -> None:
    for item in list(_queues):
        item.close()


forking.at_fork(in_child=_after_fork)
atexit.register(_at_exit)
