"""Tensors: values that stay on a device."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from tile_hal.interfaces import Buffer, Device, Event
from tile_ir.diagnostics import Diagnostic, TileDeviceError, TileTypeError
from tile_ir.dtype import DType, from_numpy

from tile_runtime.arrays import dtype_of, readable
from tile_runtime.devices import device as find_device

_hazards = threading.RLock()
"""Guards the pending reads and writes of all tensors."""


class Tensor:
    """An n-dimensional array of a fixed dtype on one device, C order.

    Work on it is asynchronous; reading waits for what is pending. Pending reads and writes are tracked
    here, so that calls may be issued without waiting.
    """

    __slots__ = ("__weakref__", "_reads", "_write", "buffer", "device", "dtype", "shape")

    def __init__(self, device: Device | str | None, shape: Sequence[int], dtype: npt.DTypeLike | DType) -> None:
        """Uninitialised memory for `shape` elements of `dtype` (a name, NumPy dtype or DType)."""
        self.device: Device = find_device(device)
        self.dtype: DType = dtype_of(dtype)
        self.shape: tuple[int, ...] = checked_shape(shape)
        self.buffer: Buffer = self.device.memory.allocate(self.nbytes)
        self._write: Event | None = None
        self._reads: list[Event] = []

    @property
    def size(self) -> int:
        """Number of elements."""
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.bytes

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"Tensor({self.device.id!r}, shape={self.shape}, dtype='{self.dtype}')"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a 0-d tensor has no length")
        return self.shape[0]

    # --- pending work ---------------------------------------------------------------------------------

    def pending(self, *, write: bool) -> list[Event]:
        """Events that a new read (or, with `write`, a new write) must wait for."""
        with _hazards:
            events = [self._write] if self._write is not None else []
            return [e for e in (*events, *self._reads) if not e.done] if write else [e for e in events if not e.done]

    def wait(self) -> Tensor:
        """Block until its contents are final; raises the error of the work that failed."""
        with _hazards:
            event = self._write
        if event is not None:
            event.wait()
        return self

    # --- host access ----------------------------------------------------------------------------------

    @contextmanager
    def mmap_current(self) -> Generator[np.ndarray[Any, Any]]:
        """A host array of the current contents; waits for pending work. Changes reach the device on exit."""
        self.wait()
        with self._mapped(self.buffer.map_current(self.pending(write=True))) as view:
            yield view

    @contextmanager
    def mmap_discard(self) -> Generator[np.ndarray[Any, Any]]:
        """A host array with undefined contents, to be written; nothing is read back."""
        for event in self.pending(write=True):
            event.wait()
        with self._mapped(self.buffer.map_discard()) as view:
            yield view

    @contextmanager
    def _mapped(self, memory: memoryview) -> Generator[np.ndarray[Any, Any]]:
        try:
            yield host_view(memory, self.dtype, self.shape)
        finally:
            unmapped = self.buffer.unmap()
            record((), (self,), unmapped)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy on the host."""
        with self.mmap_current() as view:
            return view.copy()

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("a Tensor cannot be viewed as a NumPy array without a copy; use mmap_current")
        host = self.numpy()
        return host if dtype is None else host.astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        """A DLPack capsule of a host copy (the CPU device)."""
        options.pop("stream", None)
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Tensor lives on a device and cannot be pickled; pickle tensor.numpy() instead")


def asarray(value: npt.ArrayLike | Tensor, device: Device | str | None = None) -> Tensor:
    """`value` as a Tensor on `device`: a copy, unless it is a Tensor there already."""
    target = find_device(device) if device is not None or not isinstance(value, Tensor) else value.device
    if isinstance(value, Tensor) and value.device is target:
        return value
    host = readable("value", value.numpy() if isinstance(value, Tensor) else value)
    tensor = Tensor(target, host.shape, from_numpy(host.dtype))
    with tensor.mmap_discard() as view:
        view[...] = host
    return tensor


def record(reads: Iterable[Tensor], writes: Iterable[Tensor], event: Event) -> None:
    """Note that `event` reads and writes these tensors."""
    if event.done:
        for tensor in writes:
            with _hazards:
                tensor._write = event  # pyright: ignore[reportPrivateUsage]
        return
    with _hazards:
        for tensor in writes:
            tensor._write, tensor._reads = event, []  # pyright: ignore[reportPrivateUsage]
        for tensor in reads:
            kept = [e for e in tensor._reads if not e.done]  # pyright: ignore[reportPrivateUsage]
            tensor._reads = [*kept, event]  # pyright: ignore[reportPrivateUsage]


def host_view(memory: memoryview, dtype: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """An array over mapped bytes."""
    count = 1
    for extent in shape:
        count *= extent
    return np.frombuffer(memory, np.uint8, count * dtype.bytes).view(dtype.numpy).reshape(shape)


def checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """`shape` as a tuple of non-negative integers; TileTypeError otherwise."""
    try:
        extents = tuple(int(extent) for extent in shape)
    except (TypeError, ValueError):
        raise TileTypeError(Diagnostic("TILE-E500", f"a shape is a sequence of integers, not {shape!r}")) from None
    if any(extent < 0 for extent in extents):
        raise TileTypeError(Diagnostic("TILE-E500", f"a shape has no negative extents: {extents}"))
    return extents


def same_device(tensors: Iterable[tuple[str, Tensor]], device: Device) -> None:
    """TileDeviceError naming the first tensor that lives elsewhere."""
    for name, tensor in tensors:
        if tensor.device is not device:
            raise TileDeviceError(
                Diagnostic(
                    "TILE-E501",
                    f"tensor {name!r} is on device {tensor.device.id}, the call runs on {device.id}",
                    hint="move it with tile.asarray(tensor, device=…)",
                )
            )
