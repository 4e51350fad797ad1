"""Memory that a process and its worker both see.

It has no name: the system gives it back when the last process that has it ends, however that comes about. A forked child gets
memory of its own with the same contents at the same addresses, as of all other memory.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import os
import tempfile
import weakref
from collections import deque
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import numpy.typing as npt
from tile_ir import forking

from tile_hal.errors import Code, device_error
from tile_hal.host import ALIGNMENT
from tile_hal.interfaces import MemoryUsage

Bytes = npt.NDArray[np.uint8]

SEGMENT = 1 << 26
"""Least bytes of a segment; the system provides the pages that are touched."""
PAGE = mmap.PAGESIZE
_MAP_FIXED = 0x10
"""Of `mmap` in Linux and macOS; Python does not name it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Some bytes of a segment."""

    segment: int
    offset: int
    nbytes: int


def anonymous_file(nbytes: int) -> int:
    """The descriptor of a file in memory that has no name; MemoryError when there is no room."""
    try:
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("tile")
        else:
            with tempfile.TemporaryFile() as file:
                fd = os.dup(file.fileno())
        os.ftruncate(fd, nbytes)
    except OSError as problem:
        raise MemoryError(str(problem)) from problem
    return fd


class Segment:
    """A mapped file in memory, and which of its bytes are free."""

    def __init__(self, number: int, nbytes: int) -> None:
        """MemoryError when there is no room."""
        self.number = number
        self.nbytes = nbytes
        self.fd = anonymous_file(nbytes)
        try:
            self.view = memoryview(mmap.mmap(self.fd, nbytes))
        except (OSError, ValueError, OverflowError) as problem:
            os.close(self.fd)
            raise MemoryError(str(problem)) from problem
        self.address = np.frombuffer(self.view, np.uint8).__array_interface__["data"][0]
        self._holes = [(0, nbytes)]
        """(start, bytes) of what is free, in order; no two touch."""

    @property
    def free(self) -> bool:
        return self._holes == [(0, self.nbytes)]

    @property
    def room(self) -> int:
        """Bytes that are free."""
        return sum(size for _, size in self._holes)

    def take(self, nbytes: int, alignment: int) -> int | None:
        """The start of so many bytes that are free no longer."""
        for number, (start, size) in enumerate(self._holes):
            begin = -(-start // alignment) * alignment
            rest = start + size - begin - nbytes
            if rest >= 0:
                self._holes[number : number + 1] = [
                    hole for hole in ((start, begin - start), (begin + nbytes, rest)) if hole[1]
                ]
                return begin
        return None

    def give(self, start: int, nbytes: int) -> None:
        """Free what was taken."""
        after = bisect.bisect(self._holes, (start, 0))
        end, first = start + nbytes, after
        if after < len(self._holes) and self._holes[after][0] == end:
            end += self._holes[after][1]
            after += 1
        if first and sum(self._holes[first - 1]) == start:
            first -= 1
            start = self._holes[first][0]
        self._holes[first:after] = [(start, end - start)]

    def close(self) -> None:
        """Give up the file; the mapping stays as long as anything refers to its bytes."""
        os.close(self.fd)

    def renew(self) -> None:
        """In a forked child: go on with a copy, at the same address."""
        fd = anonymous_file(self.nbytes)
        for start, stop in self._used():
            _write(fd, self.view[start:stop], start)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        mode = mmap.PROT_READ | mmap.PROT_WRITE
        if libc.mmap(self.address, self.nbytes, mode, mmap.MAP_SHARED | _MAP_FIXED, fd, 0) != self.address:
            raise OSError(
                ctypes.get_errno(), "memory that is shared with a worker cannot be copied for a forked process"
            )
        os.close(self.fd)
        self.fd = fd

    def _used(self) -> list[tuple[int, int]]:
        """(start, stop) of what is not free."""
        edges = [0, *(edge for start, size in self._holes for edge in (start, start + size)), self.nbytes]
        return [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]


def _write(fd: int, data: memoryview, start: int) -> None:
    while data:
        done = os.pwrite(fd, data, start)
        data, start = data[done:], start + done


_numbers = count(1)
"""Of the segments of this process."""


@dataclass(slots=True)
class _Gone:
    """What was given up and waits to be counted."""

    places: deque[Place] = field(default_factory=deque[Place])


class Arena:
    """Shared memory in pieces; from any thread. A piece is free again when the last array over it is gone."""

    def __init__(self, alignment: int = ALIGNMENT) -> None:
        self.alignment = max(alignment, ALIGNMENT)
        self.segments: dict[int, Segment] = {}
        self.forgotten = deque[Place]()
        """Places that were given up, for whoever tells the worker; places of a segment that is gone too."""
        self._gone = _Gone()
        self._made = 0
        """Segments so far."""
        self._lock = forking.rlock()
        _arenas.add(self)

    def allocate(self, nbytes: int) -> tuple[Bytes, Place]:
        """So many bytes of any content; TileDeviceError when memory is out."""
        # Whole pages from a page on: some drivers use nothing else in place.
        alignment = max(self.alignment, PAGE) if nbytes >= PAGE else self.alignment
        size = -(-max(nbytes, 1) // alignment) * alignment
        segment, start = self._taken(size, alignment)
        place = Place(segment.number, start, nbytes)
        # An array over a memoryview is what arrays over it refer to: it is gone when all of them are.
        shown = np.frombuffer(segment.view[start : start + nbytes], np.uint8)
        weakref.finalize(shown, self._gone.places.append, Place(segment.number, start, size)).atexit = False
        return shown, place

    @property
    def usage(self) -> MemoryUsage:
        """Bytes of the pieces, and of the segments."""
        interrupts = forking.mine(self._lock)
        with self._lock:
            if not interrupts:
                self._collect()
            held = sum(s.nbytes for s in list(self.segments.values()))
            return MemoryUsage(held - sum(s.room for s in list(self.segments.values())), held, self._made)

    def place_of(self, address: int, nbytes: int) -> Place | None:
        """Where these bytes are in a segment; None when they are other memory."""
        for segment in list(self.segments.values()):
            offset = address - segment.address
            if 0 <= offset <= segment.nbytes - nbytes:
                return Place(segment.number, offset, nbytes)
        return None

    def _taken(self, size: int, alignment: int) -> tuple[Segment, int]:
        """A segment, and the start of so many bytes of it that are free no longer; a signal's handler that interrupts this adds one."""
        interrupts = forking.mine(self._lock)
        with self._lock:
            if interrupts:
                return self._added(size, alignment)
            self._collect()
            return self._room(size, alignment) or self._added(size, alignment)

    def _room(self, size: int, alignment: int) -> tuple[Segment, int] | None:
        for segment in list(self.segments.values()):
            start = segment.take(size, alignment)
            if start is not None:
                return segment, start
        return None

    def _added(self, size: int, alignment: int) -> tuple[Segment, int]:
        try:
            made = Segment(next(_numbers), max(SEGMENT, -(-size // PAGE) * PAGE))
        except MemoryError as problem:
            raise device_error(
                Code.MEMORY, f"shared memory is out: {size} bytes were asked for ({problem})"
            ) from problem
        start = made.take(size, alignment)
        assert start is not None
        self.segments[made.number] = made  # not before: nobody else takes of it meanwhile
        self._made += 1
        return made, start

    def _collect(self) -> None:
        """Count what was given up; of the segments that nobody uses one is kept."""
        while self._gone.places:
            place = self._gone.places.popleft()
            self.segments[place.segment].give(place.offset, place.nbytes)
            self.forgotten.append(place)
        idle = [s for s in list(self.segments.values()) if s.free]
        for segment in sorted(idle, key=lambda s: s.nbytes)[1:]:
            del self.segments[segment.number]
            segment.close()

    def renew(self) -> None:
        """In a forked child."""
        for segment in self.segments.values():
            segment.renew()


_arenas: weakref.WeakSet[Arena] = weakref.WeakSet()


def _after_fork() -> None:
    for arena in list(_arenas):
        arena.renew()


forking.at_fork(in_child=_after_fork)
