"""Devices in host memory: a library of Python callables, what runs them, and the device around both.

A backend whose kernels are functions of addresses writes a `Compiler` whose `build` gives a `HostLibrary`. Checking of
parameters, waiting for dependencies, copies and fills are here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
from tile_ir import kernels as ir
from tile_ir.diagnostics import TileDeviceError, TileInternalError
from tile_ir.dtype import DType
from tile_ir.frozen import frozen
from tile_ir.semtree.nodes import Access
from tile_ir.stripe.nodes import Block, Direction, Refinement
from tile_ir.target import Capabilities, Target

from tile_hal.errors import Code, device_error
from tile_hal.host_memory import HostBuffer, HostMemory
from tile_hal.host_queue import HostQueue
from tile_hal.interfaces import Buffer, Compiler, Device, DeviceSet, Event, Executor, Kernel, Library

Launch = Callable[[Sequence[HostBuffer]], object]
"""Runs all work groups of a kernel on buffers that were checked, outputs first; what it raises fails the launch's event."""


def supported_dtypes() -> frozenset[DType]:
    """Every dtype NumPy can hold here: bfloat16 needs the `ml_dtypes` extra."""
    return frozenset(d for d in DType if d is not DType.BFLOAT16 or find_spec("ml_dtypes") is not None)


# --- parameters ------------------------------------------------------------------------------------


@frozen
class Parameter:
    """What a buffer must be to serve as one parameter of a kernel."""

    name: str
    dtype: DType
    elements: int
    """Elements that the kernel may touch; 0: all that the buffer has."""
    written: bool

    def view(self, buffer: HostBuffer) -> npt.NDArray[Any]:
        """The buffer's elements as a 1-D array, without a copy."""
        array = buffer.as_array(self.dtype.numpy)
        return array[: self.elements] if self.elements else array


def parameters(kernel: ir.Kernel) -> tuple[Parameter, ...]:
    """The parameters of a kernel, outputs first: those of its function, or the outer views of its Stripe block."""
    if kernel.function is None:
        return tuple(
            Parameter(r.into, r.type.dtype, r.type.extent, r.dir is not Direction.IN) for r in outer_refs(kernel.stripe)
        )
    return tuple(
        Parameter(p.name, p.type.dtype, p.elements * p.type.lanes, p.access is not Access.READ)
        for p in kernel.function.params
    )


def outer_refs(block: Block) -> tuple[Refinement, ...]:
    """A Stripe kernel's views of its surroundings in the order of its buffers: outputs first, each as listed."""
    outer = [r for r in block.refs if r.dir is not Direction.ALLOC]
    return (*(r for r in outer if r.dir is not Direction.IN), *(r for r in outer if r.dir is Direction.IN))


def stripe_views(block: Block, buffers: Sequence[HostBuffer]) -> dict[str, npt.NDArray[Any]]:
    """What `tile_ir.stripe.run_block` takes: a Stripe kernel's buffers as arrays of its views' sizes, by their sources."""
    return {ref.source: _strided(ref, buffer) for ref, buffer in zip(outer_refs(block), buffers, strict=True)}


def _strided(ref: Refinement, buffer: HostBuffer) -> npt.NDArray[Any]:
    array = buffer.as_array(ref.type.dtype.numpy)
    return np.lib.stride_tricks.as_strided(array, ref.type.sizes, tuple(s * array.itemsize for s in ref.type.strides))


def check_parameters(kernel: str, wanted: Sequence[Parameter], given: Sequence[Buffer]) -> list[HostBuffer]:
    """`given` as host buffers; TileDeviceError, with the kernel's name, for a wrong number or one that does not fit."""
    if len(given) != len(wanted):
        raise device_error(Code.PARAMETERS, f"kernel {kernel!r} takes {len(wanted)} buffers, not {len(given)}")
    return [_checked(kernel, parameter, buffer) for parameter, buffer in zip(wanted, given, strict=True)]


def _checked(kernel: str, parameter: Parameter, buffer: Buffer) -> HostBuffer:
    where = f"parameter {parameter.name!r} of kernel {kernel!r}"
    if not isinstance(buffer, HostBuffer):
        raise device_error(Code.PARAMETERS, f"{where} is a {type(buffer).__name__}, not a host buffer")
    needed = parameter.elements * parameter.dtype.bytes
    if buffer.nbytes < needed:
        raise device_error(Code.SIZE_MISMATCH, f"{where} needs {needed} bytes, the buffer has {buffer.nbytes}")
    if parameter.written and buffer.readonly:
        raise device_error(Code.READ_ONLY, f"{where} is written, but the buffer wraps read-only memory")
    return buffer


# --- kernels -----------------------------------------------------------------------------------------


