"""Read and write hazards between tensors: the HAL orders work by events only, so calls claim their tensors here."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Protocol
from weakref import WeakValueDictionary

from tile_hal.errors import Code, device_error
from tile_hal.events import COMPLETED, FailedEvent
from tile_hal.interfaces import Direct, Event, Result
from tile_ir import forking
from tile_ir.diagnostics import TileError


class Tracked(Protocol):
    """What a hazard is about: a tensor, with the last unfinished write and the reads since."""

    pending_write: Event | None
    pending_reads: list[Event] | None
    writes: int
    """How often it was written to, or was about to be."""

    def settle(self) -> None:
        """Computes it, where that is yet to happen: so that nothing is claimed by asking for the others while `alone`."""
        ...


class Unread(Protocol):
    """What is yet to read the contents of a tensor."""

    def read(self) -> None:
        """Reads them now, since they are about to change."""


unread: WeakValueDictionary[int, Unread] = WeakValueDictionary()
"""By the id of the tensor, which it keeps alive."""


lent: WeakValueDictionary[int, object] = WeakValueDictionary()
"""Tensors in memory that others may write to, by id: no work on one goes on behind its caller's back."""


def about_to_write(tensors: Iterable[object]) -> None:
    """Has whatever is yet to read these tensors read them. Not while `alone`."""
    for tensor in tensors:
        reader = unread.get(id(tensor))
        if reader is not None:
            reader.read()


_lock = forking.rlock()
"""Guards the pending reads and writes of all tensors. A signal's handler that runs Tile may take it within."""
_in_flight: dict[int, tuple[Event, object]] = {}
"""Unfinished work and the buffers it needs, which the HAL wants alive, by the identity of the pair."""


_ASKED = 8
"""So many reads are kept before anybody asks which are done."""
_forks = [0]
"""How many forks made this process of the first one."""


def _after_fork() -> None:
    _forks[0] += 1


forking.at_fork(in_child=_after_fork)


def alone() -> threading.RLock:
    """To be held by whoever changes what is known of a tensor."""
    return _lock


class _Starting:
    """Threads that wait until another one has submitted its work, which takes microseconds: too rare for a lock in every ticket."""

    changed = forking.condition()
    waiting = 0


class Ticket(Event):
    """Work that is claimed and about to start: it takes the place of its event until there is one.

    Claims are atomic and ordered, so that whoever waits for a ticket waits for an earlier claim: no cycles.
    """

    __slots__ = ("_event", "_forks", "_thread")

    def __init__(self) -> None:
        self._event: Event | None = None
        self._forks = _forks[0]
        self._thread = threading.get_ident()

    def started(self, event: Event) -> None:
        """The work has become `event` (a FailedEvent when it could not start)."""
        self._event = event
        if _Starting.waiting:
            with _Starting.changed:
                _Starting.changed.notify_all()

    @property
    def parts(self) -> tuple[Event, ...]:
        """The event; blocks while another thread is still submitting the work."""
        event = self._event
        return (self._awaited() if event is None else event,)

    def _awaited(self) -> Event:
        if self._forks != _forks[0]:
            # The thread that was to submit it is not in this process.
            return FailedEvent(device_error(Code.EXECUTION, "the process forked while this work was pending"))
        if self._thread == threading.get_ident():
            # In a signal's handler: the call that it interrupts goes on when it has returned.
            return FailedEvent(device_error(Code.EXECUTION, "the call that this one interrupts is starting this work"))
        with _Starting.changed:
            _Starting.waiting += 1
            try:
                while (event := self._event) is None:
                    _Starting.changed.wait()
            finally:
                _Starting.waiting -= 1
        return event

    @property
    def done(self) -> bool:
        event = self._event
        return event is not None and event.done

    def wait(self) -> Result:
        return self.parts[0].wait()


def claim(reads: Sequence[Tracked], writes: Sequence[Tracked]) -> tuple[Ticket, list[Event]]:
    """Enter work on these tensors: its ticket, and the events it must wait for. `started` must follow."""
    for tensor in (*reads, *writes):
        tensor.settle()
    if unread:
        about_to_write(writes)
    ticket = Ticket()
    with _lock:
        waits = awaited(reads, writes)
        enter(ticket, reads, writes)
    return ticket, waits


