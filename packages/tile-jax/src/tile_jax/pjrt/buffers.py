"""Buffers: Tile tensors that JAX holds, and the ways of their contents to and from the host."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
from tile_ir.diagnostics import Diagnostic, TileTypeError
from tile_ir.dtype import DType
from tile_runtime import hazards
from tile_runtime.arrays import raw_view
from tile_runtime.tensor import Tensor, asarray, result

from tile_jax.pjrt.elements import dtype_of, is_complex, number_of
from tile_jax.pjrt.events import DONE, Event, event_of
from tile_jax.pjrt.handles import Array, Handler, drop, find, new, read_numbers
from tile_jax.pjrt.state import Device, Memory
from tile_jax.pjrt.structs import STRUCTS, MemoryLayout

NDArray = np.ndarray[Any, Any]
ZERO_COPY = (2, 3)
"""The semantics under which the host's memory stays as it is as long as the buffer lives."""
ALIGNMENT = 64
"""Bytes. NumPy's own memory seldom is aligned so; whoever writes to such an array later writes to JAX's."""
_Tiled = STRUCTS["MemoryLayout_Tiled"]


class Buffer:
    """An array of JAX: a tensor that nobody writes to, until it is deleted or donated."""

    __slots__ = ("_dims", "_viewed", "_views", "complex", "device", "owner", "shape", "tensor")

    def __init__(self, device: Device, tensor: Tensor, owner: Event | None = None, *, complex: bool = False) -> None:
        self.device = device
        self.tensor: Tensor | None = tensor
        self.shape = tensor.shape[:-1] if complex else tensor.shape
        self.complex = complex
        """Whether the tensor's last axis is that of the parts of complex numbers."""
        self.owner = owner
        """What says that the host's memory, which this is a view of, may be freed."""
        self._dims: Array | None = None
        self._views = 0
        self._viewed: Tensor | None = None

    def view(self, more: int) -> None:
        """Somebody begins (1) or ends (-1) to look at the memory: it stays meanwhile, even when the buffer is deleted."""
        self._views += more
        self._viewed = (self._viewed or self.contents) if self._views > 0 else None

    @property
    def dims(self) -> Array:
        """Its shape in memory that C code reads."""
        if self._dims is None:
            self._dims = Array(self.shape)
        return self._dims

    @property
    def contents(self) -> Tensor:
        """The tensor; TileTypeError when there is none any more."""
        if self.tensor is None:
            message = "the array has been deleted, or donated to a call: it has no contents"
            raise TileTypeError(Diagnostic("TILE-E953", message))
        return self.tensor

    def delete(self) -> None:
        """Lets go of the memory."""
        tensor, self.tensor = self.tensor, None
        owner, self.owner = self.owner, None
        if owner is not None and tensor is not None:
            for event in hazards.before(tensor, write=True):
                event.wait()
            owner.finish()


def handle_of(buffer: Buffer) -> int:
    """A new handle, which says where the buffer is and of what."""
    return new(buffer, buffer.device.says[number_of(buffer.contents.dtype, buffer.complex)])


# --- from the host -----------------------------------------------------------------------------------------


def _from_host(args: Any) -> None:
    device = find(Memory, args.memory).device if args.memory else find(Device, args.device)
    dtype = dtype_of(args.type)
    _check_layout(args.device_layout, args.num_dims)
    shape = tuple(read_numbers(args.dims, args.num_dims))
    strides = tuple(read_numbers(args.byte_strides, args.num_byte_strides)) or None
    complex = is_complex(args.type)
    if complex:
        shape, strides = (*shape, 2), None if strides is None and args.num_dims else (*(strides or ()), dtype.bytes)
    host = _array_at(args.data, shape, dtype, strides)
    if args.host_buffer_semantics in ZERO_COPY and _usable(device, host):
        owner = Event(open=True)
        args.done_with_host_buffer = new(owner)
        args.buffer = handle_of(Buffer(device, result(device.tile, dtype, shape, host), owner, complex=complex))
        return
    args.done_with_host_buffer = DONE
    args.buffer = handle_of(Buffer(device, asarray(host, device.tile), complex=complex))


