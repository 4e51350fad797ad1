"""`tile devices`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tile_runtime.cli.common import Json, print_json, print_table

if TYPE_CHECKING:
    from tile_hal.interfaces import Device


def devices(json: Json = False) -> None:
    """List every device of every installed backend; * marks the default."""
    import tile_hal

    from tile_runtime.devices import devices as all_devices

    found = all_devices()
    default = tile_hal.device().id
    if json:
        print_json([{**_facts(d), "default": d.id == default} for d in found])
        return
    rows = [
        (("* " if d.id == default else "  ") + d.id, _name(d), d.capabilities.executes, _dtypes(d), _memory(d))
        for d in found
    ]
    print_table(("Device", "Name", "Runs", "dtypes", "Memory"), rows)


def _facts(device: Device) -> dict[str, Any]:
    settings = device.target.settings
    usage = device.memory.usage
    counted = {"memory_used": usage.used, "memory_held": usage.held} if usage is not None else {}
    return {
        "id": device.id,
        "name": device.name,
        "target": device.target.name,
        "executes": device.capabilities.executes,
        "isolated": device.isolated,
        "dtypes": sorted(d.value for d in device.capabilities.dtypes),
        "flushes_subnormals": sorted(d.value for d in device.capabilities.flushes_subnormals),
        "memory_bytes": device.memory.size_goal,
        **counted,
        "cores": settings.cores,
        "vector_bytes": settings.vector_bytes,
    }


def _name(device: Device) -> str:
    return f"{device.name} (in a worker process)" if device.isolated else device.name


def _memory(device: Device) -> str:
    """What programs may use, and what this process does where the device counts it."""
    usage = device.memory.usage
    counted = "" if usage is None else f", {usage.used >> 20} MiB used, {usage.held >> 20} MiB held"
    return f"{device.memory.size_goal / 2**30:.1f} GiB{counted}"


def _dtypes(device: Device) -> str:
    from tile_ir.dtype import DType

    missing = [d.value for d in DType if d not in device.capabilities.dtypes]
    return "all but " + ", ".join(missing) if missing else "all"
