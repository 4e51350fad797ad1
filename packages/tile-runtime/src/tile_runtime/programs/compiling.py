"""Compiling kernels for the first time: in a worker process where the device's compiler is not known to survive it."""

from __future__ import annotations

from tile_hal.interfaces import Device, Library
from tile_ir.kernels import KernelList
from tile_ir.settings import Settings


def compiled(device: Device, kernels: KernelList) -> tuple[Library, bytes | None]:
    """Code of kernels that nobody has compiled yet, and what the disk cache keeps of it; None where that is not known yet.

    A compiler that crashes takes its worker with it: TileDeviceError with the kernels' names and the signal.
    """
    if not device.capabilities.compiles_apart or device.isolated or not Settings.from_environment().compile_apart:
        return device.compiler.build(kernels), None
    import tile_hal

    data = tile_hal.isolated(device).compiler.build(kernels).serialize()
    if data is None:  # the kernels have mistakes, which are named better here
        return device.compiler.build(kernels), None
    load = device.compiler.load if device.capabilities.loads_outlines else device.compiler.deserialize
    return load(kernels, data), data
