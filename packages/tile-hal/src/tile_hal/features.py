"""The optional features of the contract, by name.

A device offers one by implementing it; whoever calls the device has another way for each. So a plugin for an older minor version
of the HAL API always works. A driver that says which of them it requires (`Driver.requires`) works with every tile-hal that has
those, whatever the minor version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tile_ir.frozen import frozen

from tile_hal.interfaces import Device, Executor, Memory


@frozen
class Feature:
    """One thing that a device may offer."""

    since: tuple[int, int]
    """The HAL API that has it first."""
    member: str
    """What a device implements, or states."""
    otherwise: str
    """What happens without it."""
    offered: Callable[[Device], bool]


def _overrides(part: str, base: type, member: str) -> Callable[[Device], bool]:
    """Whether the device's `part` has a `member` of its own."""
    inherited = getattr(base, member)
    return lambda device: getattr(_class(getattr(device, part)), member, inherited) is not inherited


def _class(value: object) -> type[object]:
    return type(value)


def _states(name: str) -> Callable[[Device], bool]:
    return lambda device: bool(getattr(device.capabilities, name))


FEATURES: Mapping[str, Feature] = {
    "wrap": Feature((1, 0), "Memory.wrap", "arrays are copied to the device", _overrides("memory", Memory, "wrap")),
    "view": Feature(
        (1, 0), "Memory.view", "each temporary has a buffer of its own", _overrides("memory", Memory, "view")
    ),
    "serialize": Feature(
        (1, 0),
        "Capabilities.serializes, Library.serialize, Compiler.deserialize",
        "each process compiles anew",
        _states("serializes"),
    ),
    "direct": Feature(
        (1, 1),
        "Executor.direct",
        "every call goes through buffers and events",
        _overrides("executor", Executor, "direct"),
    ),
    "load": Feature(
        (1, 2),
        "Capabilities.loads_outlines, Compiler.load",
        "a stored program is analysed again, and its kernels deserialized",
        _states("loads_outlines"),
    ),
    "keep_buffers": Feature(
        (1, 3), "Capabilities.keeps_buffers", "buffers are kept until their work is over", _states("keeps_buffers")
    ),
    "batch": Feature(
        (1, 3), "Executor.batch", "steps are started one by one", _overrides("executor", Executor, "batch")
    ),
    "usage": Feature(
        (1, 3), "Memory.usage, Memory.trim", "used memory is not shown", _overrides("memory", Memory, "usage")
    ),
    "flush_subnormals": Feature(
        (1, 4),
        "Capabilities.flushes_subnormals",
        "the conformance suite expects subnormal numbers",
        _states("flushes_subnormals"),
    ),
    "compile_apart": Feature(
        (1, 4),
        "Capabilities.compiles_apart",
        "kernels are compiled in the user's process, the first time too",
        _states("compiles_apart"),
    ),
    "loops": Feature(
        (1, 5), "Capabilities.loops", "the host starts the steps of each round of a loop", _states("loops")
    ),
    "defer": Feature(
        (1, 6),
        "Executor.defer",
        "a call on tensors whose work is host code is over when it returns",
        _overrides("executor", Executor, "defer"),
    ),
    "finish": Feature(
        (1, 6),
        "Executor.finish",
        "`tile_runtime.synchronize` waits for submissions alone",
        _overrides("executor", Executor, "finish"),
    ),
    "export": Feature(
        (1, 6),
        "Device.exporter",
        "`tile build` writes nothing for the device",
        lambda device: device.exporter is not None,
    ),
    "transfer": Feature(
        (1, 7), "Memory.read, Memory.write", "mappings are copied from and to", _overrides("memory", Memory, "read")
    ),
    "requires": Feature(
        (1, 4), "Driver.requires", "the minor version decides what a plugin may be loaded by", lambda device: False
    ),
}
"""Every optional feature of this version of the contract."""


def features_of(device: Device) -> frozenset[str]:
    """Names of the optional features that a device offers."""
    return frozenset(name for name, feature in FEATURES.items() if feature.offered(device))
