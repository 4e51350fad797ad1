"""The `tile_hal` plugin: importing it loads no OpenCL, the driver does when it is probed."""

from __future__ import annotations

from tile_hal.hooks import hookimpl
from tile_hal.interfaces import Driver


@hookimpl
def tile_hal_driver() -> Driver:
    from hal_opencl.driver import OpenCLDriver

    return OpenCLDriver()
