"""What the two built-in drivers share: their target documents, device classes and kernel verification."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from importlib.util import find_spec

from tile_ir.diagnostics import TileDeviceError, TileInternalError
from tile_ir.dtype import DType
from tile_ir.kernels import Kernel, KernelList
from tile_ir.target import Capabilities, Target

from tile_hal.errors import Code, device_error
from tile_hal.host import HostMemory
from tile_hal.interfaces import Compiler, Device, DeviceSet, Executor


def load_target(name: str) -> Target:
    """The target document that this package ships under `name`."""
    return Target.from_json(files("tile_hal").joinpath("targets", f"{name}.json").read_text(encoding="utf-8"))


def supported_dtypes() -> frozenset[DType]:
    """Every dtype NumPy can hold here: bfloat16 needs the `ml_dtypes` extra."""
    return frozenset(d for d in DType if d is not DType.BFLOAT16 or find_spec("ml_dtypes") is not None)


class HostDevice(Device):
    """A device over host memory."""

    def __init__(
        self, id: str, name: str, target: Target, capabilities: Capabilities, compiler: Compiler, executor: Executor
    ) -> None:
        self.id, self.name = id, name
        self.target, self.capabilities = target, capabilities
        self.compiler, self.executor = compiler, executor
        self.memory = HostMemory()


class HostDeviceSet(DeviceSet):
    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = tuple(devices)

    @property
    def devices(self) -> Sequence[Device]:
        return self._devices


def verify_kernels(kernels: KernelList, nodes: frozenset[str]) -> None:
    """TileDeviceError naming the kernel, Stripe or semtree, that is malformed or uses a node outside the core and `nodes`."""
    for kernel in kernels.kernels:
        _verify_kernel(kernel, nodes)


def _verify_kernel(kernel: Kernel, nodes: frozenset[str]) -> None:
    from tile_ir.semtree.verify import verify
    from tile_ir.stripe.verify import verify_block

    try:
        if kernel.function is None:
            verify_block(kernel.stripe)
        else:
            verify(kernel.function, nodes=nodes)
    except (TileInternalError, TileDeviceError) as problem:
        raise device_error(Code.BUILD, f"kernel {kernel.name!r} does not verify: {problem}") from problem