def _array_at(address: int, shape: tuple[int, ...], dtype: DType, strides: tuple[int, ...] | None) -> NDArray:
    """The elements at an address, in place."""
    if 0 in shape:
        return np.empty(shape, dtype.numpy)
    if strides is None:
        memory: Any = (ctypes.c_uint8 * (math.prod(shape) * dtype.bytes)).from_address(address)
        return np.frombuffer(memory, np.uint8).view(dtype.numpy).reshape(shape)
    reach = [step * (extent - 1) for step, extent in zip(strides, shape, strict=True)]
    below, above = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)
    memory: Any = (ctypes.c_uint8 * (above - below + dtype.bytes)).from_address(address + below)
    return np.ndarray(shape, dtype.numpy, memory, -below, strides)


def _usable(device: Device, host: NDArray) -> bool:
    """Whether kernels read the host's memory in place: what JAX's own CPU would not copy either."""
    plain = host.size > 0 and host.flags.c_contiguous and host.ctypes.data % ALIGNMENT == 0
    return plain and device.hosted and device.tile.memory.wrap(raw_view(host)) is not None


def _uninitialized(args: Any) -> None:
    device = find(Memory, args.memory).device if args.memory else find(Device, args.device)
    complex = is_complex(args.shape_element_type)
    shape = [*read_numbers(args.shape_dims, args.shape_num_dims), *([2] if complex else [])]
    args.buffer = handle_of(
        Buffer(device, Tensor(device.tile, shape, dtype_of(args.shape_element_type)), complex=complex)
    )


# --- to the host -------------------------------------------------------------------------------------------


def _to_host(args: Any) -> None:
    buffer = find(Buffer, args.src)
    tensor = buffer.contents
    if not args.dst:
        args.dst_size = tensor.nbytes
        return
    order = _order(args.host_layout, len(buffer.shape)) + ([tensor.ndim - 1] if buffer.complex else [])
    if tensor.nbytes > args.dst_size:
        message = f"an array of {tensor.nbytes} bytes does not fit in {args.dst_size} bytes of the host"
        raise TileTypeError(Diagnostic("TILE-E953", message))
    shape = tuple(tensor.shape[axis] for axis in order)
    target = _array_at(args.dst, shape, tensor.dtype, None)
    _copy(tensor, target.transpose(np.argsort(order)) if order else target)
    args.event = DONE


def _copy(tensor: Tensor, target: NDArray) -> None:
    """Copies to the host's memory; waits for pending work."""
    if tensor.host is not None:
        tensor.wait()
        target[...] = tensor.host
        return
    with tensor.mmap_current() as view:
        target[...] = view


def _raw_to_host(args: Any) -> None:
    tensor = find(Buffer, args.buffer).contents
    raw = tensor.numpy().reshape(-1).view(np.uint8)
    part = raw[args.offset : args.offset + args.transfer_size]
    ctypes.memmove(args.dst, part.ctypes.data, part.nbytes)
    args.event = DONE


def _order(layout: int, rank: int) -> list[int]:
    """Axes from the slowest to the fastest, as a layout of the host says."""
    if not layout:
        return list(range(rank))
    found = MemoryLayout.from_address(layout)
    _check_tiles(found, rank)
    return read_numbers(found.tiled.minor_to_major, rank)[::-1]


def _check_layout(layout: int, rank: int) -> None:
    if layout and _order(layout, rank) != list(range(rank)):
        message = "Tile's tensors are in C order, and another layout was asked for"
        raise TileTypeError(Diagnostic("TILE-E954", message))


def _check_tiles(layout: MemoryLayout, rank: int) -> None:
    if layout.type != 0 or layout.tiled.num_tiles or layout.tiled.minor_to_major_size != rank:
        message = "a layout of tiles or strides was asked for, and Tile knows orders of axes"
        raise TileTypeError(Diagnostic("TILE-E954", message))


# --- what a buffer is --------------------------------------------------------------------------------------


def _element_type(args: Any) -> None:
    buffer = find(Buffer, args.buffer)
    args.type = number_of(buffer.contents.dtype, buffer.complex)


def _dimensions(args: Any) -> None:
    found = find(Buffer, args.buffer).dims
    args.dims, args.num_dims = found.address, found.size


def _unpadded(args: Any) -> None:
    found = find(Buffer, args.buffer).dims
    args.unpadded_dims, args.num_dims = found.address, found.size


def _dynamic(args: Any) -> None:
    args.dynamic_dim_indices, args.num_dynamic_dims = find(Buffer, args.buffer).dims.address, 0


