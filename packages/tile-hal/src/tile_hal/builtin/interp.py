"""`interp`: a device that runs semtree (or Stripe, for kernels without a function) by the interpreter.

Slow and obvious; it simulates work groups, threads and barriers, and reports races and stray accesses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version

from tile_ir.kernels import Kernel as KernelInfo
from tile_ir.kernels import KernelList
from tile_ir.matrix import LANES
from tile_ir.target import Capabilities

from tile_hal.builtin.common import load_target
from tile_hal.errors import Code, device_error
from tile_hal.hooks import hookimpl
from tile_hal.host import (
    HostBuffer,
    HostDevice,
    HostDeviceSet,
    HostExecutor,
    HostKernel,
    HostQueue,
    Parameter,
    parameters,
    stripe_views,
    supported_dtypes,
    verify_kernels,
)
from tile_hal.interfaces import Compiler, DeviceSet, Driver, Kernel, Library


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


class InterpKernel(HostKernel):
    """One kernel over host buffers."""

    def __init__(self, info: KernelInfo, queue: HostQueue) -> None:
        super().__init__(info, partial(_interpret, info, parameters(info)), queue)


def _interpret(info: KernelInfo, wanted: Sequence[Parameter], buffers: Sequence[HostBuffer]) -> None:
    if info.function is not None:
        from tile_ir.semtree.interpret import launch

        launch(info.function, info.groups, [p.view(buffer) for p, buffer in zip(wanted, buffers, strict=True)])
    else:
        from tile_ir.stripe import run_block

        run_block(info.stripe, stripe_views(info.stripe, buffers))


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
