"""The client, its devices and their memories, as JAX knows them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tile_ir.diagnostics import Diagnostic, TileDeviceError, TileTypeError

from tile_jax import __version__
from tile_jax.pjrt.elements import COUNT
from tile_jax.pjrt.handles import Array, Text, new, said, text

if TYPE_CHECKING:
    from tile_hal.interfaces import Device as TileDevice
    from tile_runtime.evaluator import Evaluator

PLATFORM = "tile"
VARIABLE = "TILE_JAX_DEVICES"
KIND = "device"
"""The kind of memory that there is."""
FLAGS = ("reduced_precision", "fast_math")
"""What an evaluator may be allowed to do: options of the client, true or false."""


class Device:
    """A Tile device at one place of JAX's list. The same Tile device may stand at several."""

    def __init__(self, client: Client, number: int, device: TileDevice) -> None:
        self.client = client
        self.number = number
        self.tile = device
        self.handle = new(self)
        self.memory = Memory(self)
        self.kind = text(device.id)
        self.words = Text(f"TileDevice(id={number}, {device.id}: {device.name})")
        self.short = Text(f"TILE_{number}({device.id})")
        self.memories = Array([self.memory.handle])
        self.says = [self._said_of(element) for element in range(COUNT)]
        """What handles of its buffers answer by themselves, by PJRT's number for the element type."""

    def _said_of(self, element: int) -> int:
        memory = self.memory.handle
        return said({"Buffer_Device": self.handle, "Buffer_Memory": memory, "Buffer_ElementType": element})

    @cached_property
    def hosted(self) -> bool:
        """Whether the device works on the host's own memory."""
        from tile_runtime.tensor import Tensor

        return Tensor(self.tile, (1,), "uint8").host is not None


class Memory:
    """The one memory of a device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.handle = new(self)
        self.words = Text(f"TileMemory(id={device.number}, {device.tile.id})")
        self.devices = Array([device.handle])


class Client:
    """Every Tile device that JAX shall see."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        unknown = sorted(set(options) - {"devices", *FLAGS})
        if unknown:
            message = f"the platform {PLATFORM!r} has no option {', '.join(unknown)}"
            raise TileDeviceError(Diagnostic("TILE-E951", message, hint=f"there are devices, {', '.join(FLAGS)}"))
        self._flags: Any = {name: _flag(name, options[name]) for name in FLAGS if name in options}
        self._evaluators: dict[Any, Evaluator] = {}
        self.handle = new(self)
        named = str(options.get("devices", os.environ.get(VARIABLE, "")))
        self.devices = [Device(self, k, found) for k, found in enumerate(_devices(named))]
        self.device_handles = Array([d.handle for d in self.devices])
        self.memory_handles = Array([d.memory.handle for d in self.devices])

    @cached_property
    def version(self) -> Text:
        """What JAX shows as the platform's version, and makes part of the keys of its caches."""
        return Text(f"tile-jax {__version__} ({', '.join(d.tile.id for d in self.devices)})")

    @property
    def handles(self) -> list[int]:
        """All that were made for it."""
        return [self.handle, *(h for d in self.devices for h in (d.handle, d.memory.handle))]

    def evaluator(self, device: TileDevice, overrides: Mapping[str, Any]) -> Evaluator:
        """The evaluator of a device, with the client's options, or what a program's own say instead."""
        from tile_runtime.evaluator import Evaluator

        unknown = sorted(set(overrides) - {*FLAGS})
        if unknown:
            message = f"tile-jax has no compiler option {', '.join(unknown)}"
            raise TileTypeError(Diagnostic("TILE-E951", message, hint=f"there are {', '.join(FLAGS)}"))
        flags = self._flags | {name: _flag(name, value) for name, value in overrides.items()}
        key = (device.id, *sorted(flags.items()))
        if key not in self._evaluators:
            self._evaluators[key] = Evaluator(device, short_products=True, **flags)
        return self._evaluators[key]


def _devices(named: str) -> Sequence[TileDevice]:
    """The devices that a list names; without one, the default device and what else its driver has."""
    import tile_hal
    from tile_runtime.devices import device

    names = [name.strip() for name in named.split(",") if name.strip()]
    if names:
        return [device(name) for name in names]
    best = device()
    return [best, *(device(d.id) for d in tile_hal.devices(best.id.partition(":")[0]) if d.id != best.id)]


def _flag(name: str, given: Any) -> bool:
    known = {"true": True, "1": True, "false": False, "0": False}
    found = given if isinstance(given, bool) else known.get(str(given).lower())
    if found is None:
        message = f"option {name} is true or false, not {given!r}"
        raise TileDeviceError(Diagnostic("TILE-E951", message))
    return found