_orders: dict[int, Array] = {}
"""The axes of C order from the fastest to the slowest, by their number."""


def _layout(args: Any) -> None:
    rank = len(find(Buffer, args.buffer).shape)
    order = _orders.setdefault(rank, Array(range(rank)[::-1]))
    layout = args.layout
    layout.struct_size, layout.type = ctypes.sizeof(MemoryLayout), 0
    layout.tiled.struct_size = ctypes.sizeof(_Tiled)
    layout.tiled.minor_to_major, layout.tiled.minor_to_major_size = order.address, rank
    layout.tiled.tile_dims = layout.tiled.tile_dim_sizes = layout.tiled.num_tiles = 0


def _bytes(args: Any) -> None:
    args.on_device_size_in_bytes = find(Buffer, args.buffer).contents.nbytes


def _device(args: Any) -> None:
    args.device = find(Buffer, args.buffer).device.handle


def _memory(args: Any) -> None:
    args.memory = find(Buffer, args.buffer).device.memory.handle


def _is_on_cpu(args: Any) -> None:
    tensor = find(Buffer, args.buffer).tensor
    args.is_on_cpu = tensor is not None and tensor.host is not None


def _ready(args: Any) -> None:
    tensor = find(Buffer, args.buffer).contents
    args.event = event_of([tensor.pending_write])


# --- its life ----------------------------------------------------------------------------------------------


def _destroy(args: Any) -> None:
    buffer = drop(args.buffer)
    if isinstance(buffer, Buffer):
        buffer.delete()


def _delete(args: Any) -> None:
    find(Buffer, args.buffer).delete()


def _is_deleted(args: Any) -> None:
    args.is_deleted = find(Buffer, args.buffer).tensor is None


def _address(args: Any) -> int:
    tensor = find(Buffer, args.buffer).contents
    if tensor.host is None:
        raise NotImplementedError(f"an array on {tensor.device.id} has no address in the host's memory")
    return tensor.wait().host.ctypes.data  # pyright: ignore[reportOptionalMemberAccess]


def _pointer(args: Any) -> None:
    args.buffer_pointer = _address(args)


def _data_pointer(args: Any) -> None:
    args.device_memory_ptr = _address(args)


def _viewed(args: Any) -> None:
    find(Buffer, args.buffer).view(1)


def _unviewed(args: Any) -> None:
    find(Buffer, args.buffer).view(-1)


def _to_device(args: Any) -> None:
    args.dst_buffer = _moved(args.buffer, find(Device, args.dst_device))


def _to_memory(args: Any) -> None:
    args.dst_buffer = _moved(args.buffer, find(Memory, args.dst_memory).device)


def _moved(handle: int, device: Device) -> int:
    """The same contents for another device: the same tensor, where that is another place of the same Tile device."""
    buffer = find(Buffer, handle)
    contents = buffer.contents if buffer.owner is None else buffer.contents.numpy()
    return handle_of(Buffer(device, asarray(contents, device.tile), complex=buffer.complex))


HANDLERS: dict[str, Handler] = {
    "Client_BufferFromHostBuffer": _from_host,
    "Client_CreateUninitializedBuffer": _uninitialized,
    "Buffer_ToHostBuffer": _to_host,
    "Buffer_CopyRawToHost": _raw_to_host,
    "Buffer_ElementType": _element_type,
    "Buffer_Dimensions": _dimensions,
    "Buffer_UnpaddedDimensions": _unpadded,
    "Buffer_DynamicDimensionIndices": _dynamic,
    "Buffer_GetMemoryLayout": _layout,
    "Buffer_OnDeviceSizeInBytes": _bytes,
    "Buffer_Device": _device,
    "Buffer_Memory": _memory,
    "Buffer_IsOnCpu": _is_on_cpu,
    "Buffer_ReadyEvent": _ready,
    "Buffer_Destroy": _destroy,
    "Buffer_Delete": _delete,
    "Buffer_IsDeleted": _is_deleted,
    "Buffer_UnsafePointer": _pointer,
    "Buffer_OpaqueDeviceMemoryDataPointer": _data_pointer,
    "Buffer_IncreaseExternalReferenceCount": _viewed,
    "Buffer_DecreaseExternalReferenceCount": _unviewed,
    "Buffer_CopyToDevice": _to_device,
    "Buffer_CopyToMemory": _to_memory,
}
