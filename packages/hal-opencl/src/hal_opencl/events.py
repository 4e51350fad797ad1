"""Events over OpenCL events, and the in-order queues that work is put on.

The commands of a queue run one after the other, so events matter between queues alone. A queue knows up to which command of
each other queue it has waited already; it never waits for anything twice.
"""

from __future__ import annotations

import atexit
import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from tile_hal.errors import Code, device_error
from tile_hal.events import CompletedEvent, FailedEvent, flatten
from tile_hal.host_queue import HostEvent, HostQueue
from tile_hal.interfaces import Event, Result
from tile_ir import forking
from tile_ir.diagnostics import TileDeviceError

from hal_opencl import binding
from hal_opencl.endings import hold_all, owner

QUEUES = 4
"""In-order queues of a device: independent kernels overlap only across queues."""
_NOTHING = Result()
Guard = AbstractContextManager[object]
"""Held around OpenCL calls, where the platform bears one thread only."""


class Used(Protocol):
    """Memory that commands use."""

    before: Uses | None
    """What must be over before anything touches it: commands on the block's memory when it belonged to somebody else."""
    uses: Uses
    """The last command on each queue that uses it."""


Enqueue = Callable[[binding.RawQueue, Any, Sequence[binding.RawEvent] | None], binding.RawEvent]
"""Puts a command on a queue (see `hal_opencl.commands`), on a sequence of buffers and behind events."""


@owner
class Lane:
    """An in-order queue."""

    __slots__ = ("_guard", "count", "dirty", "finished", "lock", "profiling", "raw", "waited", "works")

    def __init__(self, raw: binding.RawQueue, guard: Guard | None, works: bool = True, profiling: bool = False) -> None:
        self.raw = raw
        self._guard = guard
        self.works = works
        """It is one of those that share the work."""
        self.profiling = profiling
        self.dirty = False
        """There may be commands that the device has not been told of."""
        self.lock = forking.lock()
        """Commands are numbered in the order in which they are enqueued. Nobody waits for it (`Lanes.held`)."""
        self.count = 0
        """Commands so far."""
        self.finished = 0
        """Up to this one they are known to be over."""
        self.waited: dict[Lane, int] = {}
        """Commands of other queues, up to which the next command here comes after them anyway."""

    def flush(self) -> None:
        if self.dirty:
            self.dirty = False
            if self._guard is None:
                self.raw.flush()
            else:
                with self._guard:
                    self.raw.flush()


@owner
class DeviceEvent(Event):
    """One command. Until its dependencies on other devices are done it is not even enqueued (`gate` is set)."""

    raw: binding.RawEvent = None
    lane: Lane | None = None
    number: int = 0
    """Its place among the commands of its queue, from 1."""
    gate: HostEvent | None = None
    _asked = False
    _finished = False
    _result = _NOTHING
    _error: TileDeviceError | None = None

    def __init__(self, owner: Lanes) -> None:
        self.owner = owner

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
        lane = self.lane
        if lane is None or self.raw is None:
            gate = self.gate
            return gate is not None and gate.done and gate.error is not None  # it will never be enqueued
        if self.number <= lane.finished:
            return True
        # Who asks again waits for the answer; the first question is often only whether the work ran at once.
        if self._asked:
            lane.flush()
        self._asked = True
        return self.over

    @property
    def over(self) -> bool:
        """Ended, well or badly, as far as the driver knows now; it must be enqueued."""
        lane = self.lane
        assert lane is not None
        if self.number <= lane.finished:
            return True
        status = self.owner.status(self.raw)
        if status == binding.COMPLETE:
            self._finished = not lane.profiling
            if self.number > lane.finished:
                lane.finished = self.number
        return status <= binding.COMPLETE

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
            if self.lane is not None:
                self.lane.finished = max(self.lane.finished, self.number)
                if self.lane.profiling:
                    self._result = Result(binding.seconds(self.raw))
        except TileDeviceError as problem:
            self._error = problem
        except binding.cl_error as problem:
            self._error = device_error(Code.EXECUTION, f"the device reports a failure: {problem}")
            self._error.__cause__ = problem
        self._finished = True


Uses = dict[Lane, DeviceEvent]
"""The last of some commands on each queue."""


def _lost(raw: binding.RawEvent) -> int:
    """The status of a command that nobody will hear of: over, and not well."""
    return binding.COMPLETE - 1


