"""Tensors: values that stay on a device."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from tile_hal.events import FailedEvent
from tile_hal.host import HostBuffer, HostEvent, HostMemory
from tile_hal.interfaces import Buffer, Device, Event, Holder
from tile_hal.recycling import LARGE
from tile_ir.diagnostics import Diagnostic, TileDeviceError, TileError, TileTypeError
from tile_ir.dtype import DType, from_numpy

from tile_runtime import hazards
from tile_runtime.arrays import Array, dtype_of, numpy_dtype, raw_view, readable
from tile_runtime.devices import device as find_device
from tile_runtime.exchange import CPU, exported
from tile_runtime.operators import Operators
from tile_runtime.showing import table, text


class Tensor(Operators):
    """An n-dimensional array of a fixed dtype on one device, C order.

    Work on it is asynchronous; reading waits for what is pending. Pending reads and writes are tracked, so
    that calls may be issued without waiting, from any thread. While it is mapped it belongs to the mapping:
    do not pass it to a function inside the `with` block.
    """

    __slots__ = (
        "__weakref__",
        "_buffer",
        "device",
        "dtype",
        "expression",
        "host",
        "pending_reads",
        "pending_write",
        "shape",
        "writes",
    )

    def __init__(self, device: Device | str | None, shape: Sequence[int], dtype: npt.DTypeLike | DType) -> None:
        """Uninitialised memory for `shape` elements of `dtype` (a name, NumPy dtype or DType).

        TileTypeError for a bad shape or dtype, TileDeviceError for an unknown device or one whose memory is out.
        """
        self.device: Device = find_device(device)
        self.dtype: DType = dtype_of(dtype)
        numpy_dtype("the tensor", self.dtype)
        self.shape: tuple[int, ...] = checked_shape(shape)
        self._buffer: Buffer | None = self.device.memory.allocate(self.nbytes)
        self.host: Array | None = in_place(self._buffer, self.dtype, self.shape)
        """The contents themselves, where the device works on the host's own memory, else None; waits for nothing."""
        self.pending_write: Event | None = None
        """The last write, while it may be unfinished (`hazards` keeps these two)."""
        self.pending_reads: list[Event] | None = None
        self.writes = 0
        """How often it was written to: what was made of its contents is as old as the number it was made at."""

    @property
    def buffer(self) -> Buffer:
        """The device's buffer: the same until a call that updates the tensor, or is given it as donated, puts another in its place."""
        if self._buffer is None:
            wrapped = self._wrapped()  # not while `alone`: a device may wait for its work, which waits for that
            with hazards.alone():
                self._buffer = self._buffer or wrapped
        return self._buffer

    def _wrapped(self) -> Buffer:
        assert self.host is not None
        wrapped = self.device.memory.wrap(raw_view(self.host))
        assert wrapped is not None
        return wrapped

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.bytes

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        """What a notebook shows: a table of its numbers where it is one, their corners where they are many."""
        return table(self)

    def settle(self) -> None:
        """Compute it, where only its expression is known (`pending`)."""

    def wait(self) -> Tensor:
        """Block until its contents are final; raises the TileDeviceError of work that failed."""
        for event in hazards.before(self, write=False):
            event.wait()
        return self

    @property
    def done(self) -> bool:
        """True once `wait` would not block: its contents are final, or work on it has failed."""
        return all(event.done for event in hazards.before(self, write=False))

    def __await__(self) -> Generator[Any, None, Tensor]:
        """``await tensor`` lets other tasks run until its contents are final; the tensor."""
        if not self.done:
            from asyncio import to_thread

            yield from to_thread(self.wait).__await__()
        return self.wait()

    # --- host access ----------------------------------------------------------------------------------

    @contextmanager
    def mmap_current(self) -> Generator[Array]:
        """A host array of the current contents; waits for pending work.

        Changes reach the device on exit; the array is valid until then.
        """
        self.wait()
        with self._mapped(self.buffer.map_current) as view:
            yield view

    @contextmanager
    def mmap_discard(self) -> Generator[Array]:
        """A host array with undefined contents, to be written until exit; nothing is read back."""
        with self._mapped(self.buffer.map_discard) as view:
            yield view

    @contextmanager
    def _mapped(self, open_mapping: Callable[[], memoryview]) -> Generator[Array]:
        hazards.about_to_write((self,))
        for event in hazards.before(self, write=True):
            with suppress(TileError):  # what failed is overwritten, or was reported by `wait`
                event.wait()
        memory = open_mapping()
        try:
            yield host_view(memory, self.dtype, self.shape)
        finally:
            hazards.written(self, self.buffer.unmap())

    def numpy(self) -> Array:
        """A copy on the host; waits for pending work."""
        if self.host is not None:
            self.wait()
            return self.host.copy()
        fresh = host_array(self.dtype, self.shape)
        if fresh.nbytes >= LARGE and not self.done:
            self.device.memory.prepare(raw_view(fresh))
        self.read_into(fresh)
        return fresh

    def read_into(self, array: Array) -> None:
        """Copy the contents to an array of the same type in C order; waits for pending work, and holds up who writes."""
        self.wait()
        reading = HostEvent()
        with hazards.alone():
            waits = hazards.awaited((self,), ())
            buffer = self._buffer
            hazards.enter(reading, (self,), ())
        try:
            self.device.memory.read(buffer or self.buffer, raw_view(array), waits)
        finally:
            reading.set()

    def item(self) -> bool | int | float:
        """The number of a tensor of one element; ValueError for others."""
        if self.size != 1:
            raise ValueError(f"a tensor of shape {self.shape} has {self.size} elements, not one")
        return self.numpy().item()

    def tolist(self) -> Any:
        """The elements as Python numbers, in lists."""
        return self.numpy().tolist()

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise TypeError(f"a tensor of {self.dtype} is no index")
        return int(self.item())

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a Tensor cannot be viewed as a NumPy array without a copy; use mmap_current")
        host = self.numpy()
        return host if dtype is None else host.astype(dtype, copy=False)

    def __dlpack__(self, *, copy: bool | None = None, **options: Any) -> Any:
        """A DLPack capsule (of the CPU): of the contents themselves where the device works on the host's memory, else of a copy.

        Who writes to the contents does so behind Tile's back: not while work on the tensor is pending.
        BufferError when no copy may be made and one is needed.
        """
        options.pop("stream", None)
        host = self.host
        if host is not None and not copy:
            self.wait()
            # Memory that is read-only cannot be shared with those who do not ask for a version.
            with suppress(*(() if copy is False else (BufferError,))):
                return exported(host, **options)
        if copy is False:
            raise BufferError("a Tensor cannot be exported without a copy; use mmap_current")
        return exported(self.numpy(), **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Tensor lives on a device and cannot be pickled; pickle tensor.numpy() instead")

    def __copy__(self) -> Tensor:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return asarray(self.numpy(), self.device)


_new = object.__new__


def result(
    device: Device, dtype: DType, shape: tuple[int, ...], host: Array | None, buffer: Buffer | None = None
) -> Tensor:
    """A tensor in memory that a call has made: an array where the device works on the host's own memory, or a buffer.

    It is made in every call, so nothing is checked.
    """
    tensor = _new(Tensor)
    tensor.device, tensor.dtype, tensor.shape = device, dtype, shape
    tensor._buffer, tensor.host = buffer, host  # pyright: ignore[reportPrivateUsage]
    tensor.pending_write, tensor.pending_reads, tensor.writes = None, None, 0
    return tensor


def holder(device: Device, *, written: bool) -> Holder:
    """Tensors of a device that a call may read, or write, without waiting or telling anybody (see `hazards`)."""
    idle = ("pending_write", "pending_reads") if written else ("pending_write",)
    return Holder(Tensor, "host", (("device", device), *((name, None) for name in idle)))


def in_place(buffer: Buffer, dtype: DType, shape: tuple[int, ...]) -> Array | None:
    """The elements in a buffer of the host's memory; None for another device's."""
    return host_view(buffer.view, dtype, shape) if isinstance(buffer, HostBuffer) else None


def in_host_memory(device: Device) -> bool:
    """Whether a device works on the host's own memory, so that arrays serve it as well as Tensors."""
    return isinstance(device.memory, HostMemory)


def asarray(value: npt.ArrayLike | Tensor, device: Device | str | None = None) -> Tensor:
    """`value` as a Tensor on `device`: a copy, unless it is a Tensor there already.

    `device` None keeps a Tensor where it is and puts anything else on the default device.
    """
    target = value.device if device is None and isinstance(value, Tensor) else find_device(device)
    if isinstance(value, Tensor) and value.device is target:
        return value
    host = readable("value", value.numpy() if isinstance(value, Tensor) else value)
    tensor = Tensor(target, host.shape, from_numpy(host.dtype))
    if tensor.host is not None:
        tensor.host[...] = host
        return tensor
    hazards.written(tensor, tensor.device.memory.write(tensor.buffer, raw_view(host)))
    return tensor


def from_dlpack(value: Any, device: Device | str | None = None) -> Tensor:
    """A Tensor of anything with ``__dlpack__`` (PyTorch's, JAX's, NumPy's arrays), in its own memory where that can be.

    Sharing needs a device that works on the host's memory, and an array in C order and aligned; else it is copied.
    TileTypeError for memory that is not the host's, or a dtype that Tile has not. While it is shared, what changes
    the one changes the other: nobody writes while work on the other is pending.
    """
    return sharing(readable("value", value), find_device(device))


def sharing(array: Array, device: Device) -> Tensor:
    """A Tensor in an array's own memory, where the device works on that and may read it in place; else a copy.

    Whoever changes the array increments the Tensor's `writes`, so that what was made of it is made anew.
    """
    plain = readable("value", array)
    if plain is array and device.memory.wrap(raw_view(array)) is not None:
        tensor = result(device, from_numpy(array.dtype), array.shape, array)
        hazards.lent[id(tensor)] = tensor
        return tensor
    return asarray(array, device)


def copy(source: Tensor, target: Tensor) -> None:
    """Copy contents on the device after pending work on either; returns at once."""
    ticket, waits = hazards.claim((source,), (target,))
    try:
        event = source.device.executor.copy(source.buffer, target.buffer, waits)
    except BaseException as problem:
        ticket.started(FailedEvent(problem))
        raise
    ticket.started(event)
    if not source.device.capabilities.keeps_buffers:
        hazards.keep_alive(event, (source.buffer, target.buffer))


def deliver(source: Tensor, target: Tensor) -> None:
    """Have `target` hold what `source` does, which its caller drops: they exchange memory, unless somebody may still look at the old.

    A device that keeps buffers orders what uses them, and in host memory work keeps what it uses, so that whatever is pending
    may go on in the memory that it began with.
    """
    hazards.about_to_write((target,))
    with hazards.alone():
        pending = hazards.pending_on(target)
        if not pending or target.device.capabilities.keeps_buffers or target.host is not None:
            mine, other = target._buffer, source._buffer  # pyright: ignore[reportPrivateUsage]
            target._buffer, source._buffer = other, mine  # pyright: ignore[reportPrivateUsage]
            target.host, source.host = source.host, target.host
            target.pending_write, target.pending_reads = source.pending_write, None
            target.writes += 1
            return
    copy(source, target)


def host_array(dtype: DType, shape: tuple[int, ...]) -> Array:
    """An array of any content; a large one is in memory that others gave up, so that the system need not clear pages."""
    return HostMemory().array(shape, dtype.numpy, math.prod(shape) * dtype.bytes)


def host_view(memory: memoryview, dtype: DType, shape: tuple[int, ...]) -> Array:
    """An array over mapped bytes."""
    count = 1
    for extent in shape:
        count *= extent
    if not count:
        return np.empty(shape, dtype.numpy)
    return np.frombuffer(memory, np.uint8, count * dtype.bytes).view(dtype.numpy).reshape(shape)


def checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """`shape` as a tuple of non-negative integers; TileTypeError otherwise."""
    try:
        extents = tuple(operator.index(extent) for extent in shape)
    except TypeError:
        raise TileTypeError(Diagnostic("TILE-E500", f"a shape is a sequence of integers, not {shape!r}")) from None
    if any(extent < 0 for extent in extents):
        raise TileTypeError(Diagnostic("TILE-E500", f"a shape has no negative extents: {extents}"))
    return extents


def described(device: Device) -> str:
    """A device for a message: the same id may be in this process and in a worker."""
    return f"{device.id} in a worker process" if device.isolated else device.id


def same_device(tensors: Iterable[tuple[str, Tensor]], device: Device, what: str = "tensor") -> None:
    """TileDeviceError naming the first tensor that lives elsewhere."""
    for name, tensor in tensors:
        if tensor.device is not device:
            raise TileDeviceError(
                Diagnostic(
                    "TILE-E501",
                    f"{what} {name!r} is on device {described(tensor.device)}, the call runs on {described(device)}",
                    hint="move it with tile.asarray(tensor, device=…)",
                )
            )
