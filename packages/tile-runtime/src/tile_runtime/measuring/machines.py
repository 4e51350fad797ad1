"""Measured machines: kept per device beside the user's settings, and laid over what the device says of itself.

`tile_runtime.measuring.calibration` measures them.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from dataclasses import replace
from os.path import isdir
from pathlib import Path
from typing import Any

from tile_hal.interfaces import Device
from tile_ir.diagnostics import TileDeviceError, TileMachineWarning
from tile_ir.document import from_document, to_document
from tile_ir.machine import Machine
from tile_ir.settings import Settings

_probed: dict[str, Machine] = {}
"""What devices said of themselves before a calibration was laid over it, by id."""


def probed(device: Device) -> Machine:
    """What a device says of itself, whatever is laid over it."""
    return _probed.get(device.id, device.target.machine)


def _use(device: Device, machine: Machine) -> None:
    _probed.setdefault(device.id, device.target.machine)
    device.target = replace(device.target, machine=machine)


def stored(device: Device) -> Path:
    """The file that keeps the calibration of a device: of this one, with this driver and these settings."""
    parts = [device.id, device.name, device.compiler.fingerprint, json.dumps(to_document(device.target.settings))]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
    return _folder() / f"{key}.json"


def _folder() -> Path:
    import platformdirs

    given = Settings.from_environment().cache_dir
    base = given if given is not None else Path(platformdirs.user_config_dir("tile", appauthor=False))
    return base / "machines"


def keep(device: Device, machine: Machine) -> Path:
    """Store a device's measured machine and use it from now on in this process; the file."""
    path = stored(device)
    path.parent.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {"device": device.name, "machine": to_document(machine)}
    unfinished = path.with_suffix(".partial")
    unfinished.write_text(json.dumps(document, indent=2), encoding="utf-8")
    unfinished.replace(path)
    _use(device, machine)
    return path


def forget(device: Device) -> bool:
    """Remove what is stored for a device, and go back to what it says itself; whether there was anything."""
    path = stored(device)
    if device.id in _probed:
        device.target = replace(device.target, machine=_probed.pop(device.id))
    if not path.exists():
        return False
    path.unlink()
    return True


def applied(device: Device) -> Device:
    """`device`, with the machine of its calibration where one is stored; a damaged one is a warning and left alone."""
    if not isdir(_folder()):  # not Path.is_dir, which raises for a name that is too long
        return device
    try:
        document = json.loads(stored(device).read_text(encoding="utf-8"))
        machine = from_document(device.target.machine, document["machine"], "machine")
    except FileNotFoundError:
        return device
    except (OSError, ValueError, TypeError, KeyError, TileDeviceError) as problem:
        reason = str(problem).splitlines()[0]
        message = f"the calibration of {device.id} is not used: {stored(device)} is damaged ({reason})"
        warnings.warn(message, TileMachineWarning, stacklevel=3)
        return device
    _use(device, machine)
    return device
