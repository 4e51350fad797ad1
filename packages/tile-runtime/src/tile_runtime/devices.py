"""Devices as a user names them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tile_hal.interfaces import Device
from tile_ir.diagnostics import Diagnostic, TileDeviceError


def devices() -> list[Device]:
    """Every device of every installed backend; each has `id`, `name`, `target` and `capabilities`."""
    import tile_hal

    from tile_runtime.measuring.machines import applied

    return [applied(found) for found in tile_hal.devices()]


def device(id: str | Device | None = None) -> Device:
    """The device called `id`: "llvm" means "llvm:0"; None is $TILE_DEVICE or the best there is.

    Raises TileDeviceError, listing what there is, when no device has that id.
    """
    if id is None and _VARIABLE in _environment:
        id = os.environ["TILE_DEVICE"] or None
    found = _known.get(id) if id is None or type(id) is str else None
    return _found(id) if found is None else found


_named = device


def synchronize(device: Device | str | None = None) -> None:
    """Wait until all work on a device is over; failures stay with the Tensors that they are about.

    None is the default device. TileDeviceError when there is no such device, or it is lost.
    """
    from tile_hal.submission import drain

    executor = _named(device).executor
    executor.flush()
    executor.finish()
    drain()


def isolated(device: Device) -> Device:
    """The same device with its driver in a worker process, always the same one; TileDeviceError when that fails."""
    import tile_hal

    from tile_runtime.measuring.machines import applied

    found = tile_hal.isolated(device)
    return found if found is device else applied(found)


def checked_fallback(id: str | Device | None, lacks: Device) -> Device | None:
    """The device that runs what `lacks` lacks; None for none, or for the same; TileDeviceError for one that runs nothing."""
    found = device(id) if id is not None else None
    if found is not None and not found.capabilities.executes:
        message = f"device {found.id} runs nothing, so it cannot run what {lacks.id} lacks"
        raise TileDeviceError(Diagnostic("TILE-E522", message, hint="such as fallback='llvm'"))
    return None if found is lacks else found


_known: dict[str | None, Device] = {}
"""Devices by what a caller names: an id, or None for the best there is."""
_environment: Mapping[Any, Any] = getattr(os.environ, "_data", os.environ)
"""What is behind `os.environ`, which takes longer than a whole small call to say that a variable is not there."""
_VARIABLE: object = os.environ.encodekey("TILE_DEVICE") if _environment is not os.environ else "TILE_DEVICE"


def _found(id: str | Device | None) -> Device:
    if isinstance(id, Device):
        return id
    import tile_hal

    if not (id is None or isinstance(id, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
        message = f"a device is named by its id or a Device, not by {type(id).__name__} {id!r}"
        raise TileDeviceError(Diagnostic("TILE-E516", message, hint="such as device='llvm:0'"))
    from tile_runtime.measuring.machines import applied

    found = _known[id] = applied(tile_hal.device(id))
    return found
