"""`null`: a compile-only device; it shows what the compiler makes, without hardware to run it."""

from __future__ import annotations

from collections.abc import Sequence

from tile_ir.diagnostics import TileDeviceError
from tile_ir.target import Capabilities

from tile_hal.builtin.common import load_target
from tile_hal.builtin.interp import InterpCompiler
from tile_hal.errors import Code, device_error
from tile_hal.hooks import hookimpl
from tile_hal.host import HostDevice, HostDeviceSet, supported_dtypes
from tile_hal.interfaces import Buffer, DeviceSet, Driver, Event, Executor, Kernel, Library


def _refusal() -> TileDeviceError:
    return device_error(
        Code.COMPILE_ONLY,
        "device null:0 only compiles, it runs nothing",
        "`tile devices` lists those that run, such as 'interp'",
    )


class NullKernel(Kernel):
    def run(self, params: Sequence[Buffer], dependencies: Sequence[Event] = (), *, profile: bool = False) -> Event:
        raise _refusal()


class NullExecutor(Executor):
    """Prepares anything, runs nothing."""

    def prepare(self, library: Library, index: int) -> Kernel:
        return NullKernel()

    def copy(self, src: Buffer, dst: Buffer, dependencies: Sequence[Event] = ()) -> Event:
        raise _refusal()

    def fill(self, dst: Buffer, dependencies: Sequence[Event] = ()) -> Event:
        raise _refusal()


class NullDriver(Driver):
    name = "null"
    api = (1, 0)
    priority = None

    def device_sets(self) -> Sequence[DeviceSet]:
        target = load_target("null")
        capabilities = Capabilities(dtypes=supported_dtypes(), nodes=target.nodes, serializes=True, executes=False)
        device = HostDevice(
            "null:0", "Compile only", target, capabilities, InterpCompiler(target.nodes), NullExecutor()
        )
        return (HostDeviceSet([device]),)

    def doctor(self) -> Sequence[str]:
        return ("always there: compiles and runs nothing",)


@hookimpl
def tile_hal_driver() -> Driver:
    return NullDriver()
