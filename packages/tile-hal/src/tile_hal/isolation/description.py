"""What is known of a device without touching it, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tile_ir.frozen import frozen
from tile_ir.target import Capabilities, Target

from tile_hal.interfaces import Device
from tile_hal.isolation.documents import from_document, to_document


@frozen
class Description:
    """A device, as its worker describes it."""

    id: str
    name: str
    target: Target
    capabilities: Capabilities
    fingerprint: str
    package: str
    """The package that its compiler is in."""
    size_goal: int
    versions: Mapping[str, str]


def described(device: Device) -> dict[str, Any]:
    """A device as plain data."""
    return {
        "id": device.id,
        "name": device.name,
        "target": device.target.to_json(),
        "capabilities": to_document(device.capabilities)[0],
        "fingerprint": device.compiler.fingerprint,
        "package": device.compiler.package,
        "size_goal": device.memory.size_goal,
        "versions": {str(k): str(v) for k, v in device.versions.items()},
    }


def description(data: Mapping[str, Any]) -> Description:
    """The description in plain data."""
    rest = {n: data[n] for n in ("id", "name", "fingerprint", "package", "size_goal", "versions")}
    able = from_document(Capabilities, data["capabilities"])
    return Description(target=Target.from_json(data["target"]), capabilities=able, **rest)
