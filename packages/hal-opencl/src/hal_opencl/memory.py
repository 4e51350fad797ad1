"""Device memory, and host memory used in place where the device shares it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeGuard

import numpy as np
import numpy.typing as npt
from tile_hal.errors import Code, check_range, device_error
from tile_hal.events import COMPLETED
from tile_hal.interfaces import Buffer, Event, Memory, MemoryUsage

from hal_opencl import binding
from hal_opencl.context import DeviceContext
from hal_opencl.endings import owner
from hal_opencl.events import DeviceEvent, Uses, failure
from hal_opencl.pool import VIEWS, Block, View, next_serial
from hal_opencl.staging import STAGED, Staging


@owner
class DeviceBuffer(Buffer):
    """The first bytes of a block of memory, or a view of them."""

    readonly: bool = False
    plain: bool = True
    """It may be written, and starts where all buffers do."""
    root: DeviceBuffer | None = None
    """What this is a view of."""
    offset: int = 0
    """Where it starts in that."""
    before: Uses | None = None
    _maps: Sequence[npt.NDArray[np.uint8]] = ()
    _shown: int = 0
    """Mappings that are no commands."""

    def __init__(
        self, context: DeviceContext, block: Block, nbytes: int, release: Callable[[Block], None] | None = None
    ) -> None:
        """`release` gets the block when the buffer is gone."""
        self.context = context
        self.block = block
        self.raw = block.raw
        """The OpenCL memory object."""
        self.serial = block.serial
        """Of the memory object: never used again, so that arguments may be compared by it."""
        self.nbytes = nbytes
        self.alignment = context.alignment
        self.host = block.host
        """Host memory that the buffer uses in place, and maybe more behind it."""
        self.uses = block.uses
        self._release = release

    def part(self, start: int, nbytes: int) -> View:
        """Some of the buffer's bytes; `start` is a multiple of the device's alignment."""
        block, start = self.block, self.offset + start
        found = block.views.get((start, nbytes))
        if found is None:
            if len(block.views) >= VIEWS:
                block.views.clear()
            raw = binding.sub_buffer(block.raw, start, nbytes)
            found = block.views[start, nbytes] = View(raw, next_serial(), nbytes)
        return found

    def __del__(self) -> None:
        if self._release is not None:
            self.block.lost = bool(self._maps or self._shown)
            self._release(self.block)

    def map_current(self, dependencies: Sequence[Event] = ()) -> memoryview:
        return self._map(False, dependencies)

    def map_discard(self) -> memoryview:
        if self.readonly:
            raise device_error(
                Code.READ_ONLY, "this buffer wraps read-only memory and cannot be written", "copy the data first"
            )
        return self._map(True)

    def _map(self, discard: bool, dependencies: Sequence[Event] = ()) -> memoryview:
        waits = self.awaited(dependencies)
        if self.nbytes == 0 or (self.host is not None and self.context.maps_for_free):
            for event in waits:
                event.wait()
            self._shown += 1
            return memoryview(bytearray()) if self.host is None else self.host.data[: self.nbytes]
        lane = self.context.lanes.transfer()
        try:
            # The mapping waits for the events by itself: one wake-up of this thread instead of several.
            raws = [event.raw for event in waits]
            with self.context.guard:
                array = binding.map_buffer(lane.raw, self.raw, self.nbytes, discard, self.readonly, raws)
        except binding.cl_error as problem:
            for event in waits:
                event.wait()
            raise failure(problem) from problem
        self._maps = (*self._maps, array)
        if self.readonly:
            array.flags.writeable = False
        return array.data

    def awaited(self, dependencies: Sequence[Event]) -> Sequence[DeviceEvent]:
        """What a look at the contents waits for: the dependencies, and whoever had the memory before."""
        earlier = [event for event in self.before.values() if not event.over] if self.before else ()
        return self.context.lanes.pending((*dependencies, *earlier)) if dependencies or earlier else ()

    def unmap(self) -> Event:
        if not self._maps:
            self._shown = max(0, self._shown - 1)
            return COMPLETED
        array = self._maps[-1]
        event = self.context.lanes.unmapped(self, lambda queue: binding.unmap(queue, array))
        self._maps = self._maps[:-1]  # not before: where the mapping cannot end, it is still held
        return event


class DeviceMemory(Memory):
    """Allocator of one device."""

    def __init__(self, context: DeviceContext) -> None:
        self.context = context
        self._pool = context.pool
        self._most = context.info.max_allocation
        self._staging = Staging(context)

    @property
    def size_goal(self) -> int:
        """85 % of the device's memory."""
        return int(self.context.info.global_bytes * 0.85)

    @property
    def usage(self) -> MemoryUsage:
        used = self._pool.used
        return MemoryUsage(used, self._pool.held, self._pool.made, max(used, self._pool.peak))

    def trim(self) -> None:
        self._pool.trim()

    def allocate(self, nbytes: int) -> DeviceBuffer:
        if not 0 <= nbytes <= self._most:
            name = self.context.info.name
            raise device_error(
                Code.MEMORY, f"cannot allocate {nbytes} bytes: buffers of {name} have at most {self._most} bytes"
            )
        block = self._pool.take(nbytes)
        buffer = DeviceBuffer(self.context, block, nbytes, self._pool.give)
        if block.uses:
            left = {lane: e for lane, e in block.uses.items() if e.number > lane.finished and not e.over}
            buffer.before = left or None
            # They stay among its uses, in case that it is given up again before anything used it.
            buffer.uses = block.uses = left.copy()
        return buffer

    def read(self, buffer: Buffer, into: memoryview, dependencies: Sequence[Event] = ()) -> None:
        if not self._stages(buffer):
            super().read(buffer, into, dependencies)
            return
        for event in buffer.awaited(dependencies):
            event.wait()
        self._staging.read(buffer.raw, np.frombuffer(into, np.uint8))

    def prepare(self, into: memoryview) -> None:
        if into.nbytes >= STAGED and not self.context.shares_host_memory:
            self._staging.prepare(np.frombuffer(into, np.uint8))

    def write(self, buffer: Buffer, data: memoryview) -> Event:
        if not self._stages(buffer) or buffer.readonly:
            return super().write(buffer, data)
        for event in buffer.awaited(()):
            event.wait()
        self._staging.write(buffer.raw, np.frombuffer(data, np.uint8))
        return COMPLETED

    def _stages(self, buffer: Buffer) -> TypeGuard[DeviceBuffer]:
        """Its copies go through pinned memory: they are large, and the device has memory of its own."""
        return isinstance(buffer, DeviceBuffer) and buffer.nbytes >= STAGED and not self.context.shares_host_memory

    def wrap(self, view: memoryview) -> DeviceBuffer | None:
        """A buffer over `view`'s own bytes where the device works in host memory; None elsewhere."""
        if not self.context.shares_host_memory or not view.c_contiguous or view.nbytes == 0:
            return None
        array = np.frombuffer(view, np.uint8)
        address: int = array.__array_interface__["data"][0]
        if address % max(self.context.wrap_alignment, view.itemsize):
            return None
        try:
            block = Block(binding.wrap_array(self.context.raw, array), view.nbytes, array)
        except binding.cl_error:
            return None
        buffer = DeviceBuffer(self.context, block, view.nbytes, self.context.drop)
        buffer.readonly = not array.flags.writeable
        buffer.alignment = address & -address
        buffer.plain = False
        return buffer

    def view(self, buffer: Buffer, offset: int, nbytes: int) -> DeviceBuffer | None:
        """None where the device wants another alignment, and for views of nothing."""
        if not isinstance(buffer, DeviceBuffer):
            return None
        check_range(offset, nbytes, buffer.nbytes)
        start, root = buffer.offset + offset, buffer.root or buffer
        if nbytes == 0 or start % self.context.info.alignment:
            return None
        try:
            part = root.part(start, nbytes)
        except binding.cl_error:
            return None
        view = DeviceBuffer(self.context, root.block, nbytes)
        view.raw, view.serial = part.raw, part.serial
        view.root, view.offset, view.readonly, view.plain = root, start, root.readonly, root.plain
        view.before, view.uses = root.before, root.uses
        view.host = None if root.host is None else root.host[start : start + nbytes]
        return view


def overlapping(a: DeviceBuffer, b: DeviceBuffer) -> bool:
    """Two buffers share bytes of one allocation."""
    return a.block is b.block and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes
