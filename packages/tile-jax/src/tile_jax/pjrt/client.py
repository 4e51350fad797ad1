"""The client: its devices, its topology, and arrays that come from the host."""

from __future__ import annotations

import ctypes
from typing import Any

from tile_jax.pjrt.handles import Handler, drop, find, text, written
from tile_jax.pjrt.named import NamedValues, read_named
from tile_jax.pjrt.state import PLATFORM, Client

_attributes: list[NamedValues] = []
"""They live as long as the process."""
_NOTHING = NamedValues({})


def _initialize(args: Any) -> None:
    """Nothing is opened before there is a client."""


def _plugin_attributes(args: Any) -> None:
    if not _attributes:
        from tile_jax.lowering.mlir import stablehlo

        current = [int(part) for part in stablehlo.get_current_version().split(".")]
        oldest = [int(part) for part in stablehlo.get_minimum_version().split(".")]
        _attributes.append(NamedValues({"stablehlo_current_version": current, "stablehlo_minimum_version": oldest}))
    args.attributes, args.num_attributes = _attributes[0].address, _attributes[0].size


def _create(args: Any) -> None:
    args.client = Client(read_named(args.create_options, args.num_options)).handle


def _destroy(args: Any) -> None:
    for handle in find(Client, args.client).handles:
        drop(handle)


def _platform_name(args: Any) -> None:
    written(args, "platform_name", text(PLATFORM))


def _platform_version(args: Any) -> None:
    written(args, "platform_version", find(Client, args.client).version)


def _topology_version(args: Any) -> None:
    written(args, "platform_version", find(Client, args.topology).version)


def _process_index(args: Any) -> None:
    args.process_index = 0


def _devices(args: Any) -> None:
    found = find(Client, args.client).device_handles
    args.devices, args.num_devices = found.address, found.size


def _addressable_devices(args: Any) -> None:
    found = find(Client, args.client).device_handles
    args.addressable_devices, args.num_addressable_devices = found.address, found.size


def _memories(args: Any) -> None:
    found = find(Client, args.client).memory_handles
    args.addressable_memories, args.num_addressable_memories = found.address, found.size


def _lookup(args: Any) -> None:
    args.device = _numbered(args.client, args.id)


def _lookup_addressable(args: Any) -> None:
    args.addressable_device = _numbered(args.client, args.local_hardware_id)


def _numbered(client: int, number: int) -> int:
    devices = find(Client, client).devices
    if not 0 <= number < len(devices):
        raise NotImplementedError(f"the platform {PLATFORM!r} has devices 0 to {len(devices) - 1}, and no {number}")
    return devices[number].handle


def _assignment(args: Any) -> None:
    """One device after the other."""
    count = args.num_replicas * args.num_partitions
    (ctypes.c_int32 * count).from_address(args.default_assignment)[:] = range(count)


def _topology(args: Any) -> None:
    """A topology is the client under another handle."""
    args.topology = args.client


def _descriptions(args: Any) -> None:
    """A device's description is the device under another name."""
    found = find(Client, args.topology).device_handles
    args.descriptions, args.num_descriptions = found.address, found.size


def _topology_attributes(args: Any) -> None:
    args.attributes, args.num_attributes = _NOTHING.address, _NOTHING.size


def _nothing(args: Any) -> None:
    """What has no state has nothing to destroy."""


HANDLERS: dict[str, Handler] = {
    "Plugin_Initialize": _initialize,
    "Plugin_Attributes": _plugin_attributes,
    "Client_Create": _create,
    "Client_Destroy": _destroy,
    "Client_PlatformName": _platform_name,
    "Client_PlatformVersion": _platform_version,
    "Client_ProcessIndex": _process_index,
    "Client_Devices": _devices,
    "Client_AddressableDevices": _addressable_devices,
    "Client_AddressableMemories": _memories,
    "Client_LookupDevice": _lookup,
    "Client_LookupAddressableDevice": _lookup_addressable,
    "Client_DefaultDeviceAssignment": _assignment,
    "Client_TopologyDescription": _topology,
    "TopologyDescription_Destroy": _nothing,
    "TopologyDescription_PlatformName": _platform_name,
    "TopologyDescription_PlatformVersion": _topology_version,
    "TopologyDescription_GetDeviceDescriptions": _descriptions,
    "TopologyDescription_Attributes": _topology_attributes,
}
