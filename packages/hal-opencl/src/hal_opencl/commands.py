"""What can be put on a queue: each takes the queue, the memory it works on, and the events it waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from hal_opencl import binding


class Memory(Protocol):
    """A buffer, or a part of one."""

    @property
    def raw(self) -> binding.RawBuffer: ...
    @property
    def serial(self) -> int: ...
    @property
    def nbytes(self) -> int: ...


Waits = Sequence[binding.RawEvent] | None
Command = Callable[[binding.RawQueue, Sequence[Memory], Waits], binding.RawEvent]


def copy(queue: binding.RawQueue, memory: Sequence[Memory], waits: Waits) -> binding.RawEvent:
    """Copies the first to the second, which is as large and overlaps it nowhere, or is the same."""
    source, target = memory
    if source.raw is target.raw or not target.nbytes:
        return binding.marker(queue, waits)
    return binding.copy(queue, source.raw, target.raw, target.nbytes, waits)


def fill(queue: binding.RawQueue, memory: Sequence[Memory], waits: Waits) -> binding.RawEvent:
    """Sets every byte to zero."""
    (target,) = memory
    if not target.nbytes:
        return binding.marker(queue, waits)
    return binding.fill(queue, target.raw, target.nbytes, waits)