def awaited(reads: Sequence[Tracked], writes: Sequence[Tracked]) -> list[Event]:
    """What work on these tensors must wait for. While `alone`, until the work is entered."""
    waits: list[Event] = []
    for tensor in reads:
        if tensor.pending_write is not None:
            waits += _before_read(tensor)
    for tensor in writes:
        if tensor.pending_write is not None or tensor.pending_reads:
            waits += pending_on(tensor)
    return waits


def at_once(reads: Sequence[Tracked], writes: Sequence[Tracked], direct: Direct, arrays: Iterable[object]) -> bool:
    """A direct call on `arrays`, the memory of these tensors among them; False too when work on one is unfinished."""
    if writes and unread:  # asked in this order: a weak dictionary takes longer than a list to say that it is empty
        about_to_write(writes)
    with _lock:
        if any(map(_before_read, reads)) or not all(map(_untouched, writes)):
            return False
        if direct.brief:  # over before anybody else can claim anything
            for tensor in writes:
                tensor.pending_reads = None
            return _brief(direct, arrays, writes)
        ticket = Ticket()
        enter(ticket, reads, writes)
    try:
        return direct.run(*arrays)
    finally:
        ticket.started(COMPLETED)


def in_holders(direct: Direct, values: Iterable[object], writes: Sequence[Tracked]) -> bool:
    """A direct call on `values`, which may be tensors; False too when it is not brief, or anything is known of one."""
    if unread:
        about_to_write(writes)
    with _lock:
        return _brief(direct, values, writes)


def _brief(direct: Direct, values: Iterable[object], writes: Sequence[Tracked]) -> bool:
    if not direct.run(*values):
        return False
    for tensor in writes:
        tensor.writes += 1
    return True


def _untouched(tensor: Tracked) -> bool:
    """No work on it is unfinished, and its last write did not fail."""
    return not (_before_read(tensor) or pending_on(tensor))


def enter(work: Event, reads: Sequence[Tracked], writes: Sequence[Tracked]) -> None:
    """Note work on these tensors, while `alone`."""
    for tensor in reads:
        pending = tensor.pending_reads
        if pending is None:
            pending = tensor.pending_reads = []
        # Asking costs; at doubling lengths it is a small part of a call, whatever is pending.
        if len(pending) >= _ASKED and len(pending) & (len(pending) - 1) == 0:
            pending[:] = _unfinished(pending)
        pending.append(work)
    for tensor in writes:
        tensor.pending_write, tensor.pending_reads = work, None
        tensor.writes += 1


def _unfinished(events: Sequence[Event]) -> list[Event]:
    """Without those at the front that are done, found by few questions: events are in the order in which work was claimed.

    Of a queue only the latest has to be asked: it knows then that all before it are done, too.
    """
    first = bisect_left(events, True, key=lambda event: not event.done)
    kept = [event for event in reversed(events[:first]) if not event.done]
    return [*reversed(kept), *events[first:]]


def before(tensor: Tracked, *, write: bool) -> list[Event]:
    """Events that a new read (or, with `write`, a new write) of `tensor` must wait for."""
    tensor.settle()
    with _lock:
        return pending_on(tensor) if write else _before_read(tensor)


def _before_read(tensor: Tracked) -> list[Event]:
    """The last write, unless it succeeded already: a failed one is kept, so that dependents fail with it."""
    event = tensor.pending_write
    if event is None:
        return []
    if event.done:
        try:
            event.wait()
        except TileError:
            return [event]
        tensor.pending_write = None
        return []
    return [event]


def pending_on(tensor: Tracked) -> list[Event]:
    """All work on it, which a write must wait for. While `alone`."""
    return [e for e in (tensor.pending_write, *(tensor.pending_reads or ())) if e is not None and not e.done]


def written(tensor: Tracked, event: Event) -> None:
    """Note a write whose dependencies have been waited for."""
    with _lock:
        tensor.pending_write, tensor.pending_reads = event, None
        tensor.writes += 1


def keep_alive(event: Event, needed: Iterable[object]) -> None:
    """Hold `needed` until `event` is done."""
    for earlier in [*_in_flight.values()]:
        if earlier[0].done:
            _in_flight.pop(id(earlier), None)
    if not event.done:
        entry = event, tuple(needed)
        _in_flight[id(entry)] = entry
