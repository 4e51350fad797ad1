"""An asynchronous queue of host work: callables that run once their dependency events are done."""

from __future__ import annotations

import atexit
import contextlib
import queue
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from types import TracebackType
from typing import Generic, TypeVar

from tile_ir import forking

from tile_hal.errors import Code, device_error, execution_error
from tile_hal.events import COMPLETED, CompletedEvent, FailedEvent, flatten
from tile_hal.interfaces import Event, Result

T = TypeVar("T")
Work = Callable[[], object]
"""Device work; its return value is ignored, an exception fails the event and everything that depends on it."""


class HostEvent(Event):
    """An event that host code completes: `set` or `fail` it once, from any thread.

    No lock is held for any time: a signal's handler may wait for an event whose thread it has interrupted in any line
    here, and whoever completes that event must not wait for this thread.
    """

    __slots__ = ("_callbacks", "_outcomes", "left")

    def __init__(self) -> None:
        self._outcomes: list[tuple[Result, BaseException | None, TracebackType | None]] = []
        """Result, failure and where that comes from: the first that is added, in one step, counts."""
        self._callbacks: deque[Callable[[], object]] = deque()
        """Each is called by who takes it from here."""
        self.left = False
        """Somebody was interrupted while waiting for it, and nobody began anew."""

    @property
    def done(self) -> bool:
        return bool(self._outcomes)

    @property
    def error(self) -> BaseException | None:
        """The failure of a finished event; None while pending or after success."""
        return self._outcomes[0][1] if self._outcomes else None

    def wait(self) -> Result:
        self.left = False
        try:
            if not self._outcomes:
                latch = threading.Lock()
                latch.acquire()
                self.add_done_callback(latch.release)
                latch.acquire()
        except BaseException:
            self.left = True
            raise
        result, error, traceback = self._outcomes[0]
        if error is not None:
            raise error.with_traceback(traceback)
        return result

    def set(self, seconds: float | None = None) -> None:
        """Mark success."""
        self._finish(Result(seconds), None)

    def fail(self, error: BaseException) -> None:
        """Mark failure: `wait` raises `error` as a TileDeviceError."""
        self._finish(Result(), execution_error(error))

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` once when the event is done (at once if it is), on the thread that completes it.

        Callbacks must be short and must not raise.
        """
        self._callbacks.append(callback)
        if self._outcomes:
            self._call_back()

    def _finish(self, result: Result, error: BaseException | None) -> None:
        outcome = result, error, error.__traceback__ if error else None
        self._outcomes.append(outcome)
        if self._outcomes[0] is outcome:
            self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:  # another thread was quicker
                return
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

    def later(self, work: Callable[[], T]) -> Later[T]:
        """What `work` gives, on a thread of the queue."""
        return Later(self, work)

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
            worker.start()
            self._workers.append(worker)  # where a signal's handler started one meanwhile, there is one more

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
            event.fail(device_error(Code.EXECUTION, "the process forked while this work was pending"))

    def finish(self) -> None:
        """Wait for all that is pending now; failures stay with their events."""
        for event in self._pending():
            with contextlib.suppress(Exception):
                event.wait()

    def _pending(self) -> list[HostEvent]:
        while True:
            with contextlib.suppress(RuntimeError):  # a signal's handler, or another thread, added some meanwhile
                return [event for event in list(self._open) if not event.done]

    def close(self) -> None:
        """Finish the work in hand and the ready work before it, then end the threads.

        Work that a user was tired of waiting for is given up, and what is behind it; so is all work where Ctrl-C ends the process.
        """
        pending = self._pending()
        ended = getattr(sys, "last_type", None) is KeyboardInterrupt
        if pending and (ended or any(event.left for event in pending)):
            self._abandon()
        workers, self._workers = self._workers, []
        for _ in workers:
            self._ready.put(None)
        for worker in workers:
            worker.join()


class Later(Generic[T]):
    """What a function gives that another thread calls."""

    def __init__(self, threads: HostQueue, work: Callable[[], T]) -> None:
        self._given: list[T] = []
        self._problem: Exception | None = None

        def call() -> None:
            try:
                self._given.append(work())
            except Exception as problem:
                self._problem = problem

        self._over = threads.run(call, inline=False)

    def result(self) -> T:
        """Waits for it; raises what the function raises."""
        self._over.wait()
        if self._problem is not None:
            raise self._problem
        return self._given[0]


class _Lost(Exception):
    """The process ends before the work is done."""


class _Task:
    """Deferred work, and how many of those that it waits for have arrived."""

    __slots__ = ("_arrivals", "_awaited", "_dependencies", "_profile", "_queue", "_work", "event")

    def __init__(self, owner: HostQueue, work: Work, dependencies: tuple[Event, ...], profile: bool) -> None:
        self._queue = owner
        self._work: Work | None = work
        self._dependencies = dependencies
        self._profile = profile
        self._arrivals = count(1)
        self._awaited = 1
        self.event = HostEvent()

    def arm(self, pending: Sequence[Event]) -> None:
        """Get going once every event of `pending` is done."""
        self._awaited += len(pending)
        for event in pending:
            if isinstance(event, HostEvent):
                event.add_done_callback(self._arrive)
            else:
                _watch(event, self._arrive)
        self._arrive()

    def _arrive(self) -> None:
        # Counted in one step. Through the queue even to fail: a long chain of dependents must not become a deep recursion.
        if next(self._arrivals) == self._awaited:
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
    fresh = HostEvent()
    known = _watched.setdefault(id(event), fresh)
    known.add_done_callback(callback)
    if known is not fresh:
        return

    def watch() -> None:
        # The tasks see a failure when they wait themselves.
        with contextlib.suppress(Exception):
            event.wait()
        del _watched[id(event)]
        fresh.set()

    threading.Thread(target=watch, name="tile-hal-watch", daemon=True).start()


_watched: dict[int, HostEvent] = {}
"""By the id of a foreign event, what is done when that is: one thread per event, however many depend on it."""
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
