"""Buffers and memory of backends whose kernels read and write host memory."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_ir import forking

from tile_hal.errors import Code, check_range, device_error
from tile_hal.events import COMPLETED
from tile_hal.interfaces import Buffer, Event, Memory, MemoryUsage
from tile_hal.recycling import ALIGNMENT, LARGE, Recycler

KEPT_SHARE, MOST_KEPT = 1 / 32, 1 << 30
"""What may wait for its next use: a share of the memory that there is for us, and bytes."""
FEW_KEPT = 1 << 26
"""Bytes that may wait although they were never in use beside what is: results of functions that are called in turn."""
MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux says what a container may use."""

_first_byte = ctypes.c_char.from_buffer


def _address(array: npt.NDArray[np.uint8], view: memoryview) -> int:
    """Where the bytes start; ctypes tells it five times as fast as NumPy, but only of writable memory."""
    if view.readonly or not view.nbytes:
        return array.__array_interface__["data"][0]
    return ctypes.addressof(_first_byte(view))


class HostBuffer(Buffer):
    """Bytes in host memory at `address`; mapping it costs nothing.

    `array` is a uint8 view of the bytes and keeps their owner alive. A buffer over read-only memory has
    `readonly` set: mapping it gives a read-only view, and `map_discard` raises.
    """

    __slots__ = ("address", "array", "nbytes", "readonly", "view")

    def __init__(self, array: npt.NDArray[np.uint8], address: int | None = None) -> None:
        self.array = array
        self.view: memoryview = array.data
        self.nbytes = self.view.nbytes
        self.readonly = self.view.readonly
        self.address: int = _address(array, self.view) if address is None else address

    def map_current(self, dependencies: Sequence[Event] = ()) -> memoryview:
        for event in dependencies:
            event.wait()
        return self.view

    def map_discard(self) -> memoryview:
        if self.readonly:
            raise device_error(
                Code.READ_ONLY, "this buffer wraps read-only memory and cannot be written", "copy the data first"
            )
        return self.view

    def unmap(self) -> Event:
        return COMPLETED

    def as_array(self, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """The bytes as a 1-D array of `dtype`, without a copy; trailing bytes short of an element are left out."""
        kind = np.dtype(dtype)
        whole = self.nbytes // kind.itemsize * kind.itemsize
        return self.array[:whole].view(kind)


@cache
def _recycler() -> Recycler:
    """What all devices in host memory give up."""
    return Recycler(min(int(_memory() * KEPT_SHARE), MOST_KEPT), FEW_KEPT)


# Another thread may have been in the middle of counting.
forking.at_fork(in_child=_recycler.cache_clear)


def _memory() -> int:
    """Bytes that this process may use: the machine's, or 5 GB where it does not say, and no more than its container's."""
    try:
        found = int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        found = 5 << 30
    return min(found, *map(_limit, MEMORY_LIMITS))


def _limit(path: str) -> int:
    """The number in a file; no limit where there is none."""
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return sys.maxsize


class HostMemory(Memory):
    """Allocator over the process's own memory."""

    @property
    def size_goal(self) -> int:
        """85 % of the memory that there is for us."""
        return int(_memory() * 0.85)

    def allocate(self, nbytes: int) -> HostBuffer:
        if nbytes < 0:
            raise device_error(Code.MEMORY, f"cannot allocate {nbytes} bytes")
        try:
            if nbytes >= LARGE:
                return HostBuffer(_recycler().array((nbytes,), np.uint8, nbytes))
            raw = np.empty(nbytes + ALIGNMENT, np.uint8)
        except (MemoryError, ValueError, OverflowError) as problem:
            raise device_error(Code.MEMORY, f"host memory is out: {nbytes} bytes were asked for") from problem
        base = _address(raw, raw.data)
        start = -base % ALIGNMENT
        # NumPy does not tell the address of an empty array, so it is passed on.
        return HostBuffer(raw[start : start + nbytes], base + start)

    @property
    def usage(self) -> MemoryUsage:
        """Of arrays and buffers from 256 KiB on, those of all devices in host memory together."""
        recycler = _recycler()
        used, peak = recycler.used
        return MemoryUsage(used, used + recycler.kept, recycler.made, peak)

    def trim(self) -> None:
        _recycler().clear()

    def array(self, shape: tuple[int, ...], dtype: npt.DTypeLike, nbytes: int) -> npt.NDArray[Any]:
        """An array of `nbytes` bytes of any content; a large one in memory that others gave up where there is some: its pages are there."""
        try:
            if nbytes < LARGE:
                return np.empty(shape, dtype)
            return _recycler().array(shape, dtype, nbytes)
        except (MemoryError, ValueError, OverflowError) as problem:
            raise device_error(Code.MEMORY, f"host memory is out: {nbytes} bytes were asked for") from problem

    def wrap(self, view: memoryview) -> HostBuffer | None:
        """A buffer over `view`'s own bytes; None when they are not C-contiguous or not aligned to their element."""
        if not view.c_contiguous:
            return None
        if view.nbytes == 0:
            return HostBuffer(np.empty(0, np.uint8))
        buffer = HostBuffer(np.frombuffer(view, np.uint8))
        return None if buffer.address % min(view.itemsize, ALIGNMENT) else buffer

    def view(self, buffer: Buffer, offset: int, nbytes: int) -> HostBuffer | None:
        if not isinstance(buffer, HostBuffer):
            return None
        check_range(offset, nbytes, buffer.nbytes)
        return HostBuffer(buffer.array[offset : offset + nbytes], buffer.address + offset)
