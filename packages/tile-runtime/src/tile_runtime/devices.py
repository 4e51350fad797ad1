"""Devices as a user names them."""

from __future__ import annotations

from tile_hal.interfaces import Device
from tile_ir.diagnostics import Diagnostic, TileDeviceError


def devices() -> list[Device]:
    """Every device of every installed backend; each has `id`, `name`, `target` and `capabilities`."""
    import tile_hal

    return list(tile_hal.devices())


def device(id: str | Device | None = None) -> Device:
    """The device called `id`: "llvm" means "llvm:0"; None is $TILE_DEVICE or the best there is.

    Raises TileDeviceError, listing what there is, when no device has that id.
    """
    if isinstance(id, Device):
        return id
    import tile_hal

    if not (id is None or isinstance(id, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
        message = f"a device is named by its id or a Device, not by {type(id).__name__} {id!r}"
        raise TileDeviceError(Diagnostic("TILE-E516", message, hint="such as device='llvm:0'"))
    return tile_hal.device(id)
