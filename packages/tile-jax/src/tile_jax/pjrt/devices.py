"""Devices and their memories."""

from __future__ import annotations

from typing import Any

from tile_jax.pjrt.handles import KEEPER, Handler, find, text, written
from tile_jax.pjrt.named import NamedValues
from tile_jax.pjrt.state import KIND, Device, Memory

_NOTHING = NamedValues({})


def _described(args: Any) -> Device:
    return find(Device, args.device_description)


def _description_id(args: Any) -> None:
    args.id = _described(args).number


def _process_index(args: Any) -> None:
    args.process_index = 0


def _description_attributes(args: Any) -> None:
    args.attributes, args.num_attributes = _NOTHING.address, 0


def _kind(args: Any) -> None:
    written(args, "device_kind", _described(args).kind)


def _debug_string(args: Any) -> None:
    written(args, "debug_string", _described(args).words)


def _to_string(args: Any) -> None:
    written(args, "to_string", _described(args).short)


def _description(args: Any) -> None:
    args.device_description = args.device


def _is_addressable(args: Any) -> None:
    args.is_addressable = True


def _hardware_id(args: Any) -> None:
    args.local_hardware_id = find(Device, args.device).number


def _memories(args: Any) -> None:
    found = find(Device, args.device).memories
    args.memories, args.num_memories = found.address, found.size


def _default_memory(args: Any) -> None:
    args.memory = find(Device, args.device).memory.handle


def _attributes(args: Any) -> None:
    args.attributes, args.num_attributes = _NOTHING.address, 0
    args.device_attributes, args.attributes_deleter = 0, KEEPER


def _memory_stats(args: Any) -> None:
    device = find(Device, args.device).tile
    usage = device.memory.usage
    if usage is None:
        raise NotImplementedError(f"device {device.id} does not count its memory")
    for name, _ in args._fields_:
        if name.endswith("_is_set"):
            setattr(args, name, False)
    args.bytes_in_use = usage.used
    args.pool_bytes, args.pool_bytes_is_set = usage.held, True
    args.num_allocs, args.num_allocs_is_set = usage.allocations, True


def _memory_id(args: Any) -> None:
    args.id = find(Memory, args.memory).device.number


def _memory_kind(args: Any) -> None:
    written(args, "kind", text(KIND))


def _memory_kind_id(args: Any) -> None:
    args.kind_id = 0


def _memory_debug_string(args: Any) -> None:
    written(args, "debug_string", find(Memory, args.memory).words)


def _memory_to_string(args: Any) -> None:
    written(args, "to_string", find(Memory, args.memory).words)


def _memory_devices(args: Any) -> None:
    found = find(Memory, args.memory).devices
    args.devices, args.num_devices = found.address, found.size


HANDLERS: dict[str, Handler] = {
    "DeviceDescription_Id": _description_id,
    "DeviceDescription_ProcessIndex": _process_index,
    "DeviceDescription_Attributes": _description_attributes,
    "DeviceDescription_Kind": _kind,
    "DeviceDescription_DebugString": _debug_string,
    "DeviceDescription_ToString": _to_string,
    "Device_GetDescription": _description,
    "Device_IsAddressable": _is_addressable,
    "Device_LocalHardwareId": _hardware_id,
    "Device_AddressableMemories": _memories,
    "Device_DefaultMemory": _default_memory,
    "Device_GetAttributes": _attributes,
    "Device_MemoryStats": _memory_stats,
    "Memory_Id": _memory_id,
    "Memory_Kind": _memory_kind,
    "Memory_Kind_Id": _memory_kind_id,
    "Memory_DebugString": _memory_debug_string,
    "Memory_ToString": _memory_to_string,
    "Memory_AddressableByDevices": _memory_devices,
}
