"""Running kernels, copies and fills on the queues of one device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from tile_hal.errors import Code, device_error
from tile_hal.interfaces import BatchStep, Buffer, Event, Executor, Kernel, Library, LoopStep, Part, Turning
from tile_ir.semtree.nodes import Access

from hal_opencl import binding
from hal_opencl.batch import OpenCLBatch, places_of
from hal_opencl.commands import Memory, Waits, copy, fill
from hal_opencl.compiler import OpenCLLibrary
from hal_opencl.context import DeviceContext
from hal_opencl.endings import owner
from hal_opencl.events import failure
from hal_opencl.memory import DeviceBuffer, DeviceMemory, overlapping


@owner
class _Launcher:
    """A kernel object and the serial numbers of the buffers that are its arguments now."""

    __slots__ = ("queue", "raw", "set")

    def __init__(self, raw: binding.RawKernel, count: int) -> None:
        self.raw = raw
        self.set = [0] * count
        self.queue: binding.RawQueue = None
        """That whose count of groups is its last argument."""


@owner
class OpenCLKernel(Kernel):
    """One kernel of a library; safe to run from several threads at once."""

    def __init__(self, context: DeviceContext, library: OpenCLLibrary, index: int) -> None:
        self.info = library.kernels.kernels[index]
        assert self.info.function is not None
        self._program = library.program(index)
        self._entry = library.sources[index].entry
        self._context = context
        self._lanes = context.lanes
        function = self.info.function
        self._needs = tuple(
            (p.elements * p.type.dtype.bytes, p.access is not Access.READ, max(p.align, p.type.dtype.bytes))
            for p in function.params
        )
        """For each parameter: its bytes, whether it is written, its alignment."""
        self._count = len(self._needs)
        self._local = function.group_size
        x, y, z = (g * s for g, s in zip(self.info.groups, function.group_size, strict=True))
        self._global = (x, y, z)
        self._empty = 0 in self._global
        self._free: list[_Launcher] = [self._new()]
        self._arrives = binding.parameters(self._free[0].raw) > self._count
        """It asks which group is the last."""

    def _new(self) -> _Launcher:
        return _Launcher(binding.kernel_of(self._program, self._entry), self._count)

    def run(self, params: Sequence[Buffer], dependencies: Sequence[Event] = (), *, profile: bool = False) -> Event:
        if len(params) != self._count:
            self._reject(params)
        context = self._context
        for buffer, (needed, written, align) in zip(params, self._needs, strict=True):
            if (
                not isinstance(buffer, DeviceBuffer)
                or buffer.context is not context
                or buffer.nbytes < needed
                or (written and buffer.readonly)
                or buffer.alignment % align
            ):
                self._reject(params)
        buffers: Sequence[DeviceBuffer] = params  # type: ignore[assignment]
        return self._lanes.submit(self.enqueue, buffers, dependencies, profile)

    def enqueue(self, queue: binding.RawQueue, buffers: Sequence[Memory], waits: Waits) -> binding.RawEvent:
        """The command that runs the kernel on buffers that fit."""
        if self._empty:
            return binding.marker(queue, waits)
        launcher = self._launcher(queue, buffers)
        event = binding.enqueue_kernel(queue, launcher.raw, self._global, self._local, None, waits)
        self._free.append(launcher)
        return event

    def enqueue_unseen(self, queue: binding.RawQueue, buffers: Sequence[Memory], _: Waits) -> None:
        """The same without an event, behind what the queue has already."""
        if not self._empty:
            launcher = self._launcher(queue, buffers)
            binding.enqueue_unseen(queue, launcher.raw, self._global, self._local)
            self._free.append(launcher)

    def _launcher(self, queue: binding.RawQueue, buffers: Sequence[Memory]) -> _Launcher:
        """A kernel object that nobody else has now, with these arguments."""
        try:
            launcher = self._free.pop()
        except IndexError:  # all in the hands of other threads
            launcher = self._new()
        now, raw = launcher.set, launcher.raw
        for place, buffer in enumerate(buffers):
            if now[place] != buffer.serial:
                raw.set_arg(place, buffer.raw)
                now[place] = buffer.serial
        if self._arrives and launcher.queue is not queue:
            raw.set_arg(self._count, self._context.arrivals(queue))
            launcher.queue = queue
        return launcher

    def _reject(self, params: Sequence[Buffer]) -> NoReturn:
        """TileDeviceError for the first parameter that does not fit."""
        name = self.info.name
        if len(params) != self._count:
            raise device_error(Code.PARAMETERS, f"kernel {name!r} takes {self._count} buffers, not {len(params)}")
        for number, (buffer, (needed, written, align)) in enumerate(zip(params, self._needs, strict=True)):
            problem = self._misfit(buffer, needed, written, align)
            if problem:
                raise device_error(problem[0], f"parameter {number} of kernel {name!r} {problem[1]}")
        raise AssertionError("the parameters fit after all")

    def _misfit(self, buffer: Buffer, needed: int, written: bool, align: int) -> tuple[Code, str] | None:
        if not isinstance(buffer, DeviceBuffer) or buffer.context is not self._context:
            return Code.PARAMETERS, f"is a {type(buffer).__name__} that is not of this device"
        if buffer.nbytes < needed:
            return Code.SIZE_MISMATCH, f"needs {needed} bytes, the buffer has {buffer.nbytes}"
        if written and buffer.readonly:
            return Code.READ_ONLY, "is written, but the buffer wraps read-only memory"
        if buffer.alignment % align:
            return Code.PARAMETERS, f"needs an address that is a multiple of {align}"
        return None


class OpenCLExecutor(Executor):
    """Runs kernels and copies on one device."""

    def __init__(self, context: DeviceContext, memory: DeviceMemory) -> None:
        self._context = context
        self._memory = memory

    def finish(self) -> None:
        try:
            self._context.lanes.finish()
        except binding.cl_error as problem:
            raise failure(problem) from problem

    def prepare(self, library: Library, index: int) -> OpenCLKernel:
        """Waits for the kernel's build; its errors are raised here."""
        if not isinstance(library, OpenCLLibrary) or library.context is not self._context:
            raise device_error(
                Code.PARAMETERS, f"a {type(library).__name__} was not built for {self._context.info.name}"
            )
        count = len(library.kernels.kernels)
        if not 0 <= index < count:
            raise device_error(Code.PARAMETERS, f"the library has {count} kernels, none is number {index}")
        return OpenCLKernel(self._context, library, index)

    def copy(self, src: Buffer, dst: Buffer, dependencies: Sequence[Event] = ()) -> Event:
        """Ranges of one allocation may overlap."""
        if src.nbytes != dst.nbytes:
            raise device_error(
                Code.SIZE_MISMATCH, f"a copy needs buffers of one size, not {src.nbytes} and {dst.nbytes} bytes"
            )
        source, target = self._own(src), self._writable(dst)
        if overlapping(source, target) and source.offset != target.offset:
            between = self._memory.allocate(src.nbytes)
            return self.copy(between, dst, [self.copy(src, between, dependencies)])
        return self._context.lanes.submit(copy, (source, target), dependencies)

    def fill(self, dst: Buffer, dependencies: Sequence[Event] = ()) -> Event:
        return self._context.lanes.submit(fill, (self._writable(dst),), dependencies)

    def flush(self) -> None:
        self._context.lanes.flush()

    def batch(self, steps: Sequence[BatchStep | LoopStep], count: int, arenas: Sequence[int]) -> OpenCLBatch | None:
        """None where a temporary is no possible view of its arena, or a row of its buffer."""
        if not steps or not all(self._fits(place) for place in places_of(steps)):
            return None
        return OpenCLBatch(self._context.lanes, self._memory, steps, count, arenas)

    def _fits(self, place: Buffer | int | Part | Turning) -> bool:
        align = self._context.alignment
        match place:
            case Part(_, offset, nbytes):
                return offset % align == 0 and nbytes > 0
            case Turning():
                return place.start % align == 0 and place.stride % align == 0 and place.nbytes > 0
            case _:
                return True

    def _own(self, buffer: Buffer) -> DeviceBuffer:
        if isinstance(buffer, DeviceBuffer) and buffer.context is self._context:
            return buffer
        raise device_error(
            Code.PARAMETERS,
            f"this device works on buffers of its own, not on this {type(buffer).__name__}",
            "allocate the buffer with this device's memory",
        )

    def _writable(self, buffer: Buffer) -> DeviceBuffer:
        own = self._own(buffer)
        if own.readonly:
            raise device_error(Code.READ_ONLY, "the destination wraps read-only memory")
        return own
