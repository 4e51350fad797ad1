"""Device memory, and host memory used in place where the device shares it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from tile_hal.errors import Code, device_error
from tile_hal.events import COMPLETED
from tile_hal.interfaces import Buffer, Event, Memory

from hal_opencl import binding
from hal_opencl.context import DeviceContext
from hal_opencl.events import DeviceEvent, failure

_serials = itertools.count(1)
_PADDING = 16
"""Allocations are rounded up to this: no empty OpenCL buffers, and atomics of bytes stay inside."""


class DeviceBuffer(Buffer):
    """Bytes in an OpenCL memory object (`raw`); `serial` is never used again, so arguments may be compared by it."""

    __slots__ = ("_context", "_maps", "alignment", "host", "nbytes", "offset", "raw", "readonly", "root", "serial")

    def __init__(self, context: DeviceContext, raw: binding.RawBuffer, nbytes: int) -> None:
        self._context = context
        self.raw = raw
        self.nbytes = nbytes
        self.serial = next(_serials)
        self.readonly = False
        self.alignment = context.info.alignment
        self.root: DeviceBuffer = self
        self.offset = 0
        self.host: npt.NDArray[np.uint8] | None = None
        """The host memory that the buffer uses in place."""
        self._maps: list[npt.NDArray[np.uint8]] = []

    @property
    def context(self) -> DeviceContext:
        return self._context

    def map_current(self, dependencies: Sequence[Event] = ()) -> memoryview:
        return self._map(False, self._context.lanes.pending(dependencies) if dependencies else ())

    def map_discard(self) -> memoryview:
        if self.readonly:
            raise device_error(
                Code.READ_ONLY, "this buffer wraps read-only memory and cannot be written", "copy the data first"
            )
        return self._map(True)

    def _map(self, discard: bool, waits: Sequence[DeviceEvent] = ()) -> memoryview:
        if self.nbytes == 0 or (self.host is not None and self._context.maps_for_free):
            for event in waits:
                event.wait()
            return memoryview(bytearray()) if self.host is None else self.host.data
        lane = self._context.lanes.transfer()
        try:
            # The mapping waits for the events by itself: one wake-up of this thread instead of several.
            raws = [event.raw for event in waits]
            with self._context.guard:
                array = binding.map_buffer(lane.raw, self.raw, self.nbytes, discard, self.readonly, raws)
        except binding.cl_error as problem:
            for event in waits:
                event.wait()
            raise failure(problem) from problem
        self._maps.append(array)
        if self.readonly:
            array.flags.writeable = False
        return array.data

    def unmap(self) -> Event:
        if not self._maps:
            return COMPLETED
        lane = self._context.lanes.transfer()
        with self._context.guard:
            return self._context.lanes.started(binding.unmap(lane.raw, self._maps.pop()), lane)


class DeviceMemory(Memory):
    """Allocator of one device."""

    def __init__(self, context: DeviceContext) -> None:
        self._context = context

    @property
    def size_goal(self) -> int:
        """85 % of the device's memory."""
        return int(self._context.info.global_bytes * 0.85)

    def allocate(self, nbytes: int) -> DeviceBuffer:
        info = self._context.info
        if not 0 <= nbytes <= info.max_allocation:
            raise device_error(
                Code.MEMORY,
                f"cannot allocate {nbytes} bytes: buffers of {info.name} have at most {info.max_allocation} bytes",
            )
        size = max(_PADDING, -(-nbytes // _PADDING) * _PADDING)
        if self._context.maps_for_free:
            return self._over_host_memory(size, nbytes)
        try:
            with self._context.guard:
                raw = binding.make_buffer(self._context.raw, min(size, info.max_allocation))
        except binding.cl_error as problem:
            raise device_error(Code.MEMORY, f"{info.name} has no {nbytes} bytes left: {problem}") from problem
        return DeviceBuffer(self._context, raw, nbytes)

    def _over_host_memory(self, size: int, nbytes: int) -> DeviceBuffer:
        alignment = self._context.info.alignment
        try:
            block = np.empty(size + alignment, np.uint8)
            start = -int(block.__array_interface__["data"][0]) % alignment
            raw = binding.wrap_array(self._context.raw, block[start : start + size])
        except (MemoryError, binding.cl_error) as problem:
            raise device_error(Code.MEMORY, f"host memory is out: {nbytes} bytes were asked for") from problem
        buffer = DeviceBuffer(self._context, raw, nbytes)
        buffer.host = block[start : start + nbytes]
        return buffer

    def wrap(self, view: memoryview) -> DeviceBuffer | None:
        """A buffer over `view`'s own bytes where the device works in host memory; None elsewhere."""
        if not self._context.shares_host_memory or not view.c_contiguous or view.nbytes == 0:
            return None
        array = np.frombuffer(view, np.uint8)
        address: int = array.__array_interface__["data"][0]
        if address % max(self._context.wrap_alignment, view.itemsize):
            return None
        try:
            raw = binding.wrap_array(self._context.raw, array)
        except binding.cl_error:
            return None
        buffer = DeviceBuffer(self._context, raw, view.nbytes)
        buffer.readonly = not array.flags.writeable
        buffer.alignment = address & -address
        buffer.host = array
        return buffer

    def view(self, buffer: Buffer, offset: int, nbytes: int) -> DeviceBuffer | None:
        """None where the device wants another alignment, and for views of nothing."""
        if not isinstance(buffer, DeviceBuffer):
            return None
        if offset < 0 or nbytes < 0 or offset + nbytes > buffer.nbytes:
            raise device_error(
                Code.SIZE_MISMATCH, f"bytes {offset}..{offset + nbytes} lie outside a buffer of {buffer.nbytes} bytes"
            )
        start = buffer.offset + offset
        if nbytes == 0 or start % self._context.info.alignment:
            return None
        try:
            raw = binding.sub_buffer(buffer.root.raw, start, nbytes)
        except binding.cl_error:
            return None
        view = DeviceBuffer(self._context, raw, nbytes)
        view.root, view.offset, view.readonly = buffer.root, start, buffer.readonly
        view.host = None if buffer.host is None else buffer.host[offset : offset + nbytes]
        return view


def overlapping(a: DeviceBuffer, b: DeviceBuffer) -> bool:
    """Two buffers share bytes of one allocation."""
    return a.root is b.root and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes
