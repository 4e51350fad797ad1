"""The driver: one device, the system CPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tile_hal.host import HostMemory
from tile_hal.interfaces import Device, DeviceSet, Driver
from tile_ir.dtype import DType
from tile_ir.settings import Settings
from tile_ir.target import Capabilities, Target

from hal_llvm import amx
from hal_llvm.cpu import described, host_target, present, processor_name, thread_count
from hal_llvm.dots import forms
from hal_llvm.probe.kept import probed

if TYPE_CHECKING:
    from tile_hal.ahead import Exporter


class LlvmDevice(Device):
    """The system CPU; LLVM is loaded when the compiler is first asked for."""

    def __init__(self) -> None:
        from hal_llvm import binding
        from hal_llvm.compiler import LlvmCompiler
        from hal_llvm.executor import LlvmExecutor

        processor = binding.host()
        settings = Settings.from_environment()
        threads = settings.num_threads or thread_count()
        self.id = "llvm:0"
        self.name = processor_name()
        self.target: Target = host_target(processor.triple, processor.features, threads)
        if not described(processor.features):
            self.target = probed(self.target, processor, self.name, settings)
        features = present(processor.features)
        if amx.instructions(features) and amx.permitted():
            self.target = amx.with_tiles(self.target, features)
        self.capabilities = Capabilities(
            dtypes=frozenset(d for d in DType if d is not DType.BFLOAT16 or find_spec("ml_dtypes") is not None),
            nodes=self.target.nodes,
            local_bytes=self.target.settings.max_mem,
            is_async=True,
            serializes=True,
            loads_outlines=True,
            loops=True,
        )
        self.compiler = LlvmCompiler(processor, threads)
        self.executor = LlvmExecutor()
        self.memory = HostMemory()
        self._threads = threads

    @property
    def exporter(self) -> Exporter:
        from hal_llvm.ahead.exporter import LlvmExporter

        return LlvmExporter(self._threads)


class LlvmDeviceSet(DeviceSet):
    """The one device."""

    @cached_property
    def _devices(self) -> tuple[Device, ...]:
        return (LlvmDevice(),)

    @property
    def devices(self) -> Sequence[Device]:
        return self._devices


class LlvmDriver(Driver):
    """LLVM's just-in-time compiler on this machine."""

    name = "llvm"
    api = (1, 0)
    priority = 10

    def device_sets(self) -> Sequence[DeviceSet]:
        return (LlvmDeviceSet(),)

    def doctor(self) -> Sequence[str]:
        from hal_llvm import binding

        llvmlite, llvm = binding.versions()
        threads = Settings.from_environment().num_threads or thread_count()
        dots = ", ".join(forms(present(binding.host().features))) or "none"
        return (
            f"LLVM {llvm} (llvmlite {llvmlite}), processor {binding.host().cpu}, {threads} threads",
            f"instructions for dot products: {dots}",
            amx.remark(present(binding.host().features)),
        )
