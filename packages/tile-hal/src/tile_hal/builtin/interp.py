"""`interp`: a device that runs semtree (or Stripe, for kernels without a function) by the interpreter.

Slow and obvious; it simulates work groups, threads and barriers, and reports races and stray accesses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy.typing as npt
from tile_ir.dtype import DType
from tile_ir.kernels import Kernel as KernelInfo
from tile_ir.kernels import KernelList
from tile_ir.matrix import LANES
from tile_ir.semtree.nodes import Access, Function
from tile_ir.stripe.nodes import Direction
from tile_ir.target import Capabilities

from tile_hal.builtin.common import HostDevice, HostDeviceSet, load_target, supported_dtypes, verify_kernels
from tile_hal.errors import Code, device_error
from tile_hal.hooks import hookimpl
from tile_hal.host import HostBuffer, HostExecutor
from tile_hal.host_queue import HostQueue
from tile_hal.interfaces import Buffer, Compiler, DeviceSet, Driver, Event, Kernel, Library


class InterpLibrary(Library):
    """The kernel list itself, verified."""

    def __init__(self, kernels: KernelList) -> None:
        self.kernels = kernels

    def serialize(self) -> bytes:
        return _digest(self.kernels)

    def source(self) -> str:
        return _text(self.kernels)


class InterpCompiler(Compiler):
    """Keeps the kernels and checks that they are well formed."""

    def __init__(self, nodes: frozenset[str]) -> None:
        self._nodes = nodes

    def build(self, kernels: KernelList) -> Library:
        verify_kernels(kernels, self._nodes)
        return InterpLibrary(kernels)

    def deserialize(self, kernels: KernelList, data: bytes) -> Library:
        if data != _digest(kernels):
            raise ValueError("these bytes belong to other kernels")
        return InterpLibrary(kernels)

    @property
    def fingerprint(self) -> str:
        return f"interp tile-ir {version('tile-ir')}"


class InterpKernel(Kernel):
    """One kernel over host buffers."""

    def __init__(self, info: KernelInfo, queue: HostQueue) -> None:
        self._info = info
        self._queue = queue
        self._params = _function_params(info.function) if info.function is not None else _stripe_params(info)

    def run(self, params: Sequence[Buffer], dependencies: Sequence[Event] = (), *, profile: bool = False) -> Event:
        buffers = self._check(params)

        def work() -> None:
            arrays = [p.view(b) for b, p in zip(buffers, self._params, strict=True)]
            if self._info.function is not None:
                from tile_ir.semtree.interpret import launch

                launch(self._info.function, self._info.groups, arrays)
            else:
                from tile_hal.builtin.stripe_kernel import run_block

                run_block(self._info.stripe, arrays)

        return self._queue.run(work, dependencies, profile=profile)

    def _check(self, params: Sequence[Buffer]) -> list[HostBuffer]:
        if len(params) != len(self._params):
            raise device_error(
                Code.PARAMETERS,
                f"kernel {self._info.name!r} takes {len(self._params)} buffers, not {len(params)}",
            )
        return [check_parameter(self._info.name, p, b) for p, b in zip(self._params, params, strict=True)]


class KernelParameter:
    """What a buffer must be to serve as one parameter of a kernel."""

    __slots__ = ("dtype", "elements", "name", "written")

    def __init__(self, name: str, dtype: DType, elements: int, written: bool) -> None:
        self.name, self.dtype, self.elements, self.written = name, dtype, elements, written

    def view(self, buffer: HostBuffer) -> npt.NDArray[Any]:
        """The buffer's first `elements` elements (all of them when that is 0, as for Param.elements)."""
        array = buffer.as_array(self.dtype.numpy)
        return array[: self.elements] if self.elements else array


def check_parameter(kernel: str, parameter: KernelParameter, buffer: Buffer) -> HostBuffer:
    """`buffer`, when it is host memory, large enough and writable where needed; otherwise TileDeviceError."""
    where = f"parameter {parameter.name!r} of kernel {kernel!r}"
    if not isinstance(buffer, HostBuffer):
        raise device_error(Code.PARAMETERS, f"{where} is a {type(buffer).__name__}, not a host buffer")
    needed = parameter.elements * parameter.dtype.bytes
    if buffer.nbytes < needed:
        raise device_error(Code.SIZE_MISMATCH, f"{where} needs {needed} bytes, the buffer has {buffer.nbytes}")
    if parameter.written and buffer.readonly:
        raise device_error(Code.READ_ONLY, f"{where} is written, but the buffer wraps read-only memory")
    return buffer


def _function_params(function: Function) -> list[KernelParameter]:
    return [
        KernelParameter(p.name, p.type.dtype, p.elements * p.type.lanes, p.access is not Access.READ)
        for p in function.params
    ]


def _stripe_params(info: KernelInfo) -> list[KernelParameter]:
    """The block's views of its surroundings: outputs first, then inputs, each in listed order."""
    from tile_hal.builtin.stripe_kernel import outer_refs

    return [
        KernelParameter(r.into, r.type.dtype, span, r.dir is not Direction.IN) for r, span in outer_refs(info.stripe)
    ]


class InterpExecutor(HostExecutor):
    def prepare(self, library: Library, index: int) -> Kernel:
        if not isinstance(library, InterpLibrary):
            raise device_error(Code.PARAMETERS, f"a library of {type(library).__name__} was not built for interp")
        if not 0 <= index < len(library.kernels.kernels):
            raise device_error(
                Code.PARAMETERS, f"the library has {len(library.kernels.kernels)} kernels, none is number {index}"
            )
        return InterpKernel(library.kernels.kernels[index], self.queue)


class InterpDriver(Driver):
    name = "interp"
    api = (1, 0)
    priority = -10

    def device_sets(self) -> Sequence[DeviceSet]:
        target = load_target("interp")
        capabilities = Capabilities(
            dtypes=supported_dtypes(),
            nodes=target.nodes,
            max_group_size=128,
            local_bytes=target.settings.max_mem,
            subgroup=LANES,
            is_async=True,
            serializes=True,
        )
        compiler = InterpCompiler(target.nodes)
        device = HostDevice(
            "interp:0", "Semtree interpreter", target, capabilities, compiler, InterpExecutor(HostQueue(2))
        )
        return (HostDeviceSet([device]),)

    def doctor(self) -> Sequence[str]:
        return ("always there: runs kernels by the interpreter, slowly, to check other devices against",)


def _text(kernels: KernelList) -> str:
    from tile_ir.semtree.printer import print_function
    from tile_ir.stripe.printer import print_block

    parts = [print_function(k.function) if k.function is not None else print_block(k.stripe) for k in kernels.kernels]
    return "\n".join(parts)


def _digest(kernels: KernelList) -> bytes:
    return b"interp:" + hashlib.sha256(_text(kernels).encode()).hexdigest().encode()


@hookimpl
def tile_hal_driver() -> Driver:
    return InterpDriver()
