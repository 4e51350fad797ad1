"""The Tile hardware abstraction layer: interfaces, plugin discovery, built-in devices, conformance suite.

Importing this package imports nothing else; each public name loads its module when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tile_hal.discovery import (
        default_device,
        device,
        devices,
        doctor,
        drivers,
        isolated,
        plugins,
        register,
    )
    from tile_hal.events import CompletedEvent, FailedEvent, JoinedEvent, flatten, join
    from tile_hal.features import FEATURES, Feature, features_of
    from tile_hal.hooks import hookimpl
    from tile_hal.host import HostBuffer, HostEvent, HostMemory, HostQueue
    from tile_hal.interfaces import (
        HAL_API,
        Batch,
        BatchStep,
        Buffer,
        Compiler,
        Device,
        DeviceSet,
        Direct,
        DirectArray,
        DirectStep,
        Driver,
        Event,
        Executor,
        Holder,
        Kernel,
        Library,
        Memory,
        MemoryUsage,
        Part,
        Result,
    )
    from tile_hal.reports import DoctorReport, PluginReport, PluginStatus, TilePluginWarning
    from tile_hal.submission import Prepared, Submission, prepare, release_finished, submit

__all__ = [
    "FEATURES",
    "HAL_API",
    "Batch",
    "BatchStep",
    "Buffer",
    "Compiler",
    "CompletedEvent",
    "Device",
    "DeviceSet",
    "Direct",
    "DirectArray",
    "DirectStep",
    "DoctorReport",
    "Driver",
    "Event",
    "Executor",
    "FailedEvent",
    "Feature",
    "Holder",
    "HostBuffer",
    "HostEvent",
    "HostMemory",
    "HostQueue",
    "JoinedEvent",
    "Kernel",
    "Library",
    "Memory",
    "MemoryUsage",
    "Part",
    "PluginReport",
    "PluginStatus",
    "Prepared",
    "Result",
    "Submission",
    "TilePluginWarning",
    "default_device",
    "device",
    "devices",
    "doctor",
    "drivers",
    "features_of",
    "flatten",
    "hookimpl",
    "isolated",
    "join",
    "plugins",
    "prepare",
    "register",
    "release_finished",
    "submit",
]

_MODULES = {
    "discovery": "default_device device devices doctor drivers isolated plugins register",
    "events": "CompletedEvent FailedEvent JoinedEvent flatten join",
    "features": "FEATURES Feature features_of",
    "hooks": "hookimpl",
    "host": "HostBuffer HostEvent HostMemory HostQueue",
    "interfaces": (
        "HAL_API Batch BatchStep Buffer Compiler Device DeviceSet Direct DirectArray DirectStep Driver Event Executor Holder"
        " Kernel Library Memory MemoryUsage Part Result"
    ),
    "reports": "DoctorReport PluginReport PluginStatus TilePluginWarning",
    "submission": "Prepared Submission prepare release_finished submit",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module 'tile_hal' has no attribute {name!r}")
    value = getattr(import_module(f"tile_hal.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
