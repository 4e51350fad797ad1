"""The entry point: it announces the driver, and imports the rest only when devices are asked for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from tile_hal import DeviceSet, Driver, hookimpl

CC = os.environ.get("CC") or "cc"
"""The compiler's command."""


class SampleDriver(Driver):
    name = "sample"
    api = (1, 4)

    def device_sets(self) -> Sequence[DeviceSet]:
        from tile_hal.host import HostDeviceSet

        from tile_sample.device import device

        return (HostDeviceSet([device(CC)]),) if shutil.which(CC) else ()

    def doctor(self) -> Sequence[str]:
        found = shutil.which(CC)
        return (f"compiles kernels by {found}" if found else f"no C compiler {CC!r}: install one, or set CC",)


@hookimpl
def tile_hal_driver() -> Driver:
    return SampleDriver()
