"""The simulated accelerator as a device: libraries are verified kernel lists, events report simulated seconds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from tile_hal.errors import Code, device_error
from tile_hal.host import (
    HostDeviceSet,
    HostExecutor,
    HostMemory,
    check_parameters,
    parameters,
    stripe_views,
    supported_dtypes,
)
from tile_hal.interfaces import (
    Buffer,
    Compiler,
    Device,
    DeviceSet,
    Driver,
    Event,
    Executor,
    Kernel,
    Library,
    Memory,
    Result,
)
from tile_ir import kernels as ir
from tile_ir.stripe.verify import StripeError, verify_block
from tile_ir.target import Capabilities, Target

from tile_sim.design import machine, target
from tile_sim.report import Report
from tile_sim.simulate import Simulator

VARIABLE = "TILE_SIM_TARGET"


class SimLibrary(Library):
    """Scheduled Stripe: nothing is generated."""

    def __init__(self, kernels: ir.KernelList) -> None:
        self.kernels = kernels

    def serialize(self) -> bytes:
        return _digest(self.kernels)

    def source(self) -> str:
        from tile_ir.stripe.printer import print_block

        return "\n".join(print_block(k.stripe) for k in self.kernels.kernels)


def _digest(kernels: ir.KernelList) -> bytes:
    return hashlib.sha256(SimLibrary(kernels).source().encode()).hexdigest().encode()


def _verify(kernel: ir.Kernel) -> None:
    if kernel.function is not None:
        message = f"kernel {kernel.name!r} is a semtree function; the simulated accelerator runs scheduled Stripe"
        raise device_error(Code.BUILD, message, 'compile for a target with "codegen": "stripe"')
    try:
        verify_block(kernel.stripe)
    except StripeError as problem:
        raise device_error(Code.BUILD, f"kernel {kernel.name!r} does not verify: {problem}") from problem


class SimCompiler(Compiler):
    """Checks that a list is scheduled Stripe, and well formed."""

    def build(self, kernels: ir.KernelList) -> Library:
        for kernel in kernels.kernels:
            _verify(kernel)
        return SimLibrary(kernels)

    def deserialize(self, kernels: ir.KernelList, data: bytes) -> Library:
        if data != _digest(kernels):
            raise ValueError("these bytes belong to other kernels")
        return self.build(kernels)

    @property
    def fingerprint(self) -> str:
        return "tile-sim 1"


class Run(Event):
    """A run whose seconds are the machine's, not those that simulating it took."""

    __slots__ = ("_event", "_reports")

    def __init__(self, event: Event, reports: Sequence[Report]) -> None:
        self._event, self._reports = event, reports

    @property
    def parts(self) -> tuple[Event, ...]:
        """The queue's own event (see `tile_hal.flatten`)."""
        return (self._event,)

    @property
    def done(self) -> bool:
        return self._event.done

    def wait(self) -> Result:
        self._event.wait()
        return Result(self._reports[0].microseconds * 1e-6)


class SimKernel(Kernel):
    """One scheduled program."""

    def __init__(self, kernel: ir.Kernel, made: Target, executor: SimExecutor) -> None:
        self._kernel, self._parameters = kernel, parameters(kernel)
        self._model = machine(made)
        self._executor = executor

    def run(self, params: Sequence[Buffer], dependencies: Sequence[Event] = (), *, profile: bool = False) -> Event:
        """Every run is measured, whether `profile` asks for it or not."""
        main = self._kernel.stripe
        arrays = stripe_views(main, check_parameters(self._kernel.name, self._parameters, params))
        reports: list[Report] = []

        def work() -> None:
            reports.append(Simulator(self._model).run([main], arrays))
            self._executor.report = reports[0]

        return Run(self._executor.queue.run(work, dependencies), reports)


class SimExecutor(HostExecutor):
    """Copies and fills are inherited; `report` is that of the run which ended last."""

    def __init__(self) -> None:
        super().__init__()
        self.report: Report | None = None

    def prepare(self, library: Library, index: int) -> Kernel:
        if not isinstance(library, SimLibrary):
            raise device_error(Code.PARAMETERS, f"a library of {type(library).__name__} was not built for this device")
        if not 0 <= index < len(library.kernels.kernels):
            raise device_error(Code.PARAMETERS, f"the library has no kernel number {index}")
        return SimKernel(library.kernels.kernels[index], library.kernels.target, self)


class SimDevice(Device):
    """One design point."""

    compiler: Compiler
    executor: Executor
    memory: Memory

    def __init__(self, made: Target, number: int = 0) -> None:
        model = machine(made)
        self.id = f"sim:{number}"
        units = ", ".join(f"{unit.count} {name}" for name, unit in model.exec_units.items())
        self.name = f"Simulated accelerator ({units})"
        self.target = made
        self.capabilities = Capabilities(
            dtypes=supported_dtypes(),
            local_bytes=max((m.bytes for n, m in model.mem_units.items() if n != "DRAM"), default=0),
            is_async=True,
            serializes=True,
        )
        self.compiler = SimCompiler()
        self.executor = SimExecutor()
        self.memory = HostMemory()


class SimDriver(Driver):
    """The machine of the shipped template, or of the file that TILE_SIM_TARGET names."""

    name = "sim"
    api = (1, 0)

    def device_sets(self) -> Sequence[DeviceSet]:
        path = os.environ.get(VARIABLE)
        made = target(Path(path).read_text(encoding="utf-8")) if path else target()
        return (HostDeviceSet([SimDevice(made)]),)

    def doctor(self) -> Sequence[str]:
        return (f"always there: simulates {os.environ.get(VARIABLE) or 'the accelerator of the shipped target'}",)