class Lanes:
    """The queues of one device, made when first used."""

    def __init__(
        self,
        make: Callable[[bool], binding.RawQueue],
        guard: Guard | None,
        relieve: Callable[[], None],
        prompt: bool = False,
    ) -> None:
        """`relieve` gives memory back to the device, for a command that found too little.

        A `prompt` device begins without a flush.
        """
        self._prompt = prompt
        self._make = make
        self._shared = guard
        self.guard: Guard = guard or nullcontext()
        self.status: Callable[[binding.RawEvent], int] = self._guarded_status if guard else binding.status
        """Of a raw event."""
        self._relieve = relieve
        self._lanes: list[Lane] = []
        self._others: list[Lane] = []
        """For mappings, and for work that is profiled."""
        self._turn = itertools.count()
        self._dirty = set[Lane]()
        self._late = HostQueue(1, "hal-opencl")
        _all.add(self)

    def _guarded_status(self, raw: binding.RawEvent) -> int:
        with self.guard:
            return binding.status(raw)

    def _added(self, works: bool = True, profiling: bool = False) -> Lane:
        lane = Lane(self._make(profiling), self._shared, works, profiling)
        (self._lanes if works else self._others).append(lane)
        return lane

    def held(self, lane: Lane) -> Lane:
        """The queue with its lock held, or another of its kind: one that somebody else is at, or whom a signal's handler has
        interrupted there, is not waited for."""
        if lane.lock.acquire(False):
            return lane
        for other in [*(self._lanes if lane.works else self._others)]:
            if other.profiling == lane.profiling and other.lock.acquire(False):
                return other
        return self.held(self._added(lane.works, lane.profiling))

    def submit(
        self, enqueue: Enqueue, buffers: Sequence[Used], dependencies: Sequence[Event] = (), profile: bool = False
    ) -> Event:
        """Enqueue a command on buffers behind its dependencies; at once, unless one of them is not OpenCL work on this device."""
        event = DeviceEvent(self)
        if not dependencies:
            self._enqueue(event, enqueue, buffers, (), profile)
            return event
        first = dependencies[0]
        if type(first) is DeviceEvent and first.owner is self and first.raw is not None and len(dependencies) == 1:
            self._enqueue(event, enqueue, buffers, (first,), profile)  # the usual case, quickly
            return event
        try:
            own, later = self._sorted(dependencies)
        except Exception as problem:
            return FailedEvent(problem)
        if later:

            def work() -> None:
                self._enqueue(event, enqueue, buffers, own, profile)
                self.flush()

            event.gate = self._gate(work, later)
        else:
            self._enqueue(event, enqueue, buffers, own, profile)
        return event

    def _sorted(self, dependencies: Sequence[Event]) -> tuple[list[DeviceEvent], list[Event]]:
        """Commands of this device, and what must be over before the next one is enqueued; raises the error of what failed."""
        own: list[DeviceEvent] = []
        later: list[Event] = []
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
        return own, later

    def _gate(self, work: Callable[[], None], later: Sequence[Event]) -> HostEvent:
        gate = self._late.run(work, later, inline=False)
        assert isinstance(gate, HostEvent)
        return gate

    def _enqueue(
        self,
        event: DeviceEvent,
        enqueue: Enqueue,
        buffers: Sequence[Used],
        own: Sequence[DeviceEvent],
        profile: bool,
    ) -> None:
        lane = own[-1].lane if own and not profile else None
        if lane is None or not lane.works:
            lane = self._choose(buffers, profile)
        lane = self.held(lane)
        try:
            self._enqueue_on(lane, event, enqueue, buffers, own)
        finally:
            lane.lock.release()
        for buffer in buffers:
            buffer.uses[lane] = event

    def _enqueue_on(
        self, lane: Lane, event: DeviceEvent, enqueue: Enqueue, buffers: Sequence[Used], own: Sequence[DeviceEvent]
    ) -> None:
        awaited = [e for e in own if e.lane is not lane and _matters(e, lane)] if own else []
        for buffer in buffers:
            if buffer.before is not None:
                for on, earlier in buffer.before.items():
                    if on is not lane and _matters(earlier, lane) and not earlier.over:
                        awaited.append(earlier)
        for earlier in awaited:
            assert earlier.lane is not None
            earlier.lane.flush()  # another queue waits for it
        with self.guard:
            try:
                event.raw = enqueue(lane.raw, buffers, [e.raw for e in awaited] if awaited else None)
            except binding.cl_error as problem:
                event.raw = self.again(problem, lambda: enqueue(lane.raw, buffers, [e.raw for e in awaited] or None))
        self._number(event, lane)
        for earlier in awaited:
            assert earlier.lane is not None
            lane.waited[earlier.lane] = max(earlier.number, lane.waited.get(earlier.lane, 0))

    def again(self, problem: Exception, command: Callable[[], binding.RawEvent]) -> binding.RawEvent:
        """The event of a command that found no memory for its buffers, once the device has all that can be had."""
        if not binding.out_of_memory(problem):
            raise failure(problem) from problem
        try:
            self._relieve()
            self.finish()
            return command()
        except binding.cl_error as again:
            raise failure(again) from problem

    def _number(self, event: DeviceEvent, lane: Lane) -> None:
        """`event` is the newest command of the queue, whose lock is held."""
        lane.count += 1
        event.number = lane.count
        event.lane = lane
        if not lane.dirty:
            lane.dirty = True
            self._dirty.add(lane)

    def _choose(self, buffers: Sequence[Used], profile: bool) -> Lane:
        """The queue of whoever had the memory before, where it need not be waited for; else the next one."""
        if profile:
            return self._other(profiling=True)
        for buffer in buffers:
            # They were not over a moment ago, when the memory was handed out: to ask again takes as long as a fifth of a call.
            for lane, earlier in (buffer.before or {}).items():
                if lane.works and earlier.number > lane.finished:
                    return lane
        return self._next()

    def _next(self) -> Lane:
        if len(self._lanes) < QUEUES:
            return self._added()
        return self._lanes[next(self._turn) % len(self._lanes)]

    def pending(self, dependencies: Iterable[Event]) -> list[DeviceEvent]:
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
        return self._other(profiling=False)

    def _other(self, profiling: bool) -> Lane:
        for lane in self._others:
            if lane.profiling == profiling:
                return lane
        return self._added(works=False, profiling=profiling)

    def unmapped(self, buffer: Used, unmap: Callable[[binding.RawQueue], binding.RawEvent]) -> DeviceEvent:
        """The end of a mapping of the buffer, which was on the queue of mappings."""
        event, lane = DeviceEvent(self), self.held(self.transfer())
        try:
            with self.guard:
                event.raw = unmap(lane.raw)
            self._number(event, lane)
        finally:
            lane.lock.release()
        buffer.uses[lane] = event
        return event

    def flush(self) -> None:
        while self._dirty:
            try:
                self._dirty.pop().flush()
            except KeyError:  # another thread was quicker
                return

    def begin(self) -> None:
        """Flush, unless the device begins by itself with whatever is enqueued."""
        if not self._prompt:
            self.flush()

    def forget(self) -> None:
        """In a forked child: no command is on its way, and what was counts as done; whoever waits for it is told that it is lost."""
        for lane in self._dirty:
            lane.dirty = False
        self._dirty.clear()
        self.status = _lost

    def finish(self) -> None:
        """Wait until all that is enqueued is over; OpenCL's error when the device is lost."""
        for lane in (*self._lanes, *self._others):
            with self.guard:
                lane.raw.finish()


def _matters(event: DeviceEvent, lane: Lane) -> bool:
    """Whether nothing on `lane` has waited for this event of another queue, or for a later one."""
    assert event.lane is not None
    return event.number > lane.waited.get(event.lane, 0)


_all: weakref.WeakSet[Lanes] = weakref.WeakSet()


def _after_fork() -> None:
    """A child's queues are its parent's: nothing on them will ever be heard of."""
    for lanes in list(_all):
        lanes.forget()
    _all.clear()


forking.at_fork(in_child=_after_fork)


@atexit.register
def _at_exit() -> None:
    """The host's memory must outlive the work on it: what is enqueued ends now, and what comes later has its memory held."""
    hold_all()
    for lanes in list(_all):
        try:
            lanes.finish()
        except binding.cl_error:  # a lost device uses nothing
            continue


def failure(problem: Exception) -> TileDeviceError:
    """An OpenCL error as a device error."""
    return device_error(Code.MEMORY if binding.out_of_memory(problem) else Code.EXECUTION, f"OpenCL: {problem}")
