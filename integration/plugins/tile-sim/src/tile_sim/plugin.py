"""The `tile_hal` plugin: device ``sim:0``. ``TILE_SIM_TARGET`` names another target document or template."""

from __future__ import annotations

from tile_hal.hooks import hookimpl
from tile_hal.interfaces import Driver


@hookimpl
def tile_hal_driver() -> Driver:
    from tile_sim.device import SimDriver

    return SimDriver()
