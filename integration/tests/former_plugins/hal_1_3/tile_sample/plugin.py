"""The entry point: it announces the driver, and imports the rest only when devices are asked for."""

from __future__ import annotations

from collections.abc import Sequence

from tile_hal import DeviceSet, Driver, hookimpl


class SampleDriver(Driver):
    name = "sample"
    api = (1, 0)

    def device_sets(self) -> Sequence[DeviceSet]:
        from tile_sample.device import SampleDeviceSet

        return (SampleDeviceSet(),)

    def doctor(self) -> Sequence[str]:
        return ("always there: runs kernels as Python functions",)


@hookimpl
def tile_hal_driver() -> Driver:
    return SampleDriver()
