"""The worker of one device: started when it is first needed, and again after its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from tile_ir import forking

from tile_hal.events import FailedEvent, flatten
from tile_hal.host_queue import HostEvent, HostQueue
from tile_hal.interfaces import Event
from tile_hal.isolation.description import Description, description
from tile_hal.isolation.shared import Arena, Place
from tile_hal.isolation.wire import Blob, Message
from tile_hal.isolation.worker import Call, Worker

T = TypeVar("T")
Table = Mapping[str, Any]
Param = Sequence[int]
"""Device memory by its number, or a place of shared memory."""


@dataclass(frozen=True, slots=True)
class Source:
    """How a worker finds a driver."""

    driver: str
    plugin: str = "interp"
    """The entry point that names the driver's plugin, and the only one that is looked at."""
    module: str = ""
    """The plugin's module where no entry point names it."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a worker has under a number."""

    worker: Worker
    number: int


def opened(source: Source) -> tuple[Worker, tuple[Description, ...]]:
    """A new worker that holds a driver, and the devices that the driver finds; raises the error of either."""
    worker = Worker(source.driver, TILE_PLUGINS=source.plugin)
    try:
        request = {"do": "open", "driver": source.driver, "module": source.module}
        found = worker.call("probing", request).table["devices"]
        return worker, tuple(map(description, found))
    except BaseException:
        worker.close()
        raise


def _taken(waiting: deque[T]) -> Iterator[T]:
    """All that waits, each for one who asks: also where another thread, or a signal's handler, asks meanwhile."""
    with suppress(IndexError):
        while True:
            yield waiting.popleft()


class Link:
    """One device's worker, the memory that is shared with it, and what it was told about."""

    def __init__(self, source: Source, device: str, first: Worker | None = None) -> None:
        """`first` is a worker that holds the driver and serves no other device."""
        self._source = source
        self._device = device
        self._lock = forking.rlock()
        self._next = first
        self._worker: Worker | None = None
        self._served: dict[int, Worker] = {}
        """The last two, by how many there were before."""
        self.arena = Arena()
        self.gone = deque[tuple[Worker, str, int]]()
        """What nobody here refers to any more."""
        self._later = HostQueue(1, "tile-isolation")

    @property
    def alignment(self) -> int:
        """Of shared memory that the device uses in place, in bytes; 0 where it uses none."""
        return self.worker().alignment

    @property
    def losses(self) -> int:
        """How often memory of the device was lost."""
        return 0 if self.worker().alignment else max(self._served)

    def worker(self) -> Worker:
        """The worker, started when there is none; TileDeviceError when that fails."""
        found = self._worker
        return found if found is not None and found.alive else self._start()

    def _start(self) -> Worker:
        with self._lock:
            if (found := self._worker) is not None and found.alive:
                return found
            first, self._next = self._next, None
            number = max(self._served, default=-1) + 1
            made = first if first is not None and first.alive else opened(self._source)[0]
            made.name = self._device
            made.alignment = made.call("starting", {"do": "use", "device": self._device}).table["alignment"]
            made.ready()
            self.arena.alignment = max(self.arena.alignment, made.alignment)
            found = self._served.setdefault(number, made)
            if found is not made:  # a signal's handler has started one meanwhile
                made.close()
            self._served.pop(number - 2, None)
            self._worker = found
            return found

    def call(self, what: str, table: Table, blobs: Sequence[Blob] = (), worker: Worker | None = None) -> Message:
        """Tell the worker something and wait for the answer; raises the error that came instead."""
        call = Call(what)
        self._send(worker or self.worker(), call, table, blobs)
        return call.answered()

    def submit(
        self,
        call: Call,
        table: Callable[[Worker], Table],
        dependencies: Sequence[Event],
    ) -> Event:
        """Tell the worker a command that waits for its dependencies; returns at once unless a worker must be started."""
        try:
            own, later = self._sorted(dependencies)
        except Exception as problem:
            return FailedEvent(problem)
        if not later:
            self._command(call, table, own)
            return call

        gate = self._later.run(lambda: self._command(call, table, own), later, inline=False)
        assert isinstance(gate, HostEvent)
        gate.add_done_callback(lambda: call.lose(gate.error) if gate.error is not None else None)
        return call

    def finish(self) -> None:
        """Wait for all commands so far; failures stay with them."""
        self._later.finish()
        for call in self._worker.waiting() if self._worker is not None else ():
            with suppress(Exception):
                call.wait()

    def _command(self, call: Call, table: Callable[[Worker], Table], own: Sequence[Call]) -> None:
        worker = self.worker()
        for lost in own:
            if lost.worker is not worker:
                lost.wait()
        deps = [earlier.number for earlier in own if not earlier.done]
        for earlier in own:
            if earlier.done:
                earlier.wait()
        self._send(worker, call, {**table(worker), "deps": deps})

    def _sorted(self, dependencies: Sequence[Event]) -> tuple[list[Call], list[Event]]:
        """Commands that the worker has, and what must be over before the next one is sent; raises the error of what failed."""
        own: list[Call] = []
        later: list[Event] = []
        for event in flatten(dependencies):
            if event.done:
                event.wait()
            elif isinstance(event, Call) and event.number and event.worker is self._worker:
                own.append(event)
            else:
                later.append(event)
        return own, later

    def _send(self, worker: Worker, call: Call, table: Table, blobs: Sequence[Blob] = ()) -> None:
        gone = self._news(worker)
        worker.send(call, {**table, "gone": gone} if gone else table, blobs)

    def _news(self, worker: Worker) -> list[tuple[str, Any]]:
        """What the worker may drop."""
        gone: list[tuple[str, Any]] = [(kind, number) for owner, kind, number in _taken(self.gone) if owner is worker]
        gone += [("place", (p.segment, p.offset, p.nbytes)) for p in _taken(self.arena.forgotten)]
        for number in [n for n in [*worker.segments] if n not in self.arena.segments]:
            worker.segments.discard(number)
            gone.append(("segment", number))
        return gone

    def shown(self, worker: Worker, place: Place) -> Param:
        """A place of shared memory as a parameter, once the worker has its segment; to have it twice is no harm."""
        if place.segment not in worker.segments:
            segment = self.arena.segments.get(place.segment)
            if segment is not None:
                table = {"do": "segment", "segment": segment.number, "nbytes": segment.nbytes}
                worker.send(Call("mapping memory"), table, fds=[segment.fd])
                worker.segments.add(segment.number)
        return (place.segment, place.offset, place.nbytes)
