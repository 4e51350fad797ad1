"""The driver: every device of every OpenCL platform of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING

from tile_hal.interfaces import Device, DeviceSet, Driver
from tile_ir.dtype import DType
from tile_ir.matrix import LANES, intel
from tile_ir.target import Capabilities

if TYPE_CHECKING:
    from tile_hal.ahead import Exporter
    from tile_ir.target import Target

    from hal_opencl.binding import DeviceInfo, PlatformInfo

_INSTALL = (
    "for the CPU without root: pip install pocl-binary-distribution",
    "for the CPU, Debian and Ubuntu: apt-get install pocl-opencl-icd",
    "for a GPU: the vendor's driver (NVIDIA: libnvidia-opencl1, AMD: rocm-opencl-runtime, Intel: intel-opencl-icd)",
)


class OpenCLDevice(Device):
    """One OpenCL device; nothing is allocated on it before its first use."""

    def __init__(self, number: int, info: DeviceInfo) -> None:
        from hal_opencl.compiler import OpenCLCompiler
        from hal_opencl.context import DeviceContext
        from hal_opencl.executor import OpenCLExecutor
        from hal_opencl.families import target_of
        from hal_opencl.memory import DeviceMemory

        self.id = f"opencl:{number}"
        self.info = info
        self.name = f"{info.name} ({info.platform})"
        self._context = context = DeviceContext(info)
        self.capabilities = Capabilities(
            dtypes=_dtypes(info),
            nodes=target_of(info).nodes,
            max_group_size=info.max_group,
            local_bytes=info.local_bytes,
            subgroup=LANES if info.ptx else intel.LANES if info.products else 1,
            is_async=True,
            serializes=True,
            loads_outlines=True,
            compiles_apart=not context.survives,
            keeps_buffers=True,
            loops=True,
            flushes_subnormals=flushes(info),
        )
        self.compiler = OpenCLCompiler(context)
        self.memory = DeviceMemory(context)
        self.executor = OpenCLExecutor(context, self.memory)

    @cached_property
    def target(self) -> Target:  # pyright: ignore[reportIncompatibleVariableOverride] (asked for when it compiles)
        from hal_opencl.families import target_of, without_boxes, without_teams

        target = target_of(self.info)
        if not self.info.teams:
            return target
        from hal_opencl.teams import multiplies
        from hal_opencl.tensors import copies_boxes

        if not multiplies(self._context):
            return without_teams(target)
        return target if copies_boxes(self._context) else without_boxes(target)

    @property
    def exporter(self) -> Exporter:
        from hal_opencl.ahead import OpenCLExporter
        from hal_opencl.compiler import OpenCLCompiler
        from hal_opencl.families import without_teams

        assert isinstance(self.compiler, OpenCLCompiler)
        # What a C program gives to the driver is source, and is not assembled for another target.
        return OpenCLExporter(self.info.name, without_teams(self.target), self.compiler)


def flushes(info: DeviceInfo) -> frozenset[DType]:
    """Dtypes whose subnormal numbers may count as zeros; bfloat16 has those of float32, in which it is computed."""
    return frozenset() if info.subnormals else frozenset({DType.FLOAT32, DType.BFLOAT16})


def _dtypes(info: DeviceInfo) -> frozenset[DType]:
    """float16 and bfloat16 are computed in float32, so only float64 depends on the device."""
    missing = set[DType]() if info.fp64 else {DType.FLOAT64}
    if find_spec("ml_dtypes") is None:
        missing.add(DType.BFLOAT16)
    return frozenset(d for d in DType if d not in missing)


class OpenCLDeviceSet(DeviceSet):
    """The devices of one platform."""

    def __init__(self, platform: PlatformInfo, first: int) -> None:
        self._platform = platform
        self._first = first

    @cached_property
    def _devices(self) -> tuple[Device, ...]:
        return tuple(OpenCLDevice(self._first + n, info) for n, info in enumerate(self._platform.devices))

    @property
    def devices(self) -> Sequence[Device]:
        return self._devices


class OpenCLDriver(Driver):
    """OpenCL through the system's loader (or the one in pyopencl's wheel)."""

    name = "opencl"
    api = (1, 0)

    def device_sets(self) -> Sequence[DeviceSet]:
        from hal_opencl import binding

        sets: list[DeviceSet] = []
        count = 0
        for platform in binding.platforms():
            if platform.devices:
                sets.append(OpenCLDeviceSet(platform, count))
                count += len(platform.devices)
        return sets

    def doctor(self) -> Sequence[str]:
        try:
            from hal_opencl import binding
        except ImportError as problem:
            return (f"pyopencl cannot be imported ({problem}): pip install --force-reinstall pyopencl",)
        platforms = binding.platforms()
        lines = [f"pyopencl {binding.version()}"]
        number = 0
        for platform in platforms:
            lines.append(
                f"platform {platform.name}, {platform.version}" + (f": {platform.problem}" if platform.problem else "")
            )
            for info in platform.devices:
                lines.append(f"  opencl:{number} {_describe(info)}")
                number += 1
        if not number:
            lines.append("no OpenCL device: " + ("the platforms have none" if platforms else "no driver is installed"))
            lines += [f"  {line}" for line in _INSTALL]
        return lines


def _describe(info: DeviceInfo) -> str:
    from hal_opencl.families import family_of

    has = [name for name, there in (("fp16", info.fp16), ("fp64", info.fp64), ("sub-groups", info.subgroups)) if there]
    return (
        f"{info.name}, driver {info.driver}, {info.units} units, {info.global_bytes >> 20} MiB, local {info.local_bytes >> 10} KiB, "
        f"groups up to {info.max_group}, {' '.join(has) or 'no optional types'}, settings {family_of(info)}"
    )
