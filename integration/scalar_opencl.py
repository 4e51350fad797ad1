"""An uninstalled plugin: the OpenCL devices as if they had no vectors.

oclgrind takes vectors that are made of lanes for uninitialised, so that its check for uninitialised values says
something only of scalar kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import tile_hal
from hal_opencl import plugin
from tile_hal.host import HostDeviceSet

VECTORS = frozenset({"Extract", "Insert", "Iota", "ReduceLanes", "Shuffle", "Splat"})


def scalar(device: tile_hal.Device) -> tile_hal.Device:
    twin = copy(device)
    twin.id = device.id.replace("opencl", "scalar")
    twin.target = replace(device.target.resolved(vec_size=1), nodes=device.target.nodes - VECTORS)
    twin.capabilities = replace(device.capabilities, nodes=device.capabilities.nodes - VECTORS)
    return twin


class ScalarDriver(tile_hal.Driver):
    name = "scalar"
    api = (1, 0)

    def device_sets(self) -> Sequence[tile_hal.DeviceSet]:
        return [HostDeviceSet([scalar(d) for d in group.devices]) for group in plugin.tile_hal_driver().device_sets()]


@tile_hal.hookimpl
def tile_hal_driver() -> tile_hal.Driver:
    return ScalarDriver()