def verify_kernels(kernels: ir.KernelList, nodes: frozenset[str]) -> None:
    """TileDeviceError naming the kernel, Stripe or semtree, that is malformed or uses a node outside the core and `nodes`."""
    from tile_ir.semtree.verify import verify
    from tile_ir.stripe.verify import verify_block

    for kernel in kernels.kernels:
        try:
            if kernel.function is None:
                verify_block(kernel.stripe)
            else:
                verify(kernel.function, nodes=nodes)
        except (TileInternalError, TileDeviceError) as problem:
            raise device_error(Code.BUILD, f"{kernel.title} does not verify: {problem}") from problem


class HostKernel(Kernel):
    """A kernel in host memory: checks its buffers, and runs `launch` on `queue` after the dependencies."""

    def __init__(self, kernel: ir.Kernel, launch: Launch, queue: HostQueue) -> None:
        self._name, self._parameters = kernel.name, parameters(kernel)
        self._launch, self._queue = launch, queue

    def run(self, params: Sequence[Buffer], dependencies: Sequence[Event] = (), *, profile: bool = False) -> Event:
        buffers = check_parameters(self._name, self._parameters, params)
        return self._queue.run(partial(self._launch, buffers), dependencies, profile=profile)


class HostLibrary(Library):
    """Kernels as callables.

    `kernels` is what it was built from and `launches` has a callable for each; `source` is text for people, `data` what
    `Compiler.deserialize` makes the library from again, None where it does not.
    """

    def __init__(
        self, kernels: ir.KernelList, launches: Sequence[Launch], source: str = "", data: bytes | None = None
    ) -> None:
        self.kernels, self.launches = kernels, tuple(launches)
        self._source, self._data = source, data

    def serialize(self) -> bytes | None:
        return self._data

    def source(self) -> str:
        return self._source


class HostExecutor(Executor):
    """Runs the kernels of a `HostLibrary`, copies and fills; a backend with libraries of its own overrides `prepare`.

    Work whose dependencies are met runs at once on the caller, other work on the queue's threads.
    """

    def __init__(self, queue: HostQueue | None = None) -> None:
        self.queue = queue or HostQueue()

    def prepare(self, library: Library, index: int) -> Kernel:
        if not isinstance(library, HostLibrary):
            raise device_error(Code.PARAMETERS, f"a {type(library).__name__} was not built for this device")
        if not 0 <= index < len(library.launches):
            raise device_error(
                Code.PARAMETERS, f"the library has {len(library.launches)} kernels, none is number {index}"
            )
        return HostKernel(library.kernels.kernels[index], library.launches[index], self.queue)

    def copy(self, src: Buffer, dst: Buffer, dependencies: Sequence[Event] = ()) -> Event:
        """Ranges of one allocation may overlap."""
        if src.nbytes != dst.nbytes:
            raise device_error(
                Code.SIZE_MISMATCH, f"a copy needs buffers of one size, not {src.nbytes} and {dst.nbytes} bytes"
            )
        source, target = _host(src), _writable(dst)

        def work() -> None:
            # memmove: the buffers may be overlapping views of one allocation.
            ctypes.memmove(target.address, source.address, target.nbytes)

        return self.queue.run(work, dependencies)

    def finish(self) -> None:
        self.queue.finish()

    def fill(self, dst: Buffer, dependencies: Sequence[Event] = ()) -> Event:
        target = _writable(dst)

        def work() -> None:
            ctypes.memset(target.address, 0, target.nbytes)

        return self.queue.run(work, dependencies)


def _host(buffer: Buffer) -> HostBuffer:
    if isinstance(buffer, HostBuffer):
        return buffer
    raise device_error(
        Code.PARAMETERS,
        f"this device works on host buffers, not on {type(buffer).__name__}",
        "allocate the buffer with this device's memory, or map it and wrap the view",
    )


def _writable(buffer: Buffer) -> HostBuffer:
    host = _host(buffer)
    if host.readonly:
        raise device_error(Code.READ_ONLY, "the destination wraps read-only memory")
    return host


# --- devices -----------------------------------------------------------------------------------------


class HostDevice(Device):
    """A device over host memory; without an `executor` of its own it runs libraries that are a `HostLibrary`."""

    def __init__(
        self,
        id: str,
        name: str,
        target: Target,
        capabilities: Capabilities,
        compiler: Compiler,
        executor: Executor | None = None,
    ) -> None:
        self.id, self.name = id, name
        self.target, self.capabilities = target, capabilities
        self.compiler, self.executor = compiler, executor or HostExecutor()
        self.memory = HostMemory()


class HostDeviceSet(DeviceSet):
    """Devices that were made already."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = tuple(devices)

    @property
    def devices(self) -> Sequence[Device]:
        return self._devices
