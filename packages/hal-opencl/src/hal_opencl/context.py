"""What the parts of one device share: its description, its OpenCL context and its queues."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cached_property

from tile_ir import forking

from hal_opencl import binding
from hal_opencl.events import Guard, Lanes


class DeviceContext:
    """Made when the device is listed; the OpenCL context and the queues come with their first use."""

    def __init__(self, info: binding.DeviceInfo) -> None:
        self.info = info
        self._lock = forking.lock()
        self._raw: object = None
        self.guard: Guard = forking.rlock() if "oclgrind" in info.platform.lower() else nullcontext()
        """oclgrind crashes when two threads are in it."""
        self.maps_for_free = self.is_pocl and self.shares_host_memory
        """Kernels work on the very bytes the host sees, so that a mapping is only a wait (PoCL on a CPU): each map and
        unmap command would cost a wake-up of the device's thread, about 20 µs."""

    @property
    def raw(self) -> object:
        """The OpenCL context."""
        if self._raw is None:
            with self._lock:
                if self._raw is None:
                    self._raw = binding.make_context(self.info.raw)
        return self._raw

    @cached_property
    def lanes(self) -> Lanes:
        return Lanes(lambda profiling: binding.make_queue(self.raw, self.info.raw, profiling), self.guard)

    @property
    def is_pocl(self) -> bool:
        return "pocl" in self.info.platform_version.lower()

    @property
    def shares_host_memory(self) -> bool:
        """Buffers over host memory are used in place."""
        return self.info.kind == "cpu" and self.info.unified

    @property
    def wrap_alignment(self) -> int:
        """Alignment in bytes of host memory that is used in place; PoCL takes any."""
        return 1 if self.is_pocl else 4096
