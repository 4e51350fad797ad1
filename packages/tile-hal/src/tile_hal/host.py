"""Shared parts of backends whose kernels read and write host memory: buffers, memory, devices and an asynchronous queue.

Public and stable for plugins. A typical backend writes a `Compiler` that gives a `HostLibrary`, and puts it into a
`HostDevice`. One that runs kernels in its own way allocates through `HostMemory`, checks buffers by `check_parameters`, runs a
kernel inline when its dependencies are met and hands it to a `HostQueue` otherwise: ``queue.run(work, dependencies)`` does both.
"""

from __future__ import annotations

from tile_hal.events import CompletedEvent, FailedEvent, JoinedEvent
from tile_hal.host_device import (
    HostDevice,
    HostDeviceSet,
    HostExecutor,
    HostKernel,
    HostLibrary,
    Parameter,
    check_parameters,
    outer_refs,
    parameters,
    stripe_views,
    supported_dtypes,
    verify_kernels,
)
from tile_hal.host_memory import ALIGNMENT, HostBuffer, HostMemory
from tile_hal.host_queue import HostEvent, HostQueue
from tile_hal.shared_object import SharedObject

__all__ = [
    "ALIGNMENT",
    "CompletedEvent",
    "FailedEvent",
    "HostBuffer",
    "HostDevice",
    "HostDeviceSet",
    "HostEvent",
    "HostExecutor",
    "HostKernel",
    "HostLibrary",
    "HostMemory",
    "HostQueue",
    "JoinedEvent",
    "Parameter",
    "SharedObject",
    "check_parameters",
    "outer_refs",
    "parameters",
    "stripe_views",
    "supported_dtypes",
    "verify_kernels",
]
