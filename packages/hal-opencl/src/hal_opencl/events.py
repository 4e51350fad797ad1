"""Events over OpenCL events, and the pool of in-order queues that work is put on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from tile_hal.errors import Code, device_error
from tile_hal.events import CompletedEvent, FailedEvent, flatten
from tile_hal.host_queue import HostEvent, HostQueue
from tile_hal.interfaces import Event, Result
from tile_ir import forking
from tile_ir.diagnostics import TileDeviceError

from hal_opencl import binding

QUEUES = 4
"""In-order queues of a device: independent kernels overlap only across queues."""
_NOTHING = Result()
Guard = AbstractContextManager[object]
"""Held around OpenCL calls: a lock where the platform bears one thread only."""
Enqueue = Callable[[binding.RawQueue, Sequence[binding.RawEvent]], binding.RawEvent]
"""Puts one command on a queue, behind events."""


class Lane:
    """An in-order queue that knows whether it was flushed."""

    __slots__ = ("dirty", "guard", "profiling", "raw")

    def __init__(self, raw: binding.RawQueue, guard: Guard, profiling: bool = False) -> None:
        self.raw = raw
        self.guard = guard
        self.profiling = profiling
        self.dirty = False

    def flush(self) -> None:
        if self.dirty:
            self.dirty = False
            with self.guard:
                self.raw.flush()


class DeviceEvent(Event):
    """One command. Until its dependencies on other devices are done it is not even enqueued (`gate` is set)."""

    __slots__ = ("_asked", "_error", "_finished", "_result", "gate", "lane", "owner", "raw")

    def __init__(self, owner: Lanes) -> None:
        self.owner = owner
        self.raw: binding.RawEvent = None
        self.lane: Lane | None = None
        self.gate: HostEvent | None = None
        self._asked = False
        self._finished = False
        self._result = _NOTHING
        self._error: TileDeviceError | None = None

    def wait(self) -> Result:
        if not self._finished:
            self._finish()
        if self._error is not None:
            raise self._error
        return self._result

    @property
    def done(self) -> bool:
        if self._finished:
            return True
        gate = self.gate
        if gate is not None and not (gate.done and (self.raw is not None or gate.error is not None)):
            return False
        if self.raw is None:
            return True  # it will never be enqueued
        # Who asks again waits for the answer; the first question is often only whether the work ran at once.
        if self._asked and self.lane is not None:
            self.lane.flush()
        self._asked = True
        with self.owner.guard:
            return binding.is_complete(self.raw)

    @property
    def settled(self) -> bool:
        """Known to have ended well, without asking the driver."""
        return self._finished and self._error is None

    def _finish(self) -> None:
        try:
            if self.gate is not None:
                self.gate.wait()
            with self.owner.guard:
                binding.wait(self.raw)
            if self.lane is not None and self.lane.profiling:
                self._result = Result(binding.seconds(self.raw))
        except TileDeviceError as problem:
            self._error = problem
        except binding.cl_error as problem:
            self._error = device_error(Code.EXECUTION, f"the device reports a failure: {problem}")
            self._error.__cause__ = problem
        self._finished = True


class Lanes:
    """The queues of one device, made when first used."""

    def __init__(self, make: Callable[[bool], binding.RawQueue], guard: Guard) -> None:
        self._make = make
        self.guard = guard
        self._lock = forking.lock()
        self._lanes: list[Lane] = []
        self._profiling: Lane | None = None
        self._transfer: Lane | None = None
        self._turn = itertools.count()
        self._late = HostQueue(1, "hal-opencl")

    def submit(self, enqueue: Enqueue, dependencies: Sequence[Event] = (), profile: bool = False) -> Event:
        """Enqueue a command behind its dependencies; at once, unless one of them is not OpenCL work on this device."""
        event = DeviceEvent(self)
        if not dependencies:
            self._enqueue(event, enqueue, (), profile)
            return event
        own: list[DeviceEvent] = []
        later: list[Event] = []
        try:
            for dependency in flatten(dependencies):
                if isinstance(dependency, DeviceEvent) and dependency.owner is self:
                    if dependency.settled:
                        continue
                    own.append(dependency)
                    if dependency.raw is None:
                        assert dependency.gate is not None
                        later.append(dependency.gate)
                elif dependency.done:
                    dependency.wait()
                elif not isinstance(dependency, CompletedEvent):
                    later.append(dependency)
        except Exception as problem:
            return FailedEvent(problem)
        if later:
            self._submit_later(event, enqueue, own, later, profile)
        else:
            self._enqueue(event, enqueue, own, profile)
        return event

    def _submit_later(
        self, event: DeviceEvent, enqueue: Enqueue, own: list[DeviceEvent], later: list[Event], profile: bool
    ) -> None:
        def work() -> None:
            self._enqueue(event, enqueue, own, profile)
            self.flush()

        event.gate = self._gate(work, later)

    def _gate(self, work: Callable[[], None], later: Sequence[Event]) -> HostEvent:
        gate = self._late.run(work, later, inline=False)
        assert isinstance(gate, HostEvent)
        return gate

    def _enqueue(self, event: DeviceEvent, enqueue: Enqueue, own: Sequence[DeviceEvent], profile: bool) -> None:
        lane = self._choose(own, profile)
        for dependency in own:
            if dependency.lane is not lane and dependency.lane is not None:
                dependency.lane.flush()  # another queue waits for it
        event.lane = lane
        try:
            with self.guard:
                event.raw = enqueue(lane.raw, [dependency.raw for dependency in own])
        except binding.cl_error as problem:
            raise failure(problem) from problem
        lane.dirty = True

    def _choose(self, own: Sequence[DeviceEvent], profile: bool) -> Lane:
        if profile:
            return self._get("_profiling", True)
        if own and own[-1].lane is not None and not own[-1].lane.profiling and own[-1].lane is not self._transfer:
            return own[-1].lane
        if len(self._lanes) < QUEUES:
            with self._lock:
                if len(self._lanes) < QUEUES:
                    self._lanes.append(Lane(self._make(False), self.guard))
        return self._lanes[next(self._turn) % len(self._lanes)]

    def pending(self, dependencies: Sequence[Event]) -> list[DeviceEvent]:
        """Own events among the dependencies that a command can wait for; all others are waited for here."""
        own: list[DeviceEvent] = []
        for event in flatten(dependencies):
            if isinstance(event, DeviceEvent) and event.owner is self and event.raw is not None:
                if not event.settled:
                    own.append(event)
                    if event.lane is not None:
                        event.lane.flush()
            else:
                event.wait()
        return own

    def transfer(self) -> Lane:
        """The queue of mappings."""
        return self._get("_transfer", False)

    def _get(self, slot: str, profiling: bool) -> Lane:
        lane = getattr(self, slot)
        if lane is None:
            with self._lock:
                lane = getattr(self, slot)
                if lane is None:
                    lane = Lane(self._make(profiling), self.guard, profiling)
                    setattr(self, slot, lane)
        return lane

    def started(self, raw: binding.RawEvent, lane: Lane) -> DeviceEvent:
        """The event of a command that is already on a queue."""
        event = DeviceEvent(self)
        event.raw, event.lane = raw, lane
        lane.dirty = True
        return event

    def flush(self) -> None:
        for lane in (*self._lanes, self._profiling, self._transfer):
            if lane is not None:
                lane.flush()


def failure(problem: Exception) -> TileDeviceError:
    """An OpenCL error as a device error."""
    text = str(problem)
    memory = any(
        word in text for word in ("MEM_OBJECT_ALLOCATION_FAILURE", "OUT_OF_HOST_MEMORY", "INVALID_BUFFER_SIZE")
    )
    return device_error(Code.MEMORY if memory else Code.EXECUTION, f"OpenCL: {text}")
