"""The pluggy project through which plugins announce their driver.

A plugin is an entry point of group ``tile_hal`` that names a module (or object) with a function
``tile_hal_driver`` marked ``@tile_hal.hookimpl``. The module should import quickly: load the hardware's
library inside `Driver.device_sets`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from tile_hal.interfaces import Driver

PROJECT = "tile_hal"
"""Name of the pluggy project and of the entry point group."""
HOOK = "tile_hal_driver"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def tile_hal_driver() -> Driver:  # pyright: ignore[reportReturnType]
    """The plugin's driver. Called once, when drivers are first asked for; must not touch hardware."""
